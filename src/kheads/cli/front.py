"""Which options are flags of `kheads prune`, under which heading, and how the shaped ones are written."""

from __future__ import annotations

from kheads.methods.registry import BUILT_IN, UNPRUNED

# The fields of a job, its data and its constraints that most people need, by heading; --set reaches the others.
KEEP = ("k", "method", "pipelined", "unit", "min_per_site", "uniform", "protected", "quotas")
DATA = ("task", "train", "eval", "columns", "max_train", "max_eval", "max_length")
TRAINING = (
    *("epochs", "max_steps", "batch_size", "lr", "bf16", "seed", "baseline"),
    *("trained", "fresh", "no_training", "repair", "recover_steps", "distil"),
)
PANELS = {"What to keep": KEEP, "Data": DATA, "Training": TRAINING}
FRONT = frozenset(name for names in PANELS.values() for name in names)
# Flags whose values have a shape of their own: how they are written, and what to say.
SHAPED: dict[str, dict[str, str]] = {
    "method": {"help": f"{', '.join(BUILT_IN)}, {UNPRUNED}, or yours as module:Class."},
    "eval": {"metavar": "[NAME=]FILE", "help": "Evaluation file; may be repeated."},
    "columns": {"metavar": "NAME=COLUMN", "help": "Such as text=A, text_pair=B, label=C."},
    "protected": {"metavar": "SITE:HEAD", "help": "Keep this head; may be repeated."},
    "quotas": {"metavar": "KIND=N", "help": "Keep exactly N heads of this kind."},
    "repair": {"help": "Do not refit what the cut has left."},
}
NAMES = {
    "k": ("-k",),
    "columns": ("--column",),
    "protected": ("--protect",),
    "quotas": ("--quota",),
    "repair": ("--no-repair",),
}
SWITCHES_OFF = ("repair",)  # on unless their flag is given
