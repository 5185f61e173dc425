"""Numbers of several runs taken together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kheads.lab.report.drawing import Series
from kheads.lab.report.style import Look
from kheads.measuring.statistics import Interval, mean_interval

At = TypeVar("At", int, float)  # K or lambda

# Quality by K and seed.
Qualities = Mapping[tuple[int, int], float]


def by_first(values: Mapping[tuple[At, int], float]) -> dict[At, Interval]:
    """The mean over seeds for every K (or lambda), in rising order."""
    firsts = sorted({first for first, _ in values})
    return {first: mean_interval([value for (one, _), value in values.items() if one == first]) for first in firsts}


def curve(look: Look, values: Mapping[tuple[At, int], float], factor: float = 1.0) -> Series:
    """Means over seeds as a line with interval bars."""
    means = by_first(values)
    notes = [f"{interval.count} seed{'s'[: interval.count != 1]}" for interval in means.values()]
    return Series(
        look,
        list(means),
        [factor * interval.mean for interval in means.values()],
        [scaled(interval.low, factor) for interval in means.values()],
        [scaled(interval.high, factor) for interval in means.values()],
        notes=notes,
    )


def scaled(value: float, factor: float = 1.0) -> float | None:
    """A number times a factor; None where there is none."""
    return factor * value if math.isfinite(value) else None


def pairs(
    a: Qualities, b: Qualities, where: Callable[[int], bool] = lambda k: True
) -> tuple[list[float], list[float], list[int]]:
    """Both numbers wherever both exist at the same K and seed, and the Ks."""
    places = sorted(place for place in a.keys() & b.keys() if where(place[0]))
    return [a[place] for place in places], [b[place] for place in places], [k for k, _ in places]


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
