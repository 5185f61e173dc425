"""Which options are flags of `kheads prune`, under which heading, and how the shaped ones are written."""

from __future__ import annotations

from typing import Any

from kheads.methods.registry import BUILT_IN, UNPRUNED

# The fields of a job, its data and its constraints that most people need, by heading; --set reaches the others.
KEEP = (
    *("k", "speedup", "smaller", "flops", "max_ms", "at_most", "parts", "at", "method", "pipelined", "unit"),
    *("min_per_site", "uniform", "protected", "quotas"),
)
DATA = ("task", "train", "eval", "columns", "pooling", "max_train", "max_eval", "max_length")
TRAINING = (
    *("epochs", "max_steps", "batch_size", "lr", "bf16", "seed", "baseline"),
    *("trained", "fresh", "no_training", "repair", "recover_steps", "distil"),
)
PANELS = {"What to keep": KEEP, "Data": DATA, "Training": TRAINING}
FRONT = frozenset(name for names in PANELS.values() for name in names)
# Flags whose values have a shape of their own: how they are written, and what to say.
SHAPED: dict[str, dict[str, Any]] = {
    "k": {"help": "Keep this many heads, as in 12 or 50%."},
    "speedup": {"help": "Make it this many times as fast."},
    "smaller": {"help": "Remove this share of parameters: 30%."},
    "max_ms": {"help": "At most this many milliseconds a batch."},
    "min_per_site": {"help": "At least this many heads per site."},
    "task": {"help": "embed, tags, qa, clm, ...: see tasks."},
    "flops": {"help": "Keep this share of the FLOPs, as in 50%."},
    "at_most": {"help": "Smallest at most this many points worse."},
    "parts": {"help": "What may go: heads, ffn (neurons), all."},
    "at": {"help": "The batch of speed and FLOPs [8x128]."},
    "method": {"help": f"{', '.join(BUILT_IN)}, {UNPRUNED}, or module:Class."},
    "eval": {"metavar": "[NAME=]FILE", "help": "Evaluation file; may be repeated."},
    "columns": {"metavar": "NAME=COLUMN", "help": "Such as text=A, text_pair=B, label=C."},
    "pooling": {"help": "Of embeddings: mean or cls."},
    "protected": {"metavar": "SITE:HEAD", "help": "Keep this head; may be repeated."},
    "quotas": {"metavar": "KIND=N", "help": "Keep exactly N heads of this kind."},
    "fresh": {"help": "Train anew, even if it can do the task."},
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
