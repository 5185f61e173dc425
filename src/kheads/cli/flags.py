"""Flags of commands, made from the options that records declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from kheads.lab.options import Option, is_share


def flag(option: Option, panel: str, *names: str, metavar: str | None = None, help: str = "") -> inspect.Parameter:
    """The flag of an option. Its default is None, so that it is known what the user gave; its help says the real one.

    Args:
        option: the field of a record.
        panel: under which heading it stands.
        *names: how it is written; made from its name if not given.
        metavar: what its value looks like; with one, the flag may be given several times.
        help: what to say instead of the record's words.
    """
    said = f"{help or _first_clause(option.help)}{_default(option)}"
    kind = list[str] if metavar else _kind(option)
    details = typer.Option(
        *(names or (f"--{option.name.replace('_', '-')}",)),
        help=said,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=False,
    )
    return _parameter(option.name, kind | None, details)


def extra(name: str, kind: Any, details: Any, default: Any = None) -> inspect.Parameter:
    """A flag that no record declares, because it concerns the command alone."""
    return _parameter(name, kind, details, default)


def command(
    parameters: Sequence[inspect.Parameter], run: Callable[[Mapping[str, Any]], None], name: str, text: str
) -> Callable[..., None]:
    """A function with these parameters, for typer to read.

    Args:
        parameters: its parameters; those without a default come first.
        run: what it does with what was given, by name.
        name: the name of the command.
        text: its help.
    """

    def made(**given: Any) -> None:
        run(given)

    made.__name__, made.__doc__ = name, text
    made.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(made)["__signature__"] = inspect.Signature(list(parameters))
    return made


def pairs(given: Sequence[str] | None, default: str) -> dict[str, str]:
    """NAME=VALUE options as a dict; a value without a name gets the default one."""
    found: dict[str, str] = {}
    for text in given or []:
        name, _, value = text.partition("=") if "=" in text else (default, "=", text)
        if name in found:
            raise ValueError(f"The name {name!r} is given twice; give every file a name of its own, as in NAME=FILE.")
        found[name] = value
    return found


def _parameter(name: str, kind: Any, details: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, details])


def _kind(option: Option) -> Any:
    kinds = [kind for kind in (bool, int, float) if set(option.types) <= {kind, type(None)}]
    return kinds[0] if kinds and not is_share(option) else str  # a share may be written as in 50%


def _first_clause(text: str) -> str:
    """Help is short; the reference has all of it."""
    return f"{text.partition(';')[0].rstrip('.')}."


def _default(option: Option) -> str:
    shown = isinstance(option.default, (int, float, str)) and bool not in option.types and option.default != -1
    return f" [{option.default}]" if shown else ""
