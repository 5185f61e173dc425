"""Claims about cost: inference speed, where heads are, and the overhead of training with gates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from kheads.lab.report.efficiency import by_k, fitting, mean
from kheads.lab.report.pooling import count_of
from kheads.lab.report.results import NONE, Results, Run
from kheads.lab.report.verdicts import CONFIRMED, NOT_CONFIRMED, PERCENT, TOO_LITTLE, Finding, judged, lacking
from kheads.measuring.statistics import ENOUGH, mean_interval
from kheads.methods.claims import Claim

LEAST_K = 4
NEGLIGIBLE = 0.05


def faster(results: Results, claim: Claim) -> Finding:
    """Whether every step to fewer heads is a step to more speed."""
    speeds = by_k(_rows(results), "speedup")
    if len(speeds) < LEAST_K:
        return lacking(claim, f"Fewer than {LEAST_K} values of K were measured.")
    ks = sorted(speeds, reverse=True)
    steps = [(mean(speeds[less]) - mean(speeds[more]), more, less) for more, less in itertools.pairwise(ks)]
    slower = [f"{more} to {less}" for gain, more, less in steps if gain <= 0]
    ours = f"{len(steps) - len(slower)} of {len(steps)} steps are faster"
    fastest = speeds[ks[-1]]
    interval = f"×{min(fastest):.2f} to ×{max(fastest):.2f} at K = {ks[-1]}, over masks"
    masks = min(len(values) for values in speeds.values())
    why = f"Mean over {masks} random masks for each K" + (
        f"; not faster: K from {', '.join(slower)}." if slower else "."
    )
    return Finding(claim, ours, interval, NOT_CONFIRMED if slower else CONFIRMED, why)


def placement(results: Results, claim: Claim) -> Finding:
    """Whether heads in few layers are about as fast as heads spread out, over the K that were measured."""
    together, apart = (by_k(_rows(results), "speedup", kind) for kind in ("concentrated", "spread"))
    ks = sorted(together.keys() & apart.keys())
    if not ks:
        return lacking(claim, "No K was measured with heads in few layers and with heads spread out.")
    found = mean_interval([mean(together[k]) / mean(apart[k]) - 1 for k in ks])
    why = (
        "Speed-up of heads in few layers over that of heads spread out, minus 1, over "
        f"{found.count} values of K; {_hardly()}"
    )
    decided = CONFIRMED if max(abs(found.low), abs(found.high)) < NEGLIGIBLE else NOT_CONFIRMED
    if found.count < ENOUGH:
        decided, why = TOO_LITTLE, f"{why} An interval needs {ENOUGH} or more."
    return Finding(claim, PERCENT.write(found.mean), PERCENT.span(found), decided, why)


def overhead(results: Results, claim: Claim) -> Finding:
    """Over seeds: the runs of a seed share one unpruned training, and a machine that was slow during it bends all."""
    plain = {run.seed: run.seconds["train"] / run.steps for run in results.runs if _timed(run, NONE, "train")}
    joint: dict[int, list[float]] = {}
    for run in results.of(claim.series[0]):
        if run.seed in plain and _timed(run, claim.series[0], "gates"):
            joint.setdefault(run.seed, []).append(run.seconds["gates"] / run.steps)
    if not joint:
        return lacking(claim, f"No run of {claim.named} and unpruned run share a seed.")
    found = mean_interval([mean(seconds) / plain[seed] - 1 for seed, seconds in joint.items()])
    why = (
        f"Seconds a step of {claim.named} over those of the unpruned model, minus 1, mean over "
        f"{count_of(found.count, 'seed')}; the machine may have been slower during one run than during another; "
        f"{_hardly()}"
    )
    return judged(claim, found, PERCENT, found.high < NEGLIGIBLE, why)


def _rows(results: Results) -> list[Mapping[str, Any]]:
    """The measurements of the model of these runs; of the first one measured, if that is another."""
    measured = fitting(results) or next(iter(results.efficiency), None)
    return list(measured["rows"]) if measured else []


def _timed(run: Run, key: str, phase: str) -> bool:
    return run.key == key and phase in run.seconds and run.steps > 0


def _hardly() -> str:
    return f"hardly means less than {100 * NEGLIGIBLE:.0f} %."
