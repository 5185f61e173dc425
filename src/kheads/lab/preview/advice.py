"""Which budget to take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kheads.lab.preview.amounts import WORDINGS, in_short, with_parts
from kheads.lab.preview.found import Point, Preview
from kheads.lab.preview.judged import below_told, points_told, value_told

SUGGESTED = 1.0  # points, or percent, where nobody asked for a limit
ROUNDING = 1e-9
TRAINING_ON = "Training on, as the command below does, usually gives back more."


@dataclass(frozen=True)
class Advice:
    """Which budget to take.

    Attributes:
        point: the smallest that holds the limit, or the nearest to it.
        holds: whether it holds the limit.
        why: the same in words.
    """

    point: Point
    holds: bool
    why: str


def advise(preview: Preview, at_most: float | None = None) -> Advice:
    """The smallest model that is hardly worse than the unpruned one by repair alone.

    Args:
        preview: what each budget gives.
        at_most: how much worse it may be, in points, or in percent where lower is better; 1 is suggested.
    """
    limit = SUGGESTED if at_most is None else at_most
    noun = WORDINGS[preview.kind].noun
    told = f"{noun} here that is at most {points_told(preview, limit)} worse than the unpruned model by repair alone"
    good = [point for point in preview.points if preview.worse(point) <= limit + ROUNDING]
    if good:
        start = "A suggestion: the" if at_most is None else "The"
        best = max(good, key=lambda point: (preview.budgets.index(point.budget), -preview.worse(point)))
        why = f"{start} smallest {told}: {_told(preview, best)}.{_careful(preview, best, good)}"
        return Advice(best, True, f"{why} {TRAINING_ON}")
    nearest = min(preview.points, key=lambda point: _or_worst(preview.worse(point)))
    told = told.replace("that is", "is")
    return Advice(nearest, False, f"No {told}; the nearest is {_told(preview, nearest)}. {TRAINING_ON}")


def _careful(preview: Preview, best: Point, good: Sequence[Point]) -> str:
    """What to say of larger models of the same parts that are worse than the smallest good one."""
    before = preview.budgets[: preview.budgets.index(best.budget)]
    larger = [preview.at(budget, best.parts) for budget in before]
    unsteady = [in_short(point.budget) for point in larger if point is not None and point not in good]
    start = "K = " if preview.kind == "heads" else ""
    return f" Careful: larger ones that are not are {start}{', '.join(unsteady)}." if unsteady else ""


def _told(preview: Preview, point: Point) -> str:
    """Such as: 20 % smaller (heads and neurons), accuracy 88.2 %, 0.80 points below."""
    value, below = value_told(preview, point.repaired), below_told(preview, preview.worse(point))
    return f"{with_parts(point.budget, point.parts)}, {preview.metric} {value}, {below}"


def _or_worst(value: float) -> float:
    """A number, or the worst there is."""
    return value if math.isfinite(value) else math.inf
