"""The application: how a command starts and how it ends, and the options several commands share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer
from transformers.utils import logging

from kheads.storage.export.hub import ExportError
from kheads.training.trainer import TrainingStoppedError

UsageError: Any = typer.BadParameter.__base__  # typer carries click's class, but does not export it

INTERRUPTED = 130
EXPECTED = (ValueError, TypeError, FileExistsError, FileNotFoundError, ExportError, TrainingStoppedError)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Keep exactly K attention heads of a Transformer.",
    rich_markup_mode="markdown",
)

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A folder, a hub name, minilm (the embedded model), or a size of translator: tiny, small, iwslt."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]
UnitOption = Annotated[
    str, typer.Option(help="What counts as a head where query heads share keys and values: group or query.")
]
EvalOption = Annotated[
    list[str] | None, typer.Option("--eval", help="Evaluation file (for image a folder), or NAME=FILE; several times.")
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        help="clm (language modelling on text files), image (folders of images), or a GLUE task by name, from the hub.",
        rich_help_panel="Data",
    ),
]
ColumnOption = Annotated[
    list[str] | None, typer.Option(help="Name a column: text=A, text_pair=B or label=C; several times.")
]


def main() -> None:
    """Runs the command; bad input ends in one sentence and exit code 2, Ctrl-C in how to go on."""
    logging.set_verbosity_error()
    try:
        code = app(standalone_mode=False)
    except EXPECTED as error:
        _fail(str(error))
    except UsageError as error:
        _fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        _fail(
            "Interrupted. Run the same command again, `kheads prune` with --resume, to go on from the last checkpoint.",
            code,
        )
    sys.exit(code or 0)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    print(f"kheads: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)


def pairs(given: list[str] | None, default: str) -> dict[str, str]:
    """NAME=VALUE options as a dict; a value without a name gets the default one."""
    found: dict[str, str] = {}
    for text in given or []:
        name, _, value = text.partition("=") if "=" in text else (default, "=", text)
        if name in found:
            raise ValueError(f"The name {name!r} is given twice; give every file a name of its own, as in NAME=FILE.")
        found[name] = value
    return found


# Options about the data that a task has no use for.
FOREIGN_DATA: dict[str, tuple[str, ...]] = {"clm": ("column",), "image": ("column", "max_length")}


def refuse_foreign_data(task: str | None, given: Mapping[str, Any]) -> None:
    """Raises if an option was given that does not belong to the task."""
    for option in FOREIGN_DATA.get(task or "", ()):
        if given[option] is not None:
            raise ValueError(f"`--{option.replace('_', '-')}` does not belong to --task {task}; leave it out.")
