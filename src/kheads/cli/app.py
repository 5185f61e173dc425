"""The application: how a command starts and how it ends, and the options several commands share.

A command's file imports what it works with when it runs, so that help and a wrong option are answered at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from kheads import __version__
from kheads.cli.wording import in_words_of_the_command_line, misread
from kheads.storage.disk import explain

UsageError: Any = typer.BadParameter.__base__  # typer carries click's class, but does not export it

INTERRUPTED = 130
EXPECTED = (ValueError, TypeError)
ENDING = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
GO_ON = "Run the same command again, `kheads prune` with --resume, to go on from the last checkpoint."

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Make a Transformer smaller and faster by an amount you name.",
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
    """Make a Transformer smaller and faster by an amount you name."""


def main() -> None:
    """Runs the command; bad input ends in one sentence and exit code 2, Ctrl-C and the like in how to go on."""
    code = 0
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its notes on loading are not for users of a command
    with stopped_by_signals() as received:
        try:
            code = app(standalone_mode=False)
        except UsageError as error:
            _fail(misread(error) or error.format_message())
        except (typer.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except BrokenPipeError:
            _leave_quietly()
        except OSError as error:
            _fail(in_words_of_the_command_line(explain(error)))
        except Exception as error:
            if not isinstance(error, EXPECTED) and not type(error).__module__.startswith("kheads."):
                raise
            _fail(in_words_of_the_command_line(str(error)))
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        number = received[0] if received else signal.SIGINT
        _fail(f"{_ended(number)} {GO_ON}", 128 + number)
    _leave_group()
    sys.exit(code or 0)


def _leave_group() -> None:
    """Ends what processes under torchrun spoke through: its threads abort a process that ends before them."""
    if "torch" in sys.modules and sys.modules["torch"].distributed.is_initialized():
        sys.modules["torch"].distributed.destroy_process_group()


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """While it lasts, a request to end works like Ctrl-C; gives the list of those that came.

    A signal that is ignored, as nohup ignores the end of a terminal, stays ignored.
    """
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    before = {name: signal.getsignal(name) for name in ENDING} if here else {}
    for name, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(name, stop)
    try:
        yield received
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _ended(number: int) -> str:
    return "Interrupted." if number == signal.SIGINT else f"Ended by {signal.Signals(number).name}."


def _leave_quietly() -> NoReturn:
    """Whoever read the output has left, as `head` does; nothing more can be said there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    print(f"kheads: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)
