"""Claims about cost: inference speed, where heads are, and the overhead of training with gates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from kheads.lab.report.efficiency import by_k, fitting, mean
from kheads.lab.report.results import Results, Run
from kheads.lab.report.verdicts import CONFIRMED, NOT_CONFIRMED, TOO_LITTLE, Claim, Unit, lacking
from kheads.measuring.statistics import ENOUGH, Interval, mean_interval

LEAST_K = 4
NEGLIGIBLE = 0.05
PERCENT = Unit(100, "{:+.1f}", "%")


def efficiency_claims(results: Results) -> list[Claim]:
    """Monotone, insensitive to placement, negligible overhead."""
    measured = fitting(results) or next(iter(results.efficiency), None)
    return [_monotone(measured), _placement(measured), _overhead(results)]


def _monotone(measured: Mapping[str, Any] | None) -> Claim:
    paper = "Inference gets faster with every head fewer."
    speeds = by_k(measured["rows"], "speedup") if measured else {}
    if len(speeds) < LEAST_K:
        return lacking(paper, "§5.4", f"Fewer than {LEAST_K} values of K were measured.")
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
    return Claim(paper, "§5.4", ours, interval, NOT_CONFIRMED if slower else CONFIRMED, why)


def _placement(measured: Mapping[str, Any] | None) -> Claim:
    paper = "Speed hardly depends on where the heads are."
    together, apart = (
        by_k(measured["rows"], "speedup", kind) if measured else {} for kind in ("concentrated", "spread")
    )
    ks = sorted(together.keys() & apart.keys())
    if not ks:
        return lacking(paper, "§5.4", "No K was measured with heads in few layers and with heads spread out.")
    found = mean_interval([mean(together[k]) / mean(apart[k]) - 1 for k in ks])
    what = f"Speed-up of heads in few layers over that of heads spread out, minus 1, over {found.count} values of K"
    return _small(paper, "§5.4", found, what, both_ways=True)


def _overhead(results: Results) -> Claim:
    """Over seeds: the runs of a seed share one unpruned training, and a machine that was slow during it bends all."""
    paper = "Learning the gates jointly costs hardly any time."
    plain = {run.seed: run.seconds["train"] / run.steps for run in results.runs if _timed(run, "none", "train")}
    joint: dict[int, list[float]] = {}
    for run in results.of("dsp"):
        if run.seed in plain and _timed(run, "dsp", "gates"):
            joint.setdefault(run.seed, []).append(run.seconds["gates"] / run.steps)
    if not joint:
        return lacking(paper, "§5.3", "No run of joint DSP and unpruned run share a seed.")
    found = mean_interval([mean(seconds) / plain[seed] - 1 for seed, seconds in joint.items()])
    what = (
        f"Seconds a step of joint DSP over those of the unpruned model, minus 1, over {found.count} "
        f"seed{'s'[: found.count != 1]}; the machine may have been slower during one run than during another"
    )
    return _small(paper, "§5.3", found, what, both_ways=False)


def _timed(run: Run, method: str, phase: str) -> bool:
    return run.variant.method == method and phase in run.seconds and run.steps > 0


def _small(paper: str, where: str, found: Interval, what: str, both_ways: bool) -> Claim:
    """Confirmed where the whole interval is below what counts as negligible."""
    why = f"{what}; hardly means less than {100 * NEGLIGIBLE:.0f} %."
    if found.count < ENOUGH:
        verdict, why = TOO_LITTLE, f"{why} An interval needs {ENOUGH} or more."
    else:
        largest = max(abs(found.low), abs(found.high)) if both_ways else found.high
        verdict = CONFIRMED if largest < NEGLIGIBLE else NOT_CONFIRMED
    return Claim(paper, where, PERCENT.write(found.mean), PERCENT.span(found), verdict, why)
