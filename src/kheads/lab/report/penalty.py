"""Heads kept against Voita's L0 penalty (the paper's Figure 3: the staircase)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kheads.lab.report.drawing import Axis, Figure, Panel, Series, log_axis
from kheads.lab.report.pooling import curve
from kheads.lab.report.results import Results
from kheads.lab.report.setting import setting
from kheads.lab.report.style import LOOKS, MUTED, Look


def own_counts(results: Results) -> dict[tuple[float, int], float]:
    """The number of heads that lambda led to by itself, by lambda and seed; the mean where several K were asked."""
    counts: dict[tuple[float, int], list[int]] = {}
    for run in results.runs:
        if run.own_heads and not run.about["pipelined"]:
            weight, heads = run.own_heads
            counts.setdefault((weight, run.seed), []).append(heads)
    return {place: sum(heads) / len(heads) for place, heads in counts.items()}


def _complete(counts: dict[tuple[float, int], float]) -> dict[tuple[float, int], float]:
    """Only the seeds that have most values of lambda, so that every mean is over the same seeds."""
    seeds = Counter(seed for _, seed in counts)
    return {(weight, seed): heads for (weight, seed), heads in counts.items() if seeds[seed] == max(seeds.values())}


def penalty_figure(results: Results) -> Figure | None:
    """Drawn from two values of lambda on."""
    counts = _complete(own_counts(results))
    stairs = replace(curve(LOOKS["voita"], counts), steps=True)
    if len(stairs.x) < 2:
        return None
    lambdas = list(stairs.x)
    series = [stairs, Series(Look("All heads", MUTED, "", "dot"), [lambdas[0], lambdas[-1]], [results.total] * 2)]
    name = "λ, weight of the L0 penalty"
    panel = Panel(
        "",
        log_axis(name, lambdas) if min(lambdas) > 0 else Axis(name),
        Axis("Heads kept by itself", span=(0, results.total * 1.05)),
        series,
    )
    seeds = {seed for _, seed in counts}
    runs = [run for run in results.runs if run.own_heads and run.seed in seeds]
    caption = (
        "The number of heads that Voita's penalty leaves open by itself, before heads are added or dropped to reach K: "
        f"mean over seeds with its 95 % interval. {setting(results, runs)}"
    )
    return Figure("penalty", "Heads kept against the L0 penalty", [panel], caption, "Fig. 3")
