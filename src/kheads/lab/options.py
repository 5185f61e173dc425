"""Options, derived from the records that declare them: a field with its docstring is the only declaration.

The command line, TOML files, records of runs and the reference in the docs all go by what is read here.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True)
class Option:
    """A field of a record.

    Attributes:
        name: the field.
        hint: its type.
        default: its default; None also where it has to be given.
        help: what its docstring says.
    """

    name: str
    hint: Any
    default: Any
    help: str

    @property
    def kind(self) -> str:
        """Its type in words."""
        return " or ".join(dict.fromkeys(_word(part) for part in _alternatives(self.hint)))

    @property
    def optional(self) -> bool:
        """Whether it may be none."""
        return type(None) in _members(self.hint)


def options_of(record: type) -> dict[str, Option]:
    """The options that a record declares, by name; for a method with presets, `preset` is one of them."""
    hints, docs = typing.get_type_hints(record), documented(record)
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
    if str in _members(option.hint):
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    return check(option, value, where)


def check(option: Option, value: Any, where: str) -> Any:
    """The value, if it is of the option's type; a whole number passes for a number where only that is allowed."""
    members = _members(option.hint)
    if value is None and type(None) in members:
        return None
    if isinstance(value, bool) and bool not in members:
        raise ValueError(_wrong(option, value, where))
    if any(_fits(value, member) for member in members):
        return value
    if isinstance(value, int) and float in members:
        return float(value)
    raise ValueError(_wrong(option, value, where))


def suggestion(name: str, known: Iterable[str]) -> str:
    """What the user may have meant, as a sentence to append; nothing where nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def _wrong(option: Option, value: Any, where: str) -> str:
    none = ", or none" if option.optional else ""
    return f"`{where}` must be {option.kind}{none}; got {value!r}."


def _default(item: dataclasses.Field[Any]) -> Any:
    if item.default is not dataclasses.MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else None


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _alternatives(hint: Any) -> list[Any]:
    return [member for member in _members(hint) if member is not type(None)]


def _word(hint: Any) -> str:
    origin = get_origin(hint) or hint
    if origin in WORDS:
        return WORDS[origin]
    return "a table" if _is(origin, Mapping) else "a list" if _is(origin, Sequence) else str(hint)


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint) or hint
    return isinstance(origin, type) and isinstance(value, origin)


def _is(origin: Any, kind: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, kind)
