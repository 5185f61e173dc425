"""What a preview says: a table of every K, which K to take, and how speed was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kheads.lab.preview import Judged, Point, Preview
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
    named = f"at most {points_told(preview, limit)} worse than the unpruned model by repair alone"
    good = [point for point in preview.points if preview.worse(point) <= limit + ROUNDING]
    if good:
        start = "A suggestion: the" if at_most is None else "The"
        why = f"{start} smallest K here that is {named}: {_told(preview, good[-1])}.{_careful(preview, good)}"
        return Advice(good[-1].k, True, f"{why} {TRAINING_ON}")
    nearest = min(preview.points, key=lambda point: or_worst(preview.worse(point)))
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
        (
            f"{preview.heads} (all)",
            "100 %",
            size_told(preview.parameters, preview.parameters, digits),
            NOTHING,
            whole,
            NOTHING,
            speed,
        ),
        *(_row(preview, point, digits) for point in preview.points),
        (
            "0 (limit)",
            "0 %",
            size_told(preview.parameters, preview.least, digits),
            *[NOTHING] * 3,
            speed_told(preview.limit, digits),
        ),
    ]


def timing(preview: Preview) -> str:
    """How speed was measured; nothing where it was not."""
    return timing_told(preview.timing, [point.speedup for point in preview.points])


def timing_told(how: Mapping[str, Any] | None, speeds: Sequence[Ratio | None]) -> str:
    """How speed was measured; nothing where it was not.

    Args:
        how: batch, length, repeats, threads and device.
        speeds: what was found.
    """
    if how is None:
        return ""
    batch, length, threads = (how[name] for name in ("batch", "length", "threads"))
    shape = f"batches of {batch}" + (f" x {length} tokens" if length > 1 else "")
    rounds = f"{how['repeats']} rounds, {threads} thread{'s'[: threads != 1]}, {how['device']}"
    undecided = any(speed and speed.undecided for speed in speeds)
    doubt = " A question mark: the 95 % interval includes 1, and no difference was measured." if undecided else ""
    return f"Speed-up: median of paired ratios; {shape}, {rounds}.{doubt}"


def quality_of(preview: Judged) -> str:
    """The metric, and what it was measured on."""
    return f"{preview.metric} on {preview.evaluation} ({preview.examples:,} examples)"


def _row(preview: Preview, point: Point, digits: bool) -> tuple[str, ...]:
    return (
        str(point.k),
        f"{100 * point.k / preview.heads:.0f} %",
        size_told(preview.parameters, point.parameters, digits),
        written(preview.metric, preview.quality(point.cut)),
        written(preview.metric, preview.quality(point.repaired)),
        f"{rounded(preview.worse(point)):.2f}",
        speed_told(point.speedup, digits),
    )


def size_told(whole: int, parameters: int, digits: bool) -> str:
    """How many there are, and how many fewer than in the whole model."""
    count = f"{parameters:,}" if digits else short(parameters)
    saved = 100 * (1 - parameters / whole)
    return count if parameters == whole else f"{count} (-{saved:.{int(digits)}f} %)"


def short(count: int) -> str:
    """21,800,000 -> 21.8M."""
    sizes = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
    return next((f"{count / unit:.1f}{name}" for unit, name in sizes if count >= unit), str(count))


def speed_told(ratio: Ratio | None, digits: bool) -> str:
    """How many times as fast, with a question mark where that may be chance."""
    if ratio is None:
        return NOTHING
    interval = f" ({ratio.low:.2f} to {ratio.high:.2f})" if digits else ""
    return f"{ratio.ratio:.2f}x{interval}{' ?' if ratio.undecided else ''}"


def points_told(preview: Judged, limit: float) -> str:
    """Such as: 1 point; 2 % where lower is better."""
    return f"{limit:g} %" if preview.lower_is_better else f"{limit:g} point{'s'[: limit != 1]}"


def _told(preview: Preview, point: Point) -> str:
    """Such as: K = 24, accuracy 88.2 %, 0.80 points below."""
    value = written(preview.metric, preview.quality(point.repaired))
    return f"K = {point.k}, {preview.metric} {value}, {below_told(preview, preview.worse(point))}"


def below_told(judged: Judged, worse: float) -> str:
    """Such as: 0.80 points below."""
    words = ("% worse", "% better") if judged.lower_is_better else ("points below", "points above")
    return f"{abs(rounded(worse)):.2f} {words[rounded(worse) < 0]}"


def rounded(value: float) -> float:
    """To two digits."""
    return round(value, 2) + 0.0  # there is no -0.00


def or_worst(value: float) -> float:
    """A number, or the worst there is."""
    return value if math.isfinite(value) else math.inf
