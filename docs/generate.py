"""Writes the parts of the documentation that the code itself knows; the pages include them by name.

    python docs/generate.py build/docs

Tables of models, methods and options come from the tables and records in `kheads`, the command line from its own help,
figures from the equations. So none of them can fall behind.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

# ------------------------------------------------------------------------------------------------------------- tables


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def models() -> str:
    """Every model type that kheads can prune."""
    from kheads.anatomy import catalogue

    return catalogue.supported()


def refusals() -> str:
    """Every class that is refused, and why."""
    from kheads.anatomy import catalogue

    return catalogue.refused()


def methods() -> str:
    """Every built-in method: its key, class, idea and source."""
    from kheads import METHODS

    rows = [(f"`{key}`", f"`{cls.__name__}`", cls.idea, cls.reference) for key, cls in METHODS.items()]
    return table(("key", "class", "idea", "source"), rows)


# ------------------------------------------------------------------------------------------------------------ options


def options() -> str:
    """The options of a run, of what has to stay, of every method, and of what every task reads."""
    from kheads import METHODS, Constraints
    from kheads.lab.jobs.catalogue import FILES, TASKS
    from kheads.lab.jobs.job import Job

    parts: list[tuple[str, type]] = [("A run", Job), ("What has to stay", Constraints)]
    parts += [(f"Method `{key}`", cls) for key, cls in METHODS.items()]
    parts += [("Labelled files", FILES.data), *((f"Task `{key}`", task.data) for key, task in TASKS.items())]
    return "\n\n".join(f"## {title}\n\n{_option_list(record)}" for title, record in parts)


def _option_list(record: type) -> str:
    """A list of definitions, which reads well on a screen of any width."""
    from kheads.lab.options import options_of

    return "\n\n".join(map(_option_entry, options_of(record).values())) or "It has no options."


def _option_entry(option: Any) -> str:
    """Its name, type and default on one line, and what it means below."""
    default = "" if option.default in (None, {}, ()) else f", `{_value(option.default)}` by default"
    return f"**`{option.name}`** {option.kind}{default}\n:   {option.help}"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.4g}" if isinstance(value, float) else str(value)


# ------------------------------------------------------------------------------------------------------- command line

# What a terminal of 80 columns without colours shows.
PLAIN = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "TERM": "dumb"}


def command_line() -> str:
    """The help of every command, as it prints it."""
    return "\n\n".join(f"## `{' '.join(words)}`\n\n{console('--help', *words[1:])}" for words in commands())


def commands() -> Iterator[tuple[str, ...]]:
    """The application and its commands, those inside a group included."""
    import typer

    from kheads.cli.app import app

    return _walk(typer.main.get_command(app), ("kheads",))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, (*words, name))


def console(option: str, *words: str) -> str:
    """What a command prints, as a block of text."""
    return f"```text\n{printed(*words, option)}\n```"


def printed(*words: str) -> str:
    """Runs a command in this process and returns what it says."""
    from kheads import cli

    said = io.StringIO()
    with (
        mock.patch.dict(os.environ, PLAIN),
        mock.patch.object(sys, "argv", ["kheads", *words]),
        contextlib.redirect_stdout(said),
        contextlib.suppress(SystemExit),
    ):
        cli.main()
    return "\n".join(line.rstrip() for line in said.getvalue().strip("\n").splitlines())


def head_map() -> str:
    """The heads of the embedded model."""
    return f"```console\n$ kheads heads minilm\n{printed('heads', 'minilm')}\n```"


# ---------------------------------------------------------------------------------------------------------------- API

# Public names by use. What is public and stands in no group comes last.
GROUPS: dict[str, tuple[str, ...]] = {
    "Find, gate, choose, remove": (
        "discover",
        "gated",
        "select",
        "remove",
        "ghosts",
        "Site",
        "Kept",
        "Constraints",
        "Budget",
        "Costs",
    ),
    "Repair": ("repair", "Repair", "RepairedSite"),
    "Save, load, export": ("save", "load", "export", "CheckpointError", "ExportError"),
    "Train and prune": ("prune", "Plan", "PruneResult", "GatedTrainer", "GatedSeq2SeqTrainer"),
    "A loop of your own": ("attach", "Pruner"),
    "Methods": ("METHODS", "DSP", "STE", "Voita", "Michel", "Retrain", "Random"),
    "A method of your own": ("Estimated", "Learned", "Method", "Goal", "Evidence", "Moment", "Look"),
    "Measure": ("measure", "Measurement", "price"),
    "Models that kheads does not know": ("adopt", "open_attention", "UnsupportedModelError", "anatomy"),
    "The equations": ("subset",),
}
# Of a module, what a user needs; all that it exports if nothing is said here.
MEMBERS: dict[str, tuple[str, ...]] = {"anatomy": ("LAYOUTS", "Layout")}


def api() -> str:
    """The reference of every public name, for mkdocstrings to fill in."""
    import kheads

    grouped = {title: [name for name in names if name in kheads.__all__] for title, names in GROUPS.items()}
    known = {name for names in grouped.values() for name in names}
    grouped["Further names"] = [name for name in kheads.__all__ if name not in known]
    return "\n\n".join(_group(title, names) for title, names in grouped.items() if names)


def _group(title: str, names: Sequence[str]) -> str:
    return "\n\n".join([f"## {title}", *map(_entry, names)])


def _entry(name: str) -> str:
    import kheads

    thing = getattr(kheads, name)
    if not isinstance(thing, ModuleType) and not callable(thing):
        return f"### `{name}`\n\n{_first_paragraph(thing)}"
    lines = [f"::: {_path(thing)}", "    options:", f"      heading: {name}"]
    if isinstance(thing, ModuleType):
        lines.append(f"      members: [{', '.join(MEMBERS.get(name, thing.__all__))}]")
    return "\n".join(lines)


def _path(thing: Any) -> str:
    """Where it is defined, whatever it is exported as."""
    return thing.__name__ if isinstance(thing, ModuleType) else f"{thing.__module__}.{thing.__qualname__}"


def _first_paragraph(thing: Any) -> str:
    return f"The built-in methods by key: {', '.join(f'`{key}`' for key in thing)}."


# ------------------------------------------------------------------------------------------------------------ writing

PARTS: dict[str, Callable[[], str]] = {
    "models.md": models,
    "refusals.md": refusals,
    "methods.md": methods,
    "options.md": options,
    "command-line.md": command_line,
    "head-map.md": head_map,
    "api.md": api,
}
# Figures, by the function of figures.py that draws each.
DRAWN: dict[str, str] = {
    "relaxations.svg": "relaxations",
    "schedules.svg": "schedules",
    "hard-concretes.svg": "hard_concretes",
}


def write(folder: Path) -> None:
    """Writes every part into a folder."""
    import figures

    folder.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        (folder / name).write_text(f"{part()}\n", encoding="utf-8")
    for name, draw in DRAWN.items():
        (folder / name).write_text(f"{getattr(figures, draw)()}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
