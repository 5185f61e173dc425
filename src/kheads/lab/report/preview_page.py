"""The page of a preview: quality and speed against size, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from kheads.lab.preview.advice import Advice
from kheads.lab.preview.amounts import WORDINGS
from kheads.lab.preview.found import Point, Preview
from kheads.lab.preview.judged import quality_of
from kheads.lab.preview.table import columns, limits, rows, timing
from kheads.lab.report.contents import Page, Section
from kheads.lab.report.drawing import Axis, Figure, Panel, Series, Table, count_axis, log_axis
from kheads.lab.report.pooling import scaled
from kheads.lab.report.quality import K_AXIS
from kheads.lab.report.setting import machines
from kheads.lab.report.style import ACCENT, MUTED, SECOND, UNPRUNED, metric_name, scale
from kheads.methods.look import Look
from kheads.training import recording
from kheads.training.progress import clock_time

PARTS = {
    "heads": Look("Heads", colour=SECOND),
    "ffn": Look("Neurons", colour=MUTED),
    "all": Look("Both", colour=ACCENT),
}
DRAWN = {"cut": ("circle-open", "dot"), "repaired": ("circle", "solid"), "limit": ("", "dot")}  # marker and dash
SPEED = Axis("Speed-up (×)")
FAR = 2  # times the fastest; a limit beyond it would flatten all that is below

Place = Callable[[Point], float]


def preview_page(preview: Preview, advice: Advice, command: str) -> Page:
    """Everything that a preview has to show.

    Args:
        preview: what each budget gives.
        advice: which budget to take.
        command: what makes the smaller model.
    """
    name = PurePath(preview.model).name
    lead = f"{name} ({_blocks(preview)}), {quality_of(preview)}, on {machines([{'machine': recording.machine()}])}."
    sections = [
        Section("quality", "Quality", [_quality(preview), _table(preview)]),
        Section("speed", "Speed", [_speed_up(preview), _against_speed(preview)] if preview.timing else []),
    ]
    return Page(f"Preview of {name}", lead, [advice.why, f"Next: {command}"], _facts(preview), sections)


def _quality(preview: Preview) -> Figure:
    axis, place = _left(preview)
    lines = [_judged(preview, parts, stage, place) for parts in preview.parts for stage in ("cut", "repaired")]
    caption = (
        f"{metric_name(preview.metric)} on {preview.evaluation} against {_size(preview)}: blocks are chosen, cut and "
        "repaired, and nothing is trained. Dashed line: the unpruned model. Training on usually gives back more."
    )
    return Figure("quality", f"Quality against {_size(preview)}", [_panel(preview, axis, lines)], caption)


def _against_speed(preview: Preview) -> Figure:
    lines = [_judged(preview, parts, "repaired", _speed) for parts in preview.parts]
    caption = f"{limits(preview)} {timing(preview)}"
    return Figure("quality-speed", "Quality against speed", [_panel(preview, SPEED, lines)], caption)


def _speed_up(preview: Preview) -> Figure:
    """How fast each model is, and limits that are not far above."""
    axis, place = _left(preview)
    lines = [line for parts in preview.parts if (line := _speeds(preview, parts, place)).x]
    ends = _ends(axis, lines)
    found = {limit.parts: limit.speedup.ratio for limit in preview.limits if limit.speedup}
    most = FAR * max(_speed(point) for point in preview.points)
    levels = [Series(_look(parts, "limit"), ends, [ratio] * 2) for parts, ratio in found.items() if ratio <= most]
    panel = Panel("", axis, SPEED, [*lines, *levels, Series(UNPRUNED, ends, [1.0, 1.0])])
    caption = f"{limits(preview)} {timing(preview)} Bars: 95 % intervals."
    return Figure("speed", f"Speed-up against {_size(preview)}", [panel], caption)


def _size(preview: Preview) -> str:
    return "the heads kept" if preview.kind == "heads" else "the parameters kept"


def _left(preview: Preview) -> tuple[Axis, Place]:
    """The axis of what is left of the model, and where a point lies on it."""
    if preview.kind == "heads":
        axis = count_axis(K_AXIS, [point.heads for point in preview.points], preview.heads)
        return axis, lambda point: point.heads
    return Axis("Parameters kept (%)"), lambda point: 100 * point.parameters / preview.parameters


def _speed(point: Point) -> float:
    return point.speedup.ratio if point.speedup else 1.0


def _judged(preview: Preview, parts: str, stage: str, place: Place) -> Series:
    """Quality right after the cut, or after the repair."""
    points = _points(preview, parts, place)
    found = [preview.quality(getattr(point, stage)) for point in points]
    values = [scaled(value, scale(preview.metric)) for value in found]
    return Series(_look(parts, stage), list(map(place, points)), values, notes=_notes(points))


def _speeds(preview: Preview, parts: str, place: Place) -> Series:
    """Speed-ups with their intervals."""
    points = _points(preview, parts, place)
    found = [point.speedup for point in points if point.speedup]
    ends = [speed.low for speed in found], [speed.high for speed in found]
    return Series(PARTS[parts], list(map(place, points)), list(map(_speed, points)), *ends, notes=_notes(points))


def _points(preview: Preview, parts: str, place: Place) -> list[Point]:
    return sorted((point for point in preview.points if point.parts == parts), key=place)


def _notes(points: Iterable[Point]) -> list[str]:
    return [str(point.budget) for point in points]


def _look(parts: str, stage: str) -> Look:
    marker, dash = DRAWN[stage]
    return replace(PARTS[parts], label=f"{PARTS[parts].label}, {stage}", marker=marker, dash=dash)


def _panel(preview: Preview, axis: Axis, lines: Sequence[Series]) -> Panel:
    """Quality, and the line of the unpruned model."""
    whole = scaled(preview.quality(preview.unpruned), scale(preview.metric))
    drawn = [line for line in lines if line.x]
    drawn.append(Series(UNPRUNED, _ends(axis, drawn), [whole, whole]))
    name = metric_name(preview.metric)
    values = [value for line in drawn for value in line.y if value is not None]
    return Panel("", axis, log_axis(name, values) if preview.lower_is_better and values else Axis(name), drawn)


def _ends(axis: Axis, lines: Sequence[Series]) -> tuple[float, float]:
    """From where to where a level line goes."""
    places = [x for line in lines for x in line.x]
    return axis.span or (min(places), max(places))


def _table(preview: Preview) -> Table:
    names = [name[0].upper() + name[1:] for name in columns(preview, digits=True)]
    caption = f"{quality_of(preview)}. {limits(preview)} {timing(preview)}"
    title = f"Every {WORDINGS[preview.kind].noun}"
    return Table("preview", title, names, rows(preview, digits=True), f"{caption[0].upper()}{caption[1:]}")


def _blocks(preview: Preview) -> str:
    neurons = "" if preview.neurons is None else f", {preview.neurons:,} neurons"
    return f"{preview.heads} heads{neurons}"


def _facts(preview: Preview) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {version}" for name, version in recording.versions().items())
    found = [
        ("Model", f"{preview.model}, {_blocks(preview)}, {preview.parameters:,} parameters"),
        ("Method", preview.method),
        ("Evaluated", quality_of(preview)),
        ("Speed", timing(preview)),
        ("Duration", clock_time(preview.seconds)),
        ("Versions", versions),
        ("Machine", str(recording.machine()["platform"])),
        *(("Remark", remark) for remark in preview.remarks),
    ]
    return [(name, value) for name, value in found if value]
