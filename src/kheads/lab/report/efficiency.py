"""Speed-up and shrinkage, against K (the paper's Figure 4) and against quality (Figure 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kheads.lab.report.budget_quality import Spot, spots
from kheads.lab.report.drawing import Axis, Figure, Number, Panel, Series, Table
from kheads.lab.report.pooling import by_first
from kheads.lab.report.quality import K_AXIS, ordered
from kheads.lab.report.results import Results, Run
from kheads.lab.report.setting import machines, model_name
from kheads.lab.report.style import ACCENT, INK, MUTED, SECOND, metric_name, scale
from kheads.methods.look import Look

ANYWHERE = "anywhere"  # masks drawn by lot, without a placement of their own
PLACEMENTS = {
    ANYWHERE: Look("Random masks", colour=ACCENT),
    "concentrated": Look("Concentrated in few layers", marker="square", dash="dot", colour=SECOND),
    "spread": Look("Spread over all layers", marker="triangle-up", dash="dot", colour=MUTED),
}
LIMIT = Look("Most that K can give", marker="", dash="dot", colour=MUTED)
NO_ATTENTION = Look("No attention at all", marker="", dash="dash", colour=INK)
COLUMNS = (
    "K",
    "Parameters saved",
    "Speed-up",
    "Time saved",
    "In few layers",
    "Spread out",
    "Most that K can give",
)


def by_k(rows: Sequence[Mapping[str, Any]], what: str, placement: str = ANYWHERE) -> dict[int, list[float]]:
    """A measured number of every mask of a placement, by K."""
    found: dict[int, list[float]] = {}
    for row in rows:
        placed = row["placement"] if row["placement"] in PLACEMENTS else ANYWHERE
        if placed == placement and row.get(what) is not None:
            found.setdefault(int(row["k"]), []).append(float(row[what]))
    return dict(sorted(found.items()))


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def ceiling(k: int, heads: int, no_attention: float) -> float:
    """The most that removing H - K of H heads can speed up a model that is S times as fast without attention."""
    return 1 / (1 - (1 - k / heads) * (1 - 1 / no_attention))


def efficiency_items(results: Results) -> list[Figure | Table]:
    """A figure and a table for each model that was measured."""
    several = len(results.efficiency) > 1
    suffixes = [f"-{number}" if several else "" for number in range(1, len(results.efficiency) + 1)]
    measured = list(zip(results.efficiency, suffixes, strict=True))
    return [item for each in measured for item in (_figure(*each), _table(*each))]


def _figure(measured: Mapping[str, Any], suffix: str) -> Figure:
    heads = int(measured["heads"])
    placed = [_over_masks(measured["rows"], "speedup", placement) for placement in PLACEMENTS]
    speed = [*[series for series in placed if series.x], *_limits(measured)]
    size = [_over_masks(measured["rows"], "shrinkage", ANYWHERE, 100)]
    x = Axis(K_AXIS, span=(-0.03 * heads, 1.03 * heads))
    panels = [
        Panel("Speed-up", x, Axis("Speed-up (×)"), speed, nudged=True),
        Panel("Shrinkage", x, Axis("Parameters saved (%)"), [series for series in size if series.x]),
    ]
    masks = max((len(values) for values in by_k(measured["rows"], "speedup").values()), default=0)
    caption = (
        f"{measured.get('model', 'The model')} ({heads} heads), heads removed for real, batch {measured['batch']} of "
        f"{measured['length']} tokens, against the unpruned model in the same interleaved run, on "
        f"{machines([measured])}: mean over {masks} random masks for each K; bars span the masks. Dotted, with a band: "
        "an estimate of the most that so many heads can give, from the speed of the same model without any attention; "
        "the band spans its measurements, so points above the line are no contradiction."
    )
    title = "Speed-up and shrinkage against K" + (f", {heads} heads" if suffix else "")
    return Figure(f"efficiency{suffix}", title, panels, caption, "Fig. 4")


def _limits(measured: Mapping[str, Any]) -> list[Series]:
    """What K could give at most, and a model without attention; nothing where the latter was not measured."""
    whole = measured.get("no_attention") or {}
    if not whole.get("speedup"):
        return []
    heads, ks = int(measured["heads"]), sorted({int(row["k"]) for row in measured["rows"]})
    found = by_k(measured["rows"], "limit")  # from the same interleaved run, where rows have it
    speeds = [whole["speedup"], whole.get("low"), whole.get("high")]
    estimates = {k: _estimate(found[k]) if k in found else [_ceiling(k, heads, speed) for speed in speeds] for k in ks}
    means, lows, highs = (list(column) for column in zip(*(estimates[k] for k in ks), strict=True))
    most = Series(LIMIT, ks, means, lows, highs, band=True)
    return [most, Series(NO_ATTENTION, [0, heads], [whole["speedup"]] * 2)]


def _estimate(values: Sequence[float]) -> list[Number]:
    return [mean(values), min(values), max(values)]


def _ceiling(k: int, heads: int, no_attention: float | None) -> Number:
    return None if no_attention is None else ceiling(k, heads, no_attention)


def _table(measured: Mapping[str, Any], suffix: str) -> Table:
    rows = measured["rows"]
    speeds = {placement: by_k(rows, "speedup", placement) for placement in PLACEMENTS}
    saved, most = by_k(rows, "shrinkage"), by_k(rows, "limit")
    lines = []
    for k in sorted(speeds[ANYWHERE], reverse=True):
        speed = mean(speeds[ANYWHERE][k])
        placed = [f"×{mean(speeds[kind][k]):.2f}" if k in speeds[kind] else "–" for kind in ("concentrated", "spread")]
        lines.append(
            [
                str(k),
                f"{100 * mean(saved[k]):.1f} %" if k in saved else "–",
                f"×{speed:.2f} ({min(speeds[ANYWHERE][k]):.2f} to {max(speeds[ANYWHERE][k]):.2f})",
                f"{100 - 100 / speed:.1f} %",
                *placed,
                f"×{mean(most[k]):.2f}" if k in most else "–",
            ]
        )
    caption = (
        f"{measured.get('model', 'The model')}. Mean over masks; in brackets the least and the greatest of the random "
        "ones. In few layers and spread out: means over masks of that placement. Most that K can give: an estimate, "
        "with the band that the figure shows."
    )
    title = "The same in numbers" + (f", {measured['heads']} heads" if suffix else "")
    return Table(f"efficiency{suffix}", title, COLUMNS, lines, caption)


def _over_masks(rows: Sequence[Mapping[str, Any]], what: str, placement: str, factor: float = 1.0) -> Series:
    found = by_k(rows, what, placement)
    means = [factor * mean(values) for values in found.values()]
    saved = [f"{100 - 100 / value:.1f} % of the time saved" for value in means] if what == "speedup" else ()
    return Series(
        PLACEMENTS[placement],
        list(found),
        means,
        [factor * min(values) for values in found.values()],
        [factor * max(values) for values in found.values()],
        line=placement == ANYWHERE,
        notes=saved,
    )


def tradeoff_figure(results: Results) -> Figure | None:
    """What each method's models save at the quality they reach: of heads alone, and within budgets."""
    speed, remark = speed_of(results)
    within = [spot for spot in spots(results) if spot.runs[0].budget is not None]
    panels = [
        _tradeoff(
            results,
            ("Speed", "Speed-up (×)"),
            lambda run: speed(run.k) if speed else None,
            [(spot, spot.speedup) for spot in within],
        ),
        _tradeoff(results, ("Size", "Parameters saved (%)"), shrinkage, [(spot, 100 - spot.kept) for spot in within]),
    ]
    drawn = [panel for panel in panels if panel is not None]
    if not drawn or not results.compared:  # budgets alone have figures of their own
        return None
    told = (
        "Where a budget was asked for, every point is a budget, and speed-up was measured on the smaller model beside "
        "the whole one. "
        if within
        else ""
    )
    caption = (
        f"Every point is one K of one method: mean {metric_name(results.metric)} on {results.evaluation} over seeds. "
        f"{remark} {told}"
    )
    return Figure("tradeoff", "Speed-up and shrinkage against quality", drawn, caption.strip(), "Fig. 5")


def shrinkage(run: Run) -> float:
    """Parameters saved by a run, in percent."""
    after, before = (float(run.record[moment]["parameters"]) for moment in ("after", "before"))
    return 100 * (1 - after / before)


def fitting(results: Results) -> Mapping[str, Any] | None:
    """The one efficiency experiment on a model with as many heads as that of the runs, if there is one."""
    same = [measured for measured in results.efficiency if int(measured["heads"]) == results.total]
    names = {model_name(run) for run in results.runs}
    named = [measured for measured in same if measured.get("model") in names]
    return (named or same)[0] if len(named or same) == 1 else None


def speed_of(results: Results) -> tuple[Callable[[int], float | None] | None, str]:
    """Speed-up as a function of K from the efficiency experiment, if that was on a model with as many heads."""
    measured = fitting(results)
    if measured is None:
        heads = ", ".join(str(measured["heads"]) for measured in results.efficiency)
        if not heads:
            return None, "Speed-up was not measured."
        return None, f"Speed-up is left out: it was measured on a model of {heads} heads, these have {results.total}."
    means = {k: mean(values) for k, values in by_k(measured["rows"], "speedup").items()}
    return lambda k: interpolate(means, k), "Speed-up is that of random masks, between measured K by a straight line."


def interpolate(points: Mapping[int, float], k: int) -> float | None:
    """The value at K on straight lines between points; None outside them."""
    below = [at for at in points if at <= k]
    above = [at for at in points if at >= k]
    if not below or not above:
        return None
    low, high = max(below), min(above)
    share = 0.0 if low == high else (k - low) / (high - low)
    return points[low] + share * (points[high] - points[low])


def _tradeoff(
    results: Results,
    titles: tuple[str, str],
    gain: Callable[[Run], float | None],
    within: Sequence[tuple[Spot, float | None]],
) -> Panel | None:
    """One panel, by its title and its axis: a line for each method that counts heads, and one for its budgets."""
    factor, lines = scale(results.metric), []
    for variant in ordered(results):
        runs = results.main[variant]
        means = by_first(results.qualities(runs))
        gains = {run.k: gain(run) for run in runs}
        ks = [k for k in means if gains.get(k) is not None]
        if ks:
            quality = [factor * means[k].mean for k in ks]
            notes = [f"K = {k}" for k in ks]
            lines.append(Series(results.look(variant), quality, [gains[k] for k in ks], notes=notes))
    known = [(spot, value) for spot, value in within if value is not None]
    for look in dict.fromkeys(spot.look for spot, _ in known):
        own = [(spot, value) for spot, value in known if spot.look == look]
        quality = [factor * spot.quality.mean for spot, _ in own]
        notes = [spot.asked for spot, _ in own]
        seen = replace(
            look,
            label=f"{look.label}, within a budget",
            dash="dash",
            marker=f"{look.marker.removesuffix('-open')}-open",
        )
        lines.append(Series(seen, quality, [value for _, value in own], notes=notes))
    return Panel(titles[0], Axis(metric_name(results.metric)), Axis(titles[1]), lines) if lines else None
