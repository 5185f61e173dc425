"""The page of a preview of budgets: quality against size and against speed, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from kheads.lab.budget_preview import BudgetPoint, BudgetPreview
from kheads.lab.budget_words import BudgetAdvice, columns, limits, rows, timing
from kheads.lab.preview import Metrics
from kheads.lab.preview_words import quality_of
from kheads.lab.report.drawing import Axis, Figure, Panel, Series, Table, log_axis
from kheads.lab.report.page import Page, Section
from kheads.lab.report.pooling import scaled
from kheads.lab.report.setting import machines
from kheads.lab.report.style import ACCENT, MUTED, SECOND, UNPRUNED, metric_name, scale
from kheads.methods.look import Look
from kheads.training import recording
from kheads.training.progress import clock_time

LABELS = {"heads": "Heads", "ffn": "Neurons", "all": "Both"}
COLOURS = {"heads": SECOND, "ffn": MUTED, "all": ACCENT}


def budget_preview_page(preview: BudgetPreview, advice: BudgetAdvice, command: str) -> Page:
    """Everything that a preview of budgets has to show.

    Args:
        preview: what each budget gives.
        advice: which budget to take.
        command: what makes the smaller model.
    """
    name = PurePath(preview.model).name
    lead = f"{name} ({_blocks(preview)}), {quality_of(preview)}, on {machines([{'machine': recording.machine()}])}."
    sections = [
        Section("quality", "Quality", [_against_size(preview), _table(preview)]),
        Section("speed", "Speed", _against_speed(preview)),
    ]
    return Page(f"Preview of {name}", lead, [advice.why, f"Next: {command}"], _facts(preview), sections)


def _against_size(preview: BudgetPreview) -> Figure:
    def kept(point: BudgetPoint) -> float:
        return 100 * point.parameters / preview.parameters

    lines = [_line(preview, parts, stage, kept) for parts in preview.parts for stage in ("cut", "repaired")]
    caption = (
        f"{metric_name(preview.metric)} on {preview.evaluation} against the parameters that are left: blocks are "
        "chosen, cut and repaired, and nothing is trained. Dashed line: the unpruned model. Training on usually gives "
        "back more."
    )
    panel = _panel(preview, lines, "Parameters kept (%)")
    return Figure("quality", "Quality against parameters", [panel], caption)


def _against_speed(preview: BudgetPreview) -> list[Figure]:
    """Quality against measured speed; nothing where that was not measured."""
    if preview.timing is None:
        return []

    def speed(point: BudgetPoint) -> float:
        return point.speedup.ratio if point.speedup else 1.0

    lines = [_line(preview, parts, "repaired", speed) for parts in preview.parts]
    panel = _panel(preview, lines, "Speed-up (×)")
    return [Figure("speed", "Quality against speed", [panel], f"{limits(preview)} {timing(preview)}")]


def _line(preview: BudgetPreview, parts: str, stage: str, place: Callable[[BudgetPoint], float]) -> Series:
    points = sorted((point for point in preview.points if point.parts == parts), key=place)
    label, colour = LABELS[parts], COLOURS[parts]
    look = (
        Look(f"{label}, repaired", colour=colour)
        if stage == "repaired"
        else Look(f"{label}, cut", marker="circle-open", dash="dot", colour=colour)
    )
    found: list[Metrics] = [getattr(point, stage) for point in points]
    values = [scaled(preview.quality(metrics), scale(preview.metric)) for metrics in found]
    return Series(look, [place(point) for point in points], values, notes=[str(point.budget) for point in points])


def _panel(preview: BudgetPreview, lines: Sequence[Series], title: str) -> Panel:
    places = [x for line in lines for x in line.x]
    whole = scaled(preview.quality(preview.unpruned), scale(preview.metric))
    drawn = [*[line for line in lines if line.x], Series(UNPRUNED, [min(places), max(places)], [whole, whole])]
    name = metric_name(preview.metric)
    values = [value for line in drawn for value in line.y if value is not None]
    y = log_axis(name, values) if preview.lower_is_better and values else Axis(name)
    return Panel("", Axis(title), y, drawn)


def _table(preview: BudgetPreview) -> Table:
    names = [name[0].upper() + name[1:] for name in columns(preview, digits=True)]
    caption = f"{quality_of(preview)}. {limits(preview)} {timing(preview)}"
    return Table("preview", "Every budget", names, rows(preview, digits=True), f"{caption[0].upper()}{caption[1:]}")


def _blocks(preview: BudgetPreview) -> str:
    neurons = "" if preview.neurons is None else f", {preview.neurons:,} neurons"
    return f"{preview.heads} heads{neurons}"


def _facts(preview: BudgetPreview) -> list[tuple[str, str]]:
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
