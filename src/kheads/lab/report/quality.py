"""Quality against K (the paper's Figure 2 and Table 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kheads.lab.report.drawing import Axis, Figure, Panel, Series, Table
from kheads.lab.report.paper import published
from kheads.lab.report.pooling import by_first, curve, scaled
from kheads.lab.report.results import Results, Run, Variant
from kheads.lab.report.setting import setting
from kheads.lab.report.style import LOOKS, Look, look, metric_name, rank, scale
from kheads.measuring.statistics import Interval, mean_interval

K_AXIS = "Heads kept (K)"
ZOOM = 1 / 3  # the paper zooms in where more than two thirds of the heads are gone


def quality_figure(results: Results) -> Figure | None:
    """All methods over all K, and again where few heads are left."""
    lines = [line for variant in sorted(results.compared, key=rank) for line in _lines(results, variant)]
    if not lines:
        return None
    theirs, remark = published(results)
    lines += [_published(key, numbers) for key, numbers in (theirs or {}).items()]
    panels = [_panel("All K", results, lines, results.total)]
    few = results.total * ZOOM
    if any(x <= few for line in lines for x in line.x) and any(x > few for line in lines for x in line.x):
        panels.append(_panel(f"Few heads: K up to {int(few)}", results, lines, few))
    caption = (
        f"{metric_name(results.metric)} on {results.evaluation} against the number of heads kept: mean over seeds with "
        f"its 95 % bootstrap interval. Dashed line: the unpruned model. {remark} {setting(results)}"
    )
    return Figure("quality", "Quality against K", panels, caption, "Fig. 2")


def quality_table(results: Results) -> Table | None:
    """Every mean with its spread, and the paper's number beside it where there is one."""
    variants = ordered(results)
    means = {variant: by_first(results.qualities(results.compared[variant])) for variant in variants}
    ks = sorted({k for found in means.values() for k in found}, reverse=True)
    if not ks:
        return None
    theirs, _ = published(results)
    rows = []
    for k in ks:
        cells = [_cell(means[variant].get(k), results.metric) for variant in variants]
        beside = [(theirs or {}).get(variant.key, {}).get(k) for variant in variants]
        told = [
            cell if number is None else f"{cell} [{number:.2f}]" for cell, number in zip(cells, beside, strict=True)
        ]
        rows.append([str(k), *told])
    unpruned = results.unpruned()
    if unpruned:
        whole = _cell(mean_interval(list(unpruned.values())), results.metric)
        rows.insert(0, [f"{results.total} (unpruned)", *[whole] * len(variants)])
    caption = f"{metric_name(results.metric)} on {results.evaluation}, mean ± standard deviation over seeds." + (
        " In brackets: the paper's number." if theirs else ""
    )
    return Table(
        "quality", "Quality by method and K", ["K", *[look(v).name for v in variants]], rows, caption, "Tab. 3"
    )


def ordered(results: Results) -> list[Variant]:
    """The methods that are there, in their usual order."""
    return sorted(results.main, key=rank)


def _lines(results: Results, variant: Variant) -> list[Series]:
    runs, factor = results.compared[variant], scale(results.metric)
    found = results.qualities(runs)
    lines = [curve(look(variant), found, factor)] if found else []
    recovered = results.qualities(runs, "recovered")
    if recovered:
        seen = look(variant)
        lines.append(curve(replace(seen, name=f"{seen.name}, {_recovery(runs)}", dash="dot"), recovered, factor))
    return lines


def _recovery(runs: list[Run]) -> str:
    steps = {run.record["settings"].get("recover_steps") for run in runs}
    return f"{steps.pop()} more steps" if len(steps) == 1 else "recovered"


def _published(key: str, numbers: dict[int, float]) -> Series:
    seen = LOOKS[key]
    ks = sorted(numbers)
    hollow = Look(f"{seen.name}, paper", seen.colour, f"{seen.marker}-open", "dot")
    return Series(hollow, ks, [numbers[k] for k in ks])


def _panel(title: str, results: Results, lines: list[Series], most: float) -> Panel:
    shown = [part for line in lines if (part := _up_to(line, most)).x]
    ticks = sorted({x for line in shown for x in line.x})
    unpruned = results.unpruned()
    if unpruned:
        mean = scale(results.metric) * mean_interval(list(unpruned.values())).mean
        shown.append(Series(LOOKS["none"], [0, most], [mean, mean]))
    zoomed = most < results.total
    span = (0.0, float(most) * 1.03)
    return Panel(
        title, Axis(K_AXIS, span=span, ticks=ticks if zoomed else ()), Axis(metric_name(results.metric)), shown
    )


def _up_to(line: Series, most: float) -> Series:
    keep = [index for index, x in enumerate(line.x) if x <= most]
    cut: dict[str, Any] = {
        field: [getattr(line, field)[index] for index in keep]
        for field in ("x", "y", "low", "high", "notes")
        if getattr(line, field)
    }
    return replace(line, **cut)


def _cell(interval: Interval | None, metric: str) -> str:
    if interval is None:
        return "–"
    factor = scale(metric)
    spread = scaled(interval.std, factor)
    return f"{factor * interval.mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}")
