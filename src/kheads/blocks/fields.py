"""What the field of a record may hold: its type and its range, both in its annotation, which is the only declaration.

`check_fields` holds a record to it when it is made, whoever makes it; options, help and the reference read the same.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
PLURALS = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts"}
LARGEST = 2**53  # beyond it, neither JSON nor a float holds every whole number


@dataclass(frozen=True)
class Range:
    """Which numbers a field may hold; no field may hold one that is not finite.

    Attributes:
        least: the smallest one.
        most: the largest one.
        above: all must be larger.
        below: all must be smaller.
        also: one outside that is allowed, too.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    also: float | None = None

    def admits(self, value: Any) -> bool:
        """Whether the value is in the range."""
        return value == self.also or (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        begin = f"above {self.above:g}" if self.above is not None else f"from {self.least:g}"
        end = f" to {self.most:.10g}" if self.most is not None else f" to below {self.below:g}" if self.below else ""
        up = " up" if not end and self.above is None else ""
        return begin + end + up + (f", or {self.also:g}" if self.also is not None else "")


@dataclass(frozen=True)
class OneOf:
    """The words that a field may hold."""

    words: tuple[str, ...]

    def admits(self, value: Any) -> bool:
        """Whether it is one of them."""
        return value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(map(repr, self.words))}"


@dataclass(frozen=True)
class Filled:
    """Says that a text may not be empty."""

    def admits(self, value: Any) -> bool:
        """Whether something stands there."""
        return bool(value.strip())

    def __str__(self) -> str:
        return "that is not empty"


Count = Annotated[int, Range(least=1)]
Whole = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]
Part = Annotated[float, Range(above=0, below=1)]  # a share that is neither nothing nor all
Seed = Annotated[int, Range(least=0, most=2**32 - 1)]  # what numpy takes
Text = Annotated[str, Filled()]
# A number of steps: an int is that many, a float that fraction of the training.
Steps = Whole | Annotated[float, Range(least=0, most=1)]


def check_fields(record: Any) -> None:
    """Raises, naming the first one, if a field of a record holds what its annotation does not allow."""
    kind: type = type(record)
    for name, hint in hints_of(kind).items():
        check_value(hint, getattr(record, name), name)


@cache
def hints_of(record: type) -> dict[str, Any]:
    """What each field of a record may hold."""
    try:
        hints = typing.get_type_hints(record, include_extras=True)
    except NameError:  # of a user's own class, in a place that only a type checker knows
        hints = {}
    return {item.name: hints.get(item.name, Any) for item in dataclasses.fields(record)}


def check_value(hint: Any, value: Any, where: str) -> None:
    """Raises if a value is not what a hint allows.

    Args:
        hint: a type, maybe annotated with a range.
        value: what was given.
        where: how the user named it, for the error.
    """
    if not fits(value, hint):
        raise ValueError(f"`{where}` must be {_allowed(hint, value)}; got {_short(value)}.")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what a hint allows: of its type, in its range, and so is everything in it."""
    if value is None:
        return hint is Any or type(None) in members(hint)
    return any(_fits_one(value, member) for member in members(hint))


def members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union; any other hint is its only one."""
    return get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def plain(hint: Any) -> Any:
    """The type without its range."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def described(hint: Any) -> str:
    """What a hint allows, in words."""
    return " or ".join(dict.fromkeys(_described(member) for member in members(hint) if member is not type(None)))


def limits(hint: Any) -> tuple[Any, ...]:
    """The ranges and words that the members of a hint are limited to."""
    return tuple(limit for member in members(hint) for limit in _limits(member))


def _allowed(hint: Any, value: Any) -> str:
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"at most {LARGEST}"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    return described(hint) + (", or none" if type(None) in members(hint) else "")


def _short(value: Any) -> str:
    """As Python writes it, cut where it gets long; a number of many digits cannot even be written."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of many digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _fits_one(value: Any, member: Any) -> bool:
    kind, inside = get_origin(plain(member)) or plain(member), get_args(plain(member))
    if _is(kind, Sequence) and hasattr(value, "tolist"):  # arrays and tensors are lists of numbers
        value = value.tolist()
    if kind is float:
        right = _is_finite(value)
    elif kind is int:
        right = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    elif kind is Any or not isinstance(kind, type):
        return True
    else:
        right = isinstance(value, kind) and not (kind is not str and isinstance(value, str) and _is(kind, Sequence))
    return right and all(limit.admits(value) for limit in _limits(member)) and _inside_fits(value, inside)


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= LARGEST


def _inside_fits(value: Any, inside: tuple[Any, ...]) -> bool:
    if isinstance(value, Mapping) and len(inside) == 2:
        return all(fits(key, inside[0]) and fits(inner, inside[1]) for key, inner in value.items())
    if isinstance(value, Sequence) and len(inside) == 1:
        return all(fits(inner, inside[0]) for inner in value)
    return True


def _limits(member: Any) -> tuple[Any, ...]:
    return tuple(getattr(member, "__metadata__", ()))


def _described(member: Any, words: Mapping[Any, str] = WORDS) -> str:
    hint, inside = plain(member), get_args(plain(member))
    kind, limited = get_origin(hint) or hint, " ".join(map(str, _limits(member)))
    if isinstance(next(iter(_limits(member)), None), OneOf):
        return limited
    if kind in words:
        return f"{words[kind]} {limited}".strip()
    many, last = words is PLURALS, inside[-1:] if inside and inside[-1] is not Any else ()
    what = "table" if _is(kind, Mapping) else "list" if _is(kind, Sequence) else ""
    if not what:
        return str(hint)
    of = f" of {_described(last[0], PLURALS)}" if last else ""
    return f"{what}s{of}" if many else f"a {what}{of}"


def _is(kind: Any, wanted: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, wanted)
