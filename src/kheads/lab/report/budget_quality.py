"""Quality against size and against measured speed, where runs were asked for budgets rather than for K."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kheads.lab.report.drawing import Axis, Figure, Heat, Panel, Series, Table
from kheads.lab.report.pooling import bars_told, scaled, seeds_told
from kheads.lab.report.results import Results, Run, Variant
from kheads.lab.report.style import UNPRUNED, metric_name, scale
from kheads.measuring.statistics import Interval, mean_interval
from kheads.methods.look import Look

STAGES = ("recovered", "pruned")  # the last one that was reached is what was saved
MOST_TEXTS = 12  # columns in which numbers can be read on a phone
COLUMNS = ("Method", "Asked for", "Parameters kept", "Heads", "Neurons", "Speed-up")


@dataclass(frozen=True)
class Spot:
    """Runs that differ in their seed alone.

    Attributes:
        look: how they are drawn.
        asked: what they were asked for, in words.
        runs: the runs.
        quality: their headline metric over seeds, of the model as it was saved.
        kept: parameters that are left, in percent of the whole model's.
        speedup: how many times as fast as the whole model they were found to be; None where no time was taken.
    """

    look: Look
    asked: str
    runs: tuple[Run, ...]
    quality: Interval
    kept: float
    speedup: float | None


def spots(results: Results) -> list[Spot]:
    """Every budget of every method, and where there are such every K, from the smallest model up."""
    groups: dict[tuple[Look, str], list[Run]] = {}
    for run in results.budgeted:
        groups.setdefault((_look(results, run.variant, run), run.budget.asked if run.budget else ""), []).append(run)
    if results.budgeted:
        for variant, runs in results.compared.items():
            for run in runs:
                groups.setdefault((_look(results, variant, run), f"{run.k} heads"), []).append(run)
    found = [_spot(results, look, asked, runs) for (look, asked), runs in groups.items()]
    return sorted((spot for spot in found if spot is not None), key=lambda spot: spot.kept)


def _look(results: Results, variant: Variant, run: Run) -> Look:
    """A method's look; runs that count heads are told apart from those that were given a budget."""
    look = results.look(variant)
    if run.budget is not None:
        return look
    return replace(look, label=f"{look.label} (K)", dash="dash", marker=f"{look.marker.removesuffix('-open')}-open")


def _spot(results: Results, look: Look, asked: str, runs: Sequence[Run]) -> Spot | None:
    values = [value for run in runs if (value := final(results, run)) is not None]
    if not values:
        return None
    speeds = [run.budget.speedup[0] for run in runs if run.budget and run.budget.speedup]
    kept = [100 * run.record["after"]["parameters"] / run.record["before"]["parameters"] for run in runs]
    speed = sum(speeds) / len(speeds) if speeds else None
    return Spot(look, asked, tuple(runs), mean_interval(values), sum(kept) / len(kept), speed)


def final(results: Results, run: Run) -> float | None:
    """The headline metric of the model as it was saved."""
    found = (run.quality(results.evaluation, stage) for stage in STAGES)
    return next((value for value in found if value is not None), None)


def budget_figures(results: Results) -> list[Figure]:
    """Quality against parameters, and against speed where that was measured; none where no run has a budget."""
    found = spots(results)
    if not results.budgeted or not found:
        return []
    told = bars_told(spot.quality.count for spot in found)
    name = metric_name(results.metric)
    begin = f"{name} on {results.evaluation} of the models as they were saved: mean over seeds. {told} "
    figures = [
        Figure(
            "budgets-size",
            "Quality against parameters",
            [_panel(results, found, "Parameters kept (%)", lambda spot: spot.kept)],
            f"{begin}Dashed line: the unpruned model.",
        )
    ]
    timed = [spot for spot in found if spot.speedup is not None]
    if timed:
        panel = _panel(results, timed, "Speed-up (×)", lambda spot: spot.speedup or 0.0)
        caption = f"{begin}Speed-up is measured on the smaller model beside the whole one, when it was cut."
        figures.append(Figure("budgets-speed", "Quality against speed", [panel], caption))
    return figures


def _panel(results: Results, found: Sequence[Spot], title: str, place: Callable[[Spot], float]) -> Panel:
    looks = dict.fromkeys(spot.look for spot in found)
    lines = [_line(results, [spot for spot in found if spot.look == look], place) for look in looks]
    ends = [min(map(place, found)), max(map(place, found))]
    unpruned = results.unpruned()
    if unpruned:
        mean = scale(results.metric) * mean_interval(list(unpruned.values())).mean
        lines.append(Series(UNPRUNED, ends, [mean, mean]))
    return Panel("", Axis(title), Axis(metric_name(results.metric)), lines)


def _line(results: Results, found: Sequence[Spot], place: Callable[[Spot], float]) -> Series:
    ordered, factor = sorted(found, key=place), scale(results.metric)
    return Series(
        ordered[0].look,
        [place(spot) for spot in ordered],
        [factor * spot.quality.mean for spot in ordered],
        [scaled(spot.quality.low, factor) for spot in ordered],
        [scaled(spot.quality.high, factor) for spot in ordered],
        notes=[f"{spot.asked}, {seeds_told(spot.quality)}" for spot in ordered],
    )


def kept_figure(results: Results) -> Figure | None:
    """What every budget keeps of each layer: heads and neurons, one heat map for each method."""
    found = [spot for spot in spots(results)[::-1] if spot.runs[0].budget is not None]
    looks = dict.fromkeys(spot.look for spot in found)
    heats = [_kept(look.label, [spot for spot in found if spot.look == look]) for look in looks]
    if not heats:
        return None
    caption = (
        "The share of heads and of neurons (ffn) that each layer keeps, mean over seeds. Rows are budgets, from the "
        "largest model down; columns are layers, counted from 0 at the input, kind by kind."
    )
    return Figure("budgets-kept", "What stays, layer by layer", heats, caption)


def _kept(title: str, found: Sequence[Spot]) -> Heat:
    columns = max(((*spot.runs[0].columns, *spot.runs[0].feeds) for spot in found), key=len)
    values = [[_share(spot.runs, column.site) for column in columns] for spot in found]
    notes = [
        [
            f"{spot.asked}, {column.kind} layer {column.layer}: {'all' if value is None else f'{value:.1f} %'}"
            for column, value in zip(columns, row, strict=True)
        ]
        for spot, row in zip(found, values, strict=True)
    ]
    groups = [(kind, len(list(same))) for kind, same in itertools.groupby(column.kind for column in columns)]
    return Heat(
        title,
        [spot.asked for spot in found],
        [str(column.layer) for column in columns],
        values,
        texts=[["" if value is None else f"{value:.0f}" for value in row] for row in values]
        if len(columns) <= MOST_TEXTS
        else (),
        notes=notes,
        axes=("Layer", ""),
        groups=groups,
        top=100.0,
        unit="% kept",
    )


def _share(runs: Sequence[Run], site: str) -> float | None:
    """Percent of the blocks of a site that stay, mean over runs; None where they were not chosen from."""
    sizes = [column.heads for run in runs for column in (*run.columns, *run.feeds) if column.site == site]
    kept = [len(run.record["kept"][site]) for run in runs if site in run.record["kept"]]
    return 100 * sum(kept) / sum(sizes) if kept and len(kept) == len(sizes) and sum(sizes) else None


def budget_table(results: Results) -> Table | None:
    """Every budget with what it came to, from the largest model down."""
    found = spots(results)[::-1]
    if not results.budgeted or not found:
        return None
    rows = [_row(results, spot) for spot in found]
    unpruned = results.unpruned()
    if unpruned:
        whole = _cell(mean_interval(list(unpruned.values())), results.metric)
        rows.insert(0, ["Unpruned", "–", "100.0 %", str(results.total), "–", "–", whole])
    caption = (
        f"{metric_name(results.metric)} on {results.evaluation}, mean ± standard deviation over seeds; the other "
        "columns are means over seeds."
    )
    return Table("budgets", "Every budget", [*COLUMNS, metric_name(results.metric)], rows, caption)


def _row(results: Results, spot: Spot) -> list[str]:
    after = [run.record["after"] for run in spot.runs]
    neurons = [one["neurons"] for one in after if "neurons" in one]
    return [
        spot.look.label,
        spot.asked,
        f"{spot.kept:.1f} %",
        f"{sum(one['heads'] for one in after) / len(after):.1f}".removesuffix(".0"),
        f"{sum(neurons) / len(neurons):,.0f}" if neurons else "–",
        "–" if spot.speedup is None else f"×{spot.speedup:.2f}",
        _cell(spot.quality, results.metric),
    ]


def _cell(interval: Interval, metric: str) -> str:
    factor = scale(metric)
    spread = scaled(interval.std, factor)
    return f"{factor * interval.mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}")
