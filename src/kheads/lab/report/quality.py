"""Quality against K (the paper's Figure 2 and Table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kheads.lab.report.drawing import Axis, Figure, Panel, Series, Table, count_axis
from kheads.lab.report.paper import published
from kheads.lab.report.pooling import Qualities, bars_told, by_first, curve, scaled
from kheads.lab.report.results import Results, Run, Variant
from kheads.lab.report.style import UNPRUNED, hollow, metric_name, scale, with_colours
from kheads.measuring.statistics import Interval, mean_interval
from kheads.methods.claims import PAPER_COLUMNS
from kheads.methods.look import Look

K_AXIS = "Heads kept (K)"
FEW = 1 / 3  # the paper looks closer where more than two thirds of the heads are gone


def quality_figure(results: Results) -> Figure | None:
    """All methods over all K, on a logarithmic axis that has room for few heads."""
    found = shown(results)
    if not found:
        return None
    theirs, remark = published(results)
    lines = [curve(seen, values, scale(results.metric)) for seen, values in found]
    lines += _published(results, theirs or {})
    told = bars_told(interval.count for _, values in found for interval in by_first(values).values())
    caption = (
        f"{metric_name(results.metric)} on {results.evaluation} against the number of heads kept: mean over seeds. "
        f"{told} Methods at the same K are drawn beside each other. Dashed line: the unpruned model. {remark}"
    )
    panel, data = _drawn(results, lines), _tabulated(results, lines)
    return Figure("quality", "Quality against K", [panel], caption, "Fig. 2", data)


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
    columns = ["K", *[results.look(variant).label for variant in variants]]
    return Table("quality", "Quality by method and K", columns, rows, caption, "Tab. 3")


def ordered(results: Results) -> list[Variant]:
    """The methods that are there, in their usual order."""
    return sorted(results.main, key=results.rank)


def shown(results: Results) -> list[tuple[Look, Qualities]]:
    """Every series there is: methods in their usual order, and beside each what further training made of its models."""
    found = [pair for variant in sorted(results.compared, key=results.rank) for pair in _stages(results, variant)]
    return [(seen, values) for seen, values in found if values]


def _stages(results: Results, variant: Variant) -> list[tuple[Look, Qualities]]:
    runs, seen = results.compared[variant], results.look(variant)
    after = replace(seen, label=f"{seen.label}, {_recovery(runs)}", dash="dot")
    return [(seen, results.qualities(runs)), (after, results.qualities(runs, "recovered"))]


def _recovery(runs: list[Run]) -> str:
    steps = {run.settings.get("recover_steps") for run in runs}
    return f"{steps.pop()} more steps" if len(steps) == 1 else "recovered"


def _published(results: Results, theirs: dict[str, dict[int, float]]) -> list[Series]:
    """The paper's numbers, in the colours of ours; methods that were not run get colours that are free."""
    missing = {key: Look(PAPER_COLUMNS[key]) for key in theirs if key not in results.looks}
    looks = with_colours({**results.looks, **missing})
    return [
        Series(hollow(looks[key], f"{looks[key].label}, paper"), sorted(numbers), [numbers[k] for k in sorted(numbers)])
        for key, numbers in theirs.items()
    ]


def _drawn(results: Results, lines: Sequence[Series]) -> Panel:
    ks = sorted({x for line in lines for x in line.x})
    axis = count_axis(K_AXIS, ks, max(results.total, ks[-1]))
    ends = axis.span or (ks[0], ks[-1])
    return Panel("", axis, Axis(metric_name(results.metric)), [*lines, *_unpruned(results, ends)], nudged=True)


def _tabulated(results: Results, lines: Sequence[Series]) -> list[Panel]:
    """The same as a table: every K, and once more those of few heads."""
    few = results.total * FEW
    ks = {x for line in lines for x in line.x}
    both = min(ks) <= few < max(ks)
    parts = [("All K", float("inf"), results.total), (f"Few heads: K up to {int(few)}", few, few)]
    y = Axis(metric_name(results.metric))
    return [
        Panel(title, Axis(K_AXIS), y, [*_up_to(lines, most), *_unpruned(results, (0, end))])
        for title, most, end in parts[: 1 + both]
    ]


def _unpruned(results: Results, ends: tuple[float, float]) -> list[Series]:
    found = results.unpruned()
    if not found:
        return []
    mean = scale(results.metric) * mean_interval(list(found.values())).mean
    return [Series(UNPRUNED, list(ends), [mean, mean])]


def _up_to(lines: Sequence[Series], most: float) -> list[Series]:
    return [part for line in lines if (part := _cut(line, most)).x]


def _cut(line: Series, most: float) -> Series:
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
