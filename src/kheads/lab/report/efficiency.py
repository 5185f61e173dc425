"""Speed-up and shrinkage, against K (the paper's Figure 4) and against quality (Figure 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kheads.lab.report.drawing import Axis, Figure, Panel, Series, Table
from kheads.lab.report.pooling import by_first
from kheads.lab.report.quality import K_AXIS, ordered
from kheads.lab.report.results import Results, Run
from kheads.lab.report.setting import machines, model_name, setting
from kheads.lab.report.style import ACCENT, INK, MUTED, SECOND, Look, look, metric_name, scale

PLACEMENTS = {
    "random": Look("Random masks", ACCENT, "circle"),
    "concentrated": Look("Concentrated in few layers", SECOND, "square", "dot"),
    "spread": Look("Spread over all layers", MUTED, "triangle-up", "dot"),
}
LIMIT = Look("Most that K can give", MUTED, "", "dot")
NO_ATTENTION = Look("No attention at all", INK, "", "dash")
COLUMNS = (
    "K",
    "Parameters saved",
    "Speed-up",
    "Time saved",
    "In few layers",
    "Spread out",
    "Most that K can give",
)


def by_k(rows: Sequence[Mapping[str, Any]], what: str, placement: str = "random") -> dict[int, list[float]]:
    """A measured number of every mask, by K."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["placement"] == placement and row.get(what) is not None:
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
    speed = [_over_masks(measured["rows"], "speedup", placement) for placement in PLACEMENTS]
    limit = (measured.get("no_attention") or {}).get("speedup")
    heads, ks = int(measured["heads"]), sorted({int(row["k"]) for row in measured["rows"]})
    if limit:
        most = by_k(measured["rows"], "limit")  # from the same interleaved run, where rows have it
        speed.append(Series(LIMIT, ks, [mean(most[k]) if k in most else ceiling(k, heads, limit) for k in ks]))
        speed.append(Series(NO_ATTENTION, [0, heads], [limit, limit]))
    size = [_over_masks(measured["rows"], "shrinkage", "random", 100)]
    x = Axis(K_AXIS, span=(0, heads * 1.03))
    panels = [
        Panel("Speed-up", x, Axis("Speed-up (×)"), [series for series in speed if series.x]),
        Panel("Shrinkage", x, Axis("Parameters saved (%)"), [series for series in size if series.x]),
    ]
    masks = max((len(values) for values in by_k(measured["rows"], "speedup").values()), default=0)
    caption = (
        f"{measured.get('model', 'The model')} ({heads} heads), heads removed for real, batch {measured['batch']} of "
        f"{measured['length']} tokens, against the unpruned model in the same interleaved run: mean over {masks} "
        "random masks for each K; bars span the masks. Dotted grey: the most that share of heads can give, from the "
        f"same model without any attention. Setting: {machines([measured])}."
    )
    title = "Speed-up and shrinkage against K" + (f", {heads} heads" if suffix else "")
    return Figure(f"efficiency{suffix}", title, panels, caption, "Fig. 4")


def _table(measured: Mapping[str, Any], suffix: str) -> Table:
    rows = measured["rows"]
    speeds = {placement: by_k(rows, "speedup", placement) for placement in PLACEMENTS}
    saved, most = by_k(rows, "shrinkage"), by_k(rows, "limit")
    lines = []
    for k in sorted(speeds["random"], reverse=True):
        speed = mean(speeds["random"][k])
        placed = [f"×{mean(speeds[kind][k]):.2f}" if k in speeds[kind] else "–" for kind in ("concentrated", "spread")]
        lines.append(
            [
                str(k),
                f"{100 * mean(saved[k]):.1f} %" if k in saved else "–",
                f"×{speed:.2f} ({min(speeds['random'][k]):.2f} to {max(speeds['random'][k]):.2f})",
                f"{100 - 100 / speed:.1f} %",
                *placed,
                f"×{mean(most[k]):.2f}" if k in most else "–",
            ]
        )
    caption = (
        f"{measured.get('model', 'The model')}. Mean over masks; in brackets the least and the greatest of the random "
        "ones. In few layers and spread out: means over masks of that placement."
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
        line=placement == "random",
        notes=saved,
    )


def tradeoff_figure(results: Results) -> Figure | None:
    """What each method's models save at the quality they reach."""
    speed, remark = speed_of(results)
    panels = [
        _tradeoff(results, "Size", "Parameters saved (%)", shrinkage),
        _tradeoff(results, "Speed", "Speed-up (×)", lambda run: speed(run.k)) if speed else None,
    ]
    drawn = [panel for panel in reversed(panels) if panel is not None]
    if not drawn:
        return None
    caption = (
        f"Every point is one K of one method: mean {metric_name(results.metric)} on {results.evaluation} over seeds. "
        f"{remark} {setting(results)}"
    )
    return Figure("tradeoff", "Speed-up and shrinkage against quality", drawn, caption, "Fig. 5")


def shrinkage(run: Run) -> float:
    """Parameters saved by a run, in percent."""
    return 100 * (1 - run.record["after"]["parameters"] / run.record["before"]["parameters"])


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


def _tradeoff(results: Results, title: str, name: str, gain: Callable[[Run], float | None]) -> Panel | None:
    lines = []
    for variant in ordered(results):
        runs = results.main[variant]
        means = by_first(results.qualities(runs))
        gains = {run.k: gain(run) for run in runs}
        ks = [k for k in means if gains.get(k) is not None]
        if ks:
            quality = [scale(results.metric) * means[k].mean for k in ks]
            notes = [f"K = {k}" for k in ks]
            lines.append(Series(look(variant), quality, [gains[k] for k in ks], notes=notes))
    return Panel(title, Axis(metric_name(results.metric)), Axis(name), lines) if lines else None
