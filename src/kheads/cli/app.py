"""The application: how a command starts and how it ends, and the options several commands share.

A command's file imports what it works with when it runs, so that help and a wrong option are answered at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from kheads import __version__
from kheads.cli.wording import in_words_of_the_command_line

UsageError: Any = typer.BadParameter.__base__  # typer carries click's class, but does not export it

INTERRUPTED = 130
EXPECTED = (ValueError, TypeError, FileExistsError, FileNotFoundError)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Make a Transformer smaller and faster by an amount you name: keep exactly K attention heads.",
    rich_markup_mode="markdown",
)

ModelArgument = Annotated[
    str,
    typer.Argument(help="A folder, a hub name, minilm (embedded), or a size of translator: tiny, small, iwslt."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]
UnitOption = Annotated[
    str, typer.Option(help="What counts as a head where query heads share keys and values: group or query.")
]


def _version(asked: bool) -> None:
    if asked:
        print(f"kheads {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Make a Transformer smaller and faster by an amount you name: keep exactly K attention heads."""


def main() -> None:
    """Runs the command; bad input ends in one sentence and exit code 2, Ctrl-C in how to go on."""
    code = 0
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its notes on loading are not for users of a command
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        _fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        if not isinstance(error, EXPECTED) and not type(error).__module__.startswith("kheads."):
            raise
        _fail(in_words_of_the_command_line(str(error)))
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        _fail(
            "Interrupted. Run the same command again, `kheads prune` with --resume, to go on from the last checkpoint.",
            code,
        )
    sys.exit(code or 0)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    print(f"kheads: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)
