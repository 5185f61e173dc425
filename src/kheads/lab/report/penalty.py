"""Heads kept against the weight of an L0 penalty (the paper's Figure 3: the staircase)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kheads.lab.report.drawing import Axis, Figure, Panel, Series, log_axis
from kheads.lab.report.pooling import bars_told, curve
from kheads.lab.report.results import Results, Run
from kheads.lab.report.setting import differing
from kheads.lab.report.style import MUTED
from kheads.methods.look import Look

ALL_HEADS = Look("All heads", marker="", dash="dot", colour=MUTED)
# The number of heads that a penalty led to by itself, by its weight and seed.
Counts = dict[tuple[float, int], float]


def own_counts(results: Results, key: str) -> Counts:
    """Of one method; the mean where several K were asked."""
    counts: dict[tuple[float, int], list[int]] = {}
    for run in results.runs:
        if run.own_heads and run.key == key:
            weight, heads = run.own_heads
            counts.setdefault((weight, run.seed), []).append(heads)
    return {place: sum(heads) / len(heads) for place, heads in counts.items()}


def _complete(counts: Counts) -> Counts:
    """Only the seeds that have most weights, so that every mean is over the same seeds."""
    seeds = Counter(seed for _, seed in counts)
    return {(weight, seed): heads for (weight, seed), heads in counts.items() if seeds[seed] == max(seeds.values())}


def penalty_figure(results: Results) -> Figure | None:
    """Every method with a penalty, from two weights on."""
    counts = {key: _complete(own_counts(results, key)) for key in results.looks}
    counts = {key: found for key, found in counts.items() if len({weight for weight, _ in found}) > 1}
    if not counts:
        return None
    stairs = [replace(curve(results.looks[key], found), steps=True) for key, found in counts.items()]
    weights = sorted({weight for found in counts.values() for weight, _ in found})
    name = "λ, weight of the L0 penalty"
    panel = Panel(
        "",
        log_axis(name, weights) if weights[0] > 0 else Axis(name),
        Axis("Heads kept by itself", span=(-0.03 * results.total, 1.05 * results.total)),
        [*stairs, Series(ALL_HEADS, [weights[0], weights[-1]], [results.total] * 2)],
    )
    runs = [run for run in results.runs if _is_drawn(run, counts)]
    bars = bars_told(len({seed for _, seed in found}) for found in counts.values())
    caption = (
        "The number of heads that the penalty leaves open by itself, before heads are added or dropped to reach K: "
        f"mean over seeds. {bars} {differing(results, runs)}"
    )
    return Figure("penalty", "Heads kept against the L0 penalty", [panel], caption, "Fig. 3")


def _is_drawn(run: Run, counts: dict[str, Counts]) -> bool:
    return run.own_heads is not None and (run.own_heads[0], run.seed) in counts.get(run.key, {})
