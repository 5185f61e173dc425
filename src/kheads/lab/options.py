"""Options, derived from the records that declare them: a field with its docstring is the only declaration.

The command line, TOML files, records of runs and the reference in the docs all go by what is read here.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kheads.blocks.fields import Part, check_value, described, hints_of, members, plain

Record = TypeVar("Record")


@dataclass(frozen=True)
class Option:
    """A field of a record.

    Attributes:
        name: the field.
        hint: its type, with its range.
        default: its default; None also where it has to be given.
        help: what its docstring says.
    """

    name: str
    hint: Any
    default: Any
    help: str

    @property
    def kind(self) -> str:
        """Its type and range in words."""
        return described(self.hint)

    @property
    def optional(self) -> bool:
        """Whether it may be none."""
        return type(None) in members(self.hint)

    @property
    def types(self) -> tuple[Any, ...]:
        """The types that it may have."""
        return tuple(plain(member) for member in members(self.hint))


def options_of(record: type) -> dict[str, Option]:
    """The options that a record declares, by name; for a method with presets, `preset` is one of them."""
    hints, docs = hints_of(record), documented(record)
    found = {
        item.name: Option(item.name, hints[item.name], _default(item), docs.get(item.name, ""))
        for item in dataclasses.fields(record)
    }
    presets = getattr(record, "presets", {})
    if presets:
        text = f"Start from a named set of values: {', '.join(presets)}. By default what suits the run."
        found = {"preset": Option("preset", str | None, None, text), **found}
    return found


def documented(record: type) -> dict[str, str]:
    """What the docstring says of every field, under `Attributes`."""
    _, _, section = inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            name = entry[1]
            found[name] = entry[2]
        elif name and line.startswith("        "):
            found[name] += f" {line.strip()}"
        else:
            break
    return found


def parse(option: Option, text: str, where: str) -> Any:
    """Reads the value of an option from the text of a command line.

    Args:
        option: what is set.
        text: what was given.
        where: how the user named it, for the error.
    """
    if option.optional and text.lower() in ("none", ""):
        return None
    if str in option.types:
        return check(option, text, where)
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text) if float in option.types else None
    try:
        return check(option, float(percent[1]) / 100 if percent else _plain(option, text), where)
    except ValueError:
        if not is_share(option):
            raise
        raise ValueError(f"`{where}` must be {option.kind}, as in 30%; got {text!r}.") from None


def _plain(option: Option, text: str) -> Any:
    """The value that a text stands for, as TOML has it."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.split(",") if option.kind.startswith("a list") else text
    return value


def check(option: Option, value: Any, where: str) -> Any:
    """The value, if it is what the option allows; a whole number passes for a number where only that is allowed."""
    check_value(option.hint, value, where)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and float in option.types and int not in option.types else value


def check_names(given: Iterable[str], known: Mapping[str, Option], where: str) -> None:
    """Refuses a name that is no option, and says what may have been meant."""
    for name in given:
        if name not in known:
            there = f"it has {', '.join(known)}" if known else "it has no options"
            raise ValueError(f"`{name}` does not belong to {where}; {there}.{suggestion(name, known)}")


def build(record: type[Record], given: Mapping[str, Any], where: str) -> Record:
    """Makes a record from a table, whose names and values are checked."""
    known = options_of(record)
    check_names(given, known, where)
    return record(**{name: check(known[name], value, name) for name, value in given.items()})


def is_share(option: Option) -> bool:
    """Whether it may be a share of something."""
    return Part in members(option.hint)


def suggestion(name: str, known: Iterable[str]) -> str:
    """What the user may have meant, as a sentence to append; nothing where nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def _default(item: dataclasses.Field[Any]) -> Any:
    if item.default is not dataclasses.MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else None
