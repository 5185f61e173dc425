"""What a preview of budgets says: a table of every budget, and which to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kheads.blocks.budget import Budget
from kheads.lab.budget_preview import BudgetPoint, BudgetPreview, Limit, named
from kheads.lab.preview_words import (
    NOTHING,
    ROUNDING,
    SUGGESTED,
    TRAINING_ON,
    below_told,
    or_worst,
    points_told,
    short,
    size_told,
    speed_told,
    timing_told,
)
from kheads.lab.terminal import metric as written

FIRST = {"params": "smaller", "flops": "FLOPs", "speedup": "asked"}  # what the first column shows
ONLY = {"heads": "heads only", "ffn": "neurons only", "all": "heads and neurons"}
BRIEF = {"heads": "heads", "ffn": "neurons", "all": "all"}
WITHOUT = {"heads": "without any head", "ffn": "without any neuron", "all": "without any head or neuron"}


@dataclass(frozen=True)
class BudgetAdvice:
    """Which budget to take.

    Attributes:
        point: the smallest that holds the limit, or the nearest to it.
        holds: whether it holds the limit.
        why: the same in words.
    """

    point: BudgetPoint
    holds: bool
    why: str


def advise(preview: BudgetPreview, at_most: float | None = None) -> BudgetAdvice:
    """The smallest model that is hardly worse than the unpruned one by repair alone.

    Args:
        preview: what each budget gives.
        at_most: how much worse it may be, in points, or in percent where lower is better; 1 is suggested.
    """
    limit = SUGGESTED if at_most is None else at_most
    told = f"at most {points_told(preview, limit)} worse than the unpruned model by repair alone"
    good = [point for point in preview.points if preview.worse(point) <= limit + ROUNDING]
    if good:
        start = "A suggestion: the" if at_most is None else "The"
        best = max(good, key=lambda point: (preview.budgets.index(point.budget), -preview.worse(point)))
        why = f"{start} smallest budget here that is {told}: {_told(preview, best)}.{_careful(preview, best, good)}"
        return BudgetAdvice(best, True, f"{why} {TRAINING_ON}")
    nearest = min(preview.points, key=lambda point: or_worst(preview.worse(point)))
    why = f"No budget here is {told}; the nearest is {_told(preview, nearest)}. {TRAINING_ON}"
    return BudgetAdvice(nearest, False, why)


def _careful(preview: BudgetPreview, best: BudgetPoint, good: Sequence[BudgetPoint]) -> str:
    """What to say of larger models of the same parts that are worse than the smallest good one."""
    before = preview.budgets[: preview.budgets.index(best.budget)]
    larger = [preview.at(budget, best.parts) for budget in before]
    unsteady = [asked(point.budget) for point in larger if point is not None and point not in good]
    return f" Careful: larger ones that are not are {', '.join(unsteady)}." if unsteady else ""


def columns(preview: BudgetPreview, digits: bool = False) -> tuple[str, ...]:
    """The names of the columns of `rows`."""
    each = ("parameters", "cut", "repaired", "worse", "speed-up") if digits else ("size", "repaired", "speed-up")
    names = ONLY if digits else BRIEF
    return (FIRST[preview.budgets[0].name], *(f"{names[parts]}: {name}" for parts in preview.parts for name in each))


def rows(preview: BudgetPreview, digits: bool = False) -> list[tuple[str, ...]]:
    """The unpruned model, every budget, and the limits.

    Args:
        preview: what each budget gives.
        digits: write all numbers there are, where there is room.
    """
    whole = [_size(preview, preview.parameters, digits), *_numbers(preview, None, digits)]
    least = [cell for limit in preview.limits for cell in _limit(preview, limit, digits)]
    return [
        ("unpruned", *whole * len(preview.parts)),
        *(
            (asked(budget), *(cell for parts in preview.parts for cell in _cells(preview, budget, parts, digits)))
            for budget in preview.budgets
        ),
        ("limit", *least),
    ]


def asked(budget: Budget) -> str:
    """A budget in a few letters: what goes of the parameters, what stays of the FLOPs, or how fast."""
    if budget.name == "speedup":
        return f"{budget.amount:g}x"
    return f"{100 * (1 - budget.amount if budget.name == 'params' else budget.amount):.4g} %"


def options(point: BudgetPoint) -> list[str]:
    """The words of `kheads prune` that ask for a point."""
    budget = point.budget
    name = {"params": "--smaller", "flops": "--flops", "speedup": "--speedup"}[budget.name]
    value = asked(budget).replace(" ", "").removesuffix("x")
    at = [] if budget.at is None else ["--at", "x".join(map(str, budget.batch))]
    return [name, value, *([] if point.parts == "all" else ["--parts", point.parts]), *at]


def limits(preview: BudgetPreview) -> str:
    """What the last line of the table is."""
    told = ", and ".join(WITHOUT[parts] for parts in preview.parts)
    what = "limits are" if len(preview.parts) > 1 else "limit is"
    return f"The {what} the model {told}: but for noise, no budget gives more."


def timing(preview: BudgetPreview) -> str:
    """How speed was measured; nothing where it was not."""
    return timing_told(preview.timing, [point.speedup for point in preview.points])


def _cells(preview: BudgetPreview, budget: Budget, parts: str, digits: bool) -> list[str]:
    point = preview.at(budget, parts)
    if point is None:
        return [NOTHING] * (len(_numbers(preview, None, digits)) + 1)
    return [_size(preview, point.parameters, digits), *_numbers(preview, point, digits)]


def _numbers(preview: BudgetPreview, point: BudgetPoint | None, digits: bool) -> list[str]:
    """Quality and speed of a point; of the unpruned model where there is none."""
    if point is None:
        whole = written(preview.metric, preview.quality(preview.unpruned))
        speed = "1x" if preview.timing else NOTHING
        return [NOTHING, whole, NOTHING, speed] if digits else [whole, speed]
    cut, repaired = (written(preview.metric, preview.quality(found)) for found in (point.cut, point.repaired))
    speed = speed_told(point.speedup, digits)
    return [cut, repaired, below_told(preview, preview.worse(point)), speed] if digits else [repaired, speed]


def _limit(preview: BudgetPreview, limit: Limit, digits: bool) -> list[str]:
    empty = [NOTHING] * (3 if digits else 1)
    return [_size(preview, limit.parameters, digits), *empty, speed_told(limit.speedup, digits)]


def _size(preview: BudgetPreview, parameters: int, digits: bool) -> str:
    return size_told(preview.parameters, parameters, True) if digits else short(parameters)


def _told(preview: BudgetPreview, point: BudgetPoint) -> str:
    """Such as: 20 % smaller (heads and neurons), accuracy 88.2 %, 0.80 points below."""
    value = written(preview.metric, preview.quality(point.repaired))
    what = {"params": "smaller", "flops": "of the FLOPs", "speedup": "as fast"}[point.budget.name]
    return (
        f"{asked(point.budget)} {what} ({named(point.parts)}), {preview.metric} {value}, "
        f"{below_told(preview, preview.worse(point))}"
    )
