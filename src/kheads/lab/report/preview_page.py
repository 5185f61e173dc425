"""The page of a preview: quality and speed against K, before anything is trained."""

from __future__ import annotations

from pathlib import PurePath

from kheads.lab.preview import Metrics, Preview
from kheads.lab.preview_words import LIMIT, Advice, columns, quality_of, rows, timing
from kheads.lab.report.drawing import Axis, Figure, Panel, Series, Table, count_axis, log_axis
from kheads.lab.report.page import Page, Section
from kheads.lab.report.pooling import scaled
from kheads.lab.report.quality import K_AXIS
from kheads.lab.report.setting import machines
from kheads.lab.report.style import ACCENT, MUTED, SECOND, UNPRUNED, metric_name, scale
from kheads.methods.look import Look
from kheads.training import recording
from kheads.training.progress import clock_time

REPAIRED = Look("Repaired", colour=ACCENT)
CUT = Look("Right after the cut", marker="circle-open", dash="dot", colour=SECOND)
SPEED = Look("Speed-up", colour=ACCENT)
NO_ATTENTION = Look("No attention at all", marker="", dash="dot", colour=MUTED)


def preview_page(preview: Preview, advice: Advice, command: str) -> Page:
    """Everything that a preview has to show.

    Args:
        preview: what each K gives.
        advice: which K to take.
        command: what makes the smaller model.
    """
    name = PurePath(preview.model).name
    lead = f"{name} ({preview.heads} heads), {quality_of(preview)}, on {machines([{'machine': recording.machine()}])}."
    sections = [
        Section("quality", "Quality", [_quality(preview), _table(preview)]),
        Section("speed", "Speed", _speed(preview)),
    ]
    return Page(f"Preview of {name}", lead, [advice.why, f"Next: {command}"], _facts(preview), sections)


def _quality(preview: Preview) -> Figure:
    axis, ends = _ks(preview)
    lines = [
        _line(preview, CUT, [point.cut for point in preview.points]),
        _line(preview, REPAIRED, [point.repaired for point in preview.points]),
        Series(UNPRUNED, ends, [scaled(preview.quality(preview.unpruned), scale(preview.metric))] * 2),
    ]
    name = metric_name(preview.metric)
    values = [value for line in lines for value in line.y if value is not None]
    y = log_axis(name, values) if preview.lower_is_better and values else Axis(name)
    caption = (
        f"{name} on {preview.evaluation} against the number of heads kept: heads are chosen, cut and repaired, and "
        "nothing is trained. Dashed line: the unpruned model. Training on usually gives back more."
    )
    return Figure("quality", "Quality against K", [Panel("", axis, y, lines)], caption)


def _line(preview: Preview, look: Look, metrics: list[Metrics]) -> Series:
    return Series(
        look,
        [point.k for point in preview.points],
        [scaled(preview.quality(found), scale(preview.metric)) for found in metrics],
    )


def _table(preview: Preview) -> Table:
    names = [name.capitalize() if name.islower() else name for name in columns(preview)]
    caption = f"{quality_of(preview)}. {LIMIT} {timing(preview)}"
    return Table("preview", "Every K", names, rows(preview, digits=True), f"{caption[0].upper()}{caption[1:]}")


def _speed(preview: Preview) -> list[Figure]:
    """How fast each K is, and the limit; nothing where that was not measured."""
    if preview.limit is None:
        return []
    axis, ends = _ks(preview)
    found = {point.k: point.speedup for point in preview.points if point.speedup}
    speeds = list(found.values())
    lows, highs = [speed.low for speed in speeds], [speed.high for speed in speeds]
    lines = [
        Series(SPEED, list(found), [speed.ratio for speed in speeds], lows, highs),
        Series(NO_ATTENTION, ends, [preview.limit.ratio] * 2),
        Series(UNPRUNED, ends, [1.0, 1.0]),
    ]
    panel = Panel("", axis, Axis("Speed-up (×)"), lines)
    return [Figure("speed", "Speed-up against K", [panel], f"{LIMIT} {timing(preview)} Bars: 95 % intervals.")]


def _ks(preview: Preview) -> tuple[Axis, tuple[float, float]]:
    """The axis of K, and its ends."""
    axis = count_axis(K_AXIS, [point.k for point in preview.points], preview.heads)
    return axis, axis.span or (0.0, float(preview.heads))


def _facts(preview: Preview) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {version}" for name, version in recording.versions().items())
    found = [
        ("Model", f"{preview.model}, {preview.heads} heads, {preview.parameters:,} parameters"),
        ("Method", preview.method),
        ("Evaluated", quality_of(preview)),
        ("Speed", timing(preview)),
        ("Duration", clock_time(preview.seconds)),
        ("Versions", versions),
        ("Machine", str(recording.machine()["platform"])),
        *(("Remark", remark) for remark in preview.remarks),
    ]
    return [(name, value) for name, value in found if value]
