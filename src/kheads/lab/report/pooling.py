"""Numbers of several runs taken together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kheads.lab.report.drawing import Series
from kheads.measuring.statistics import ENOUGH, Interval, mean_interval
from kheads.methods.look import Look

At = TypeVar("At", int, float)  # K, or the weight of a penalty

# Quality by K and seed.
Qualities = Mapping[tuple[int, int], float]


def by_first(values: Mapping[tuple[At, int], float]) -> dict[At, Interval]:
    """The mean over seeds for every K (or weight), in rising order."""
    firsts = sorted({first for first, _ in values})
    return {first: mean_interval([value for (one, _), value in values.items() if one == first]) for first in firsts}


def curve(look: Look, values: Mapping[tuple[At, int], float], factor: float = 1.0) -> Series:
    """Means over seeds as a line with bars."""
    means = by_first(values)
    return Series(
        look,
        list(means),
        [factor * interval.mean for interval in means.values()],
        [scaled(interval.low, factor) for interval in means.values()],
        [scaled(interval.high, factor) for interval in means.values()],
        notes=[seeds_told(interval) for interval in means.values()],
    )


def count_of(count: int, word: str) -> str:
    """Such as 1 seed, or 3 seeds."""
    return f"{count} {word}{'s'[: count != 1]}"


def listed(words: Sequence[object]) -> str:
    """Such as 1, 2 and 3."""
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def seeds_told(interval: Interval) -> str:
    """How many seeds are behind a mean; two of them say that their bar is a range."""
    return count_of(interval.count, "seed") + (", in brackets their range" if interval.is_range else "")


def bars_told(counts: Iterable[int]) -> str:
    """What the bars of means over so many seeds each are, for a caption."""
    several = {count for count in counts if count > 1}
    kinds = ["the range of the two seeds"] if 2 in several else []
    if any(count > 2 for count in several):
        kinds.append("a 95 % bootstrap interval over seeds")
    if not kinds:
        return "One seed each, so there are no bars."
    few = ", narrower than it should be with fewer than six seeds" if several & set(range(3, ENOUGH)) else ""
    return f"Bars: {', or '.join(kinds)}{few}."


def scaled(value: float, factor: float = 1.0) -> float | None:
    """A number times a factor; None where there is none."""
    return factor * value if math.isfinite(value) else None


def differences(a: Qualities, b: Qualities, where: Callable[[int], bool]) -> dict[tuple[int, int], float]:
    """What a has more than b, wherever both exist at the same K and seed."""
    return {place: a[place] - b[place] for place in sorted(a.keys() & b.keys()) if where(place[0])}


def band(look: Look, x: Sequence[float], rows: Sequence[Sequence[float]], second: bool = False) -> Series:
    """The mean of several lines over the same x, with the range of the lines around it."""
    columns = list(zip(*rows, strict=True))
    several = len(rows) > 1
    return Series(
        look,
        x,
        [sum(column) / len(column) for column in columns],
        [min(column) for column in columns] if several else (),
        [max(column) for column in columns] if several else (),
        band=several,
        second=second,
    )
