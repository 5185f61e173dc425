"""What a preview says: a table of every K, which K to take, and how speed was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kheads.lab.preview import Point, Preview
from kheads.lab.terminal import metric as written
from kheads.measuring.timing import Ratio

SUGGESTED = 1.0  # points, or percent, where nobody asked for a limit
ROUNDING = 1e-9
NOTHING = "-"
TRAINING_ON = "Training on, as the command below does, usually gives back more."
LIMIT = "The limit is the model without any attention: but for noise, no K gives more."


@dataclass(frozen=True)
class Advice:
    """Which K to take.

    Attributes:
        k: the smallest that holds the limit, or the nearest to it.
        holds: whether it holds the limit.
        why: the same in words.
    """

    k: int
    holds: bool
    why: str


def advise(preview: Preview, at_most: float | None = None) -> Advice:
    """The smallest K that is hardly worse than the unpruned model by repair alone.

    Args:
        preview: what each K gives.
        at_most: how much worse it may be, in points, or in percent where lower is better; 1 is suggested.
    """
    limit = SUGGESTED if at_most is None else at_most
    named = f"at most {_amount(preview, limit)} worse than the unpruned model by repair alone"
    good = [point for point in preview.points if preview.worse(point) <= limit + ROUNDING]
    if good:
        start = "A suggestion: the" if at_most is None else "The"
        why = f"{start} smallest K here that is {named}: {_told(preview, good[-1])}.{_careful(preview, good)}"
        return Advice(good[-1].k, True, f"{why} {TRAINING_ON}")
    nearest = min(preview.points, key=lambda point: _or_worst(preview.worse(point)))
    return Advice(nearest.k, False, f"No K here is {named}; the nearest is {_told(preview, nearest)}. {TRAINING_ON}")


def _careful(preview: Preview, good: list[Point]) -> str:
    """What to say of larger K that are worse than the smallest good one."""
    unsteady = [str(point.k) for point in preview.points if point.k > good[-1].k and point not in good]
    return f" Careful: larger ones that are not are K = {', '.join(unsteady)}." if unsteady else ""


def columns(preview: Preview) -> tuple[str, ...]:
    """The names of the columns of `rows`."""
    worse = "% worse" if preview.lower_is_better else "points below"
    return ("K", "heads", "parameters", "cut", "repaired", worse, "speed-up")


def rows(preview: Preview, digits: bool = False) -> list[tuple[str, ...]]:
    """The unpruned model, every K, and the limit: what is left without any attention.

    Args:
        preview: what each K gives.
        digits: write numbers of parameters in full, and speed with its interval, where there is room.
    """
    whole = written(preview.metric, preview.quality(preview.unpruned))
    speed = "1x" if preview.limit else NOTHING
    return [
        (f"{preview.heads} (all)", "100 %", _size(preview, preview.parameters, digits), NOTHING, whole, NOTHING, speed),
        *(_row(preview, point, digits) for point in preview.points),
        ("0 (limit)", "0 %", _size(preview, preview.least, digits), *[NOTHING] * 3, _speed(preview.limit, digits)),
    ]


def timing(preview: Preview) -> str:
    """How speed was measured; nothing where it was not."""
    if preview.timing is None:
        return ""
    batch, length, threads = (preview.timing[name] for name in ("batch", "length", "threads"))
    shape = f"batches of {batch}" + (f" x {length} tokens" if length > 1 else "")
    how = f"{preview.timing['repeats']} rounds, {threads} thread{'s'[: threads != 1]}, {preview.timing['device']}"
    undecided = any(point.speedup and point.speedup.undecided for point in preview.points)
    doubt = " A question mark: the 95 % interval includes 1, and no difference was measured." if undecided else ""
    return f"Speed-up: median of paired ratios; {shape}, {how}.{doubt}"


def quality_of(preview: Preview) -> str:
    """The metric, and what it was measured on."""
    return f"{preview.metric} on {preview.evaluation} ({preview.examples:,} examples)"


def _row(preview: Preview, point: Point, digits: bool) -> tuple[str, ...]:
    return (
        str(point.k),
        f"{100 * point.k / preview.heads:.0f} %",
        _size(preview, point.parameters, digits),
        written(preview.metric, preview.quality(point.cut)),
        written(preview.metric, preview.quality(point.repaired)),
        f"{_rounded(preview.worse(point)):.2f}",
        _speed(point.speedup, digits),
    )


def _size(preview: Preview, parameters: int, digits: bool) -> str:
    """How many there are, and how many fewer than before."""
    count = f"{parameters:,}" if digits else _short(parameters)
    saved = 100 * (1 - parameters / preview.parameters)
    return count if parameters == preview.parameters else f"{count} (-{saved:.{int(digits)}f} %)"


def _short(count: int) -> str:
    """21,800,000 -> 21.8M."""
    sizes = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
    return next((f"{count / unit:.1f}{name}" for unit, name in sizes if count >= unit), str(count))


def _speed(ratio: Ratio | None, digits: bool) -> str:
    if ratio is None:
        return NOTHING
    interval = f" ({ratio.low:.2f} to {ratio.high:.2f})" if digits else ""
    return f"{ratio.ratio:.2f}x{interval}{' ?' if ratio.undecided else ''}"


def _amount(preview: Preview, limit: float) -> str:
    return f"{limit:g} %" if preview.lower_is_better else f"{limit:g} point{'s'[: limit != 1]}"


def _told(preview: Preview, point: Point) -> str:
    """Such as: K = 24, accuracy 88.2 %, 0.80 points below."""
    worse, value = _rounded(preview.worse(point)), written(preview.metric, preview.quality(point.repaired))
    words = ("% worse", "% better") if preview.lower_is_better else ("points below", "points above")
    return f"K = {point.k}, {preview.metric} {value}, {abs(worse):.2f} {words[worse < 0]}"


def _rounded(value: float) -> float:
    return round(value, 2) + 0.0  # there is no -0.00


def _or_worst(value: float) -> float:
    return value if math.isfinite(value) else math.inf
