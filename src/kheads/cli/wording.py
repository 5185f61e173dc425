"""What the library says, in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kheads.blocks.constraints import Constraints
from kheads.cli.front import FRONT
from kheads.lab.jobs.job import Job
from kheads.lab.options import options_of

FLAGS = {
    "model": "MODEL",
    "k": "-k",
    "train": "--train",
    "eval": "--eval",
    "evals": "--eval",
    "columns": "--column",
    "labels": "--set labels=...",
    "pooling": "--pooling",
    "normalise": "--set normalise=...",
    "protected": "--protect",
    "quotas": "--quota",
    "overwrite": "--overwrite",
    "repair": "--no-repair",
    "to": "--to",
    "int8": "--int8",
    "budgets": "--budgets",
    # Amounts of a `kheads.Budget`, which the command line calls otherwise.
    "params": "--smaller",
    "ms": "--max-ms",
}
# What pydantic, which typer reads numbers with, finds wrong, and what is wanted instead.
NUMBERS = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}
TABLES = ("method_options", "data", "constraints")  # of which --set names the fields
PHRASES = {
    "pass overwrite=True": "give --overwrite",
    "pass resume=True": "give --resume",
    "pass repair=False": "give --no-repair",
    "`kheads.discover(model)`": "`kheads heads MODEL`",
    "a folder that `kheads.save` wrote": "a folder that `kheads prune` wrote",
    "a kheads.Constraints": "constraints",
    "pass `verify=False` to load it as it is": "load it as it is in Python: kheads.load(folder, verify=False)",
    "pass a batch as `inputs` to `kheads.export`": "export it in Python: kheads.export(folder, out, inputs=batch)",
}


def in_words_of_the_command_line(sentence: str) -> str:
    """Turns names of fields into flags, or into --set where there is none, and calls into commands."""
    for said, better in PHRASES.items():
        sentence = sentence.replace(said, better)
    sentence = re.sub(r"pass metric='(\w+)'", r"give --set metric=\1", sentence)
    sentence = re.sub(r"columns=\{([^}]*)\}", lambda found: _columns(found[1]), sentence)
    sentence = re.sub(r"`(params|flops)` (0\.\d+)", _share, sentence)
    sentence = re.sub(r"""`?\b(parts|unit|to)=["'](\w+)["']`?""", r"`--\1 \2`", sentence)
    sentence = re.sub(r"`at=\((\d+), (\d+)\)`", r"`--at \1x\2`", sentence)
    flags = _flags()
    return re.sub(r"`([a-z_][a-z0-9_]*)`", lambda found: f"`{flags.get(found[1], found[1])}`", sentence)


def misread(error: Any) -> str:
    """What to say of a flag whose value is not the number it has to be; empty for any other wrong usage."""
    cause: Any = error.__cause__
    found: dict[str, Any] = cause.errors()[0] if hasattr(cause, "errors") else {}
    wanted = NUMBERS.get(found.get("type", ""))
    if wanted is None:
        return ""
    return f"`{error.param.opts[0]}` must be {wanted.format(**found.get('ctx', {}))}; got {found['input']!r}."


def _share(found: re.Match[str]) -> str:
    """`params` 0.3, which is what stays, as `--smaller` 70%, which is what goes."""
    share = float(found[2]) if found[1] == "flops" else 1 - float(found[2])
    return f"`{found[1]}` {100 * share:.4g}%"


def _columns(text: str) -> str:
    """'label': 'topic' as --column label=topic."""
    return " ".join(f"--column {role}={name}" for role, name in re.findall(r"'(\w+)': '([^']*)'", text))


def _flags() -> Mapping[str, str]:
    fields = [*options_of(Job), *options_of(Constraints)]
    front = {name: f"--{name.replace('_', '-')}" for name in fields if name in FRONT}
    return {**{name: f"--set {name}=..." for name in fields if name not in TABLES}, **front, **FLAGS}
