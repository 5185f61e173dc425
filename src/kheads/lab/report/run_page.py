"""The page of one run: its heads with their scores, its neurons, its dynamics, before and after, latency."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kheads.lab.report.alone import alone
from kheads.lab.report.contents import Page, Section
from kheads.lab.report.drawing import Axis, Figure, Heat, Number, Panel, Series, Table
from kheads.lab.report.dynamics import chosen_shares, panel
from kheads.lab.report.results import Run, reported_set
from kheads.lab.report.setting import machines, model_name, seeds, steps
from kheads.lab.report.style import ACCENT
from kheads.lab.terminal import metric as written
from kheads.methods.look import Look
from kheads.training.recording import STAGES

LOSS = Look("Training loss", marker="", colour=ACCENT)
SEARCHES = "search-"  # phases that only look for a setting


def run_page(run: Run, measured: Mapping[str, Any] | None, folder: Path) -> Page:
    """Everything that one run has to show."""
    sections = [
        Section("heads", "Heads", [head_map(run)] if run.columns else []),
        Section("neurons", "Neurons", [neuron_map(run)] if run.feeds else []),
        Section("result", "Before and after", [before_after(run)]),
        Section("dynamics", "Training dynamics", _dynamics(run)),
        Section("latency", "Latency", latency(measured) if measured else []),
    ]
    return Page(folder.resolve().name, _setting(run), [alone(run).told()], _facts(run), sections)


def head_map(run: Run) -> Figure:
    """Sites as rows, heads as columns, scores as colour, a dot on what is kept."""
    width = max(column.heads for column in run.columns)
    scores = _scores_by_site(run)
    rows, marks, notes = [], [], []
    for row, column in enumerate(run.columns):
        values = scores.get(column.site, [None] * column.heads)
        kept = set(run.record["kept"].get(column.site, ()))
        rows.append([*values, *[None] * (width - column.heads)])
        notes.append([_note(column.kind, column.layer, head, value, kept) for head, value in enumerate(rows[-1])])
        marks += [(row, head) for head in sorted(kept)]
    several = len({column.kind for column in run.columns}) > 1
    labels = [f"{column.kind} {column.layer}" if several else str(column.layer) for column in run.columns]
    flat = all(value is None for values in rows for value in values)
    heat = Heat(
        "",
        labels,
        [str(head) for head in range(width)],
        [[0.0] * width] * len(rows) if flat else rows,
        notes=notes,
        axes=("Head", "Attention" if several else "Layer"),
        marks=marks,
        bottom=0.0 if flat else min(value for values in rows for value in values if value is not None),
        unit="score",
    )
    caption = "A dot: the head is kept. Layers and heads are counted from 0." + (
        "" if flat else " The stronger the colour, the higher the score."
    )
    return Figure("heads", f"{len(run.kept)} of {run.total} heads", [heat], caption)


def _scores_by_site(run: Run) -> dict[str, list[Number]]:
    """The scores lie in the order of the sites; none where nothing was chosen."""
    scores = list(run.record.get("scores") or [])
    sizes = {column.site: column.heads for column in (*run.columns, *run.feeds)}
    if len(scores) != sum(sizes.values()):
        return {}
    found, begin = {}, 0
    for site in run.record["kept"]:
        found[site] = scores[begin : begin + sizes[site]]
        begin += sizes[site]
    return found


def neuron_map(run: Run) -> Figure:
    """One cell a layer, coloured by the share of its neurons that are kept."""
    kept = {column.site: len(run.record["kept"].get(column.site, ())) for column in run.feeds}
    shares = [100 * kept[column.site] / max(column.heads, 1) for column in run.feeds]
    texts = [f"{kept[column.site]:,} of {column.heads:,}" for column in run.feeds]
    heat = Heat(
        "",
        [str(column.layer) for column in run.feeds],
        ["kept"],
        [[share] for share in shares],
        [[text] for text in texts],
        [
            [f"layer {column.layer}: {text} neurons, {share:.1f} %"]
            for column, text, share in zip(run.feeds, texts, shares, strict=True)
        ],
        ("", "Layer"),
        top=100.0,
        unit="% of the neurons",
    )
    total = sum(column.heads for column in run.feeds)
    caption = (
        "The stronger the colour, the larger the share of a layer's neurons that are kept. Feed-forward layers are "
        "counted from 0."
    )
    return Figure("neurons", f"{sum(kept.values()):,} of {total:,} neurons", [heat], caption)


def _note(kind: str, layer: int, head: int, score: Number, kept: set[int]) -> str:
    told = "" if score is None else f", score {score:.4g}"
    return f"{kind} layer {layer}, head {head}: {'kept' if head in kept else 'removed'}{told}"


def before_after(run: Run) -> Table:
    """Heads, size and quality."""
    before, after, metric = run.record["before"], run.record["after"], run.record["metric"]
    counts = [name for name in ("heads", "neurons", "parameters") if name in before and name in after]
    rows = [
        [name.capitalize(), f"{before[name]:,}", f"{after[name]:,}", _change(before[name], after[name])]
        for name in counts
    ]
    if "bytes" in before:
        sizes = [f"{size['bytes'] / 1e6:.1f} MB" for size in (before, after)]
        rows.append(["Weights", *sizes, _change(before["bytes"], after["bytes"])])
    for stage, remark in STAGES.items():
        for name, found in run.record["metrics"].get(stage, {}).items():
            unpruned = run.quality(name, "unpruned")
            value = found.get(metric)
            if value is not None:
                old = "–" if unpruned is None else written(metric, unpruned)
                rows.append([f"{metric}, {name}{remark}", old, written(metric, value), ""])
    if run.budget is not None:
        rows.append(["Budget", run.budget.asked, run.budget.reached, ""])
    whole = "unpruned" in run.record["metrics"]
    caption = "" if whole else "No unpruned model was measured in this run, so there is none to compare with."
    return Table("before-after", "Before and after", ("", "Before", "After", "Change"), rows, caption)


def _change(before: float, after: float) -> str:
    return f"−{100 * (1 - after / before):.1f} %" if after < before else "0 %"


def _dynamics(run: Run) -> list[Figure]:
    figures = []
    names = list(run.record["metrics"].get("pruned", {}))
    if len(chosen_shares(run)) > 1:
        drawn = panel("", [run], reported_set(names) if names else "")
        caption = "Of the heads chosen at each moment, the share that is kept in the end."
        figures.append(Figure("dynamics", "When the choice settles", [drawn], caption))
    logged = [phase for phase in run.record.get("history", {}) if not phase.startswith(SEARCHES)]
    phases = [phase for phase in logged if len(_losses(run, phase)) > 1]
    panels = [
        Panel(
            phase if len(phases) > 1 else "",
            Axis("Step", span=(0, max(_losses(run, phase)))),
            Axis("Training loss"),
            [Series(LOSS, list(_losses(run, phase)), list(_losses(run, phase).values()))],
        )
        for phase in phases
    ]
    if panels:
        figures.append(Figure("loss", "Training loss", panels, "Mean over the steps between two log entries."))
    return figures


def _losses(run: Run, phase: str) -> dict[int, float]:
    return {int(entry["step"]): float(entry["loss"]) for entry in run.log(phase) if "loss" in entry}


def latency(measured: Mapping[str, Any]) -> list[Figure]:
    """The grid of batch sizes and lengths: how many times as fast as another model, or milliseconds without one."""
    grid = measured.get("grid") or []
    if not grid:
        return []
    what = "ratio" if all(cell.get("ratio") is not None for cell in grid) else "ms"
    batches, lengths = (sorted({int(cell[key]) for cell in grid}) for key in ("batch", "length"))
    cells = {(int(cell["batch"]), int(cell["length"])): cell for cell in grid}
    rows = [[cells.get((batch, length)) for length in lengths] for batch in batches]
    heat = Heat(
        "",
        [str(batch) for batch in batches],
        [str(length) for length in lengths],
        [[None if cell is None else float(cell[what]) for cell in row] for row in rows],
        [["" if cell is None else _cell_text(cell, what) for cell in row] for row in rows],
        [["" if cell is None else _cell_note(cell, what) for cell in row] for row in rows],
        ("Tokens", "Batch"),
        bottom=min(1.0, *[float(cell["ratio"]) for cell in grid]) if what == "ratio" else 0.0,
        unit="speed-up" if what == "ratio" else "milliseconds",
    )
    told = "Speed-up over the model it was measured against: median of paired, interleaved ratios. Point at a cell for "
    told += "milliseconds and the 95 % interval."
    settings = measured.get("settings", {})
    threads = (
        f" {settings['device']}, {settings['threads']} threads." if {"device", "threads"} <= settings.keys() else ""
    )
    caption = (told if what == "ratio" else "Median milliseconds.") + threads
    return [Figure("latency", "Latency", [heat], caption)]


def _cell_text(cell: Mapping[str, Any], what: str) -> str:
    return f"×{cell['ratio']:.2f}" if what == "ratio" else f"{cell['ms']:.1f} ms"


def _cell_note(cell: Mapping[str, Any], what: str) -> str:
    place = f"batch {cell['batch']} × {cell['length']} tokens"
    if what == "ms":
        return f"{place}: {cell['ms']:.2f} ms"
    sure = "" if not cell["low"] <= 1 <= cell["high"] else "<br>The interval includes 1: no difference was measured."
    ratio = f"×{cell['ratio']:.3f} [{cell['low']:.3f} to {cell['high']:.3f}]"
    return f"{place}: {ratio}<br>{cell['ms']:.2f} ms against {cell['against_ms']:.2f} ms{sure}"


def _setting(run: Run) -> str:
    task = str(run.settings.get("task") or "files")
    parts = [
        task,
        f"{model_name(run)} ({run.total} heads)",
        run.budget.asked if run.budget else "",
        steps([run]),
        seeds([run]),
        f"on {machines([run.record])}",
    ]
    return f"{', '.join(part for part in parts if part)}."


def _facts(run: Run) -> list[tuple[str, str]]:
    method = ", ".join(f"{name} {value}" for name, value in run.record["method"].items() if name != "name")
    seconds = ", ".join(f"{phase} {value:,.1f} s" for phase, value in run.seconds.items())
    versions = ", ".join(f"{name} {version}" for name, version in run.record.get("versions", {}).items())
    found = [
        ("Run", _setting(run)),
        ("Method", f"{run.record['method']['name']}" + (f" ({method})" if method else "")),
        ("Durations", seconds),
        ("Versions", versions),
        ("Machine", str(run.record.get("machine", {}).get("platform", ""))),
    ]
    return [(name, value) for name, value in found if value]
