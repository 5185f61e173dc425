"""Claims about heads: what a penalty leads to, which heads go first, and when the choice settles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from kheads.lab.report.dynamics import chosen_shares, joint_runs
from kheads.lab.report.penalty import own_counts
from kheads.lab.report.results import Results, Run, Variant
from kheads.lab.report.sites import Column
from kheads.lab.report.verdicts import (
    CONFIRMED,
    NOT_CONFIRMED,
    PERCENT,
    TOO_LITTLE,
    Finding,
    Unit,
    above_zero,
    judged,
    lacking,
    sureness,
)
from kheads.measuring.statistics import DECIDES, mean_interval, over_seeds
from kheads.methods.claims import Claim

LEAST_WEIGHTS = 4
FLAT = 0.05  # of all heads: the curve has reached its upper end where it changes by less
LATE = 2 / 3  # of training
SETTLED = 0.95  # of the heads
Place = tuple[tuple[int, Variant], int]  # K and what else sets a run apart, and its seed
Chosen = Callable[[Column], bool]


def rises(results: Results, claim: Claim) -> Finding:
    """Counts where a larger weight keeps more heads, in every seed's own staircase."""
    ladders = _ladders(results, claim)
    if not ladders:
        return _no_ladder(claim)
    steps = [after - before for ladder in ladders for before, after in itertools.pairwise(ladder)]
    up = [step for step in steps if step > 0]
    seeds = sum(any(after > before for before, after in itertools.pairwise(one)) for one in ladders)
    why = f"{seeds} of {len(ladders)} seeds have a step up" + (f"; the largest is {max(up):g} heads." if up else ".")
    return _by_seeds(claim, f"{len(up)} of {len(steps)} steps go up", "", 2 * seeds > len(ladders), why, len(ladders))


def bounded(results: Results, claim: Claim) -> Finding:
    """Where the smallest weights give about the same number of heads, and that is not all of them."""
    ladders = _ladders(results, claim)
    if not ladders:
        return _no_ladder(claim)
    most = [max(ladder) for ladder in ladders]
    change = max(abs(ladder[0] - ladder[1]) for ladder in ladders)
    ours, spread = f"at most {max(most):g} of {results.total} heads", f"{min(most):g} to {max(most):g} over seeds"
    if max(most) >= results.total:
        return _by_seeds(claim, ours, spread, False, "A small λ keeps every head.", len(ladders))
    if change > FLAT * results.total:
        why = f"The two smallest λ still differ by {change:g} heads; smaller ones might keep more."
        return Finding(claim, ours, spread, TOO_LITTLE, why)
    why = f"The two smallest λ differ by {change:g} heads at most, so a smaller one would hardly keep more."
    return _by_seeds(claim, ours, spread, True, why, len(ladders))


def _ladders(results: Results, claim: Claim) -> list[list[float]]:
    """Each seed's numbers of heads by rising weight."""
    counts = own_counts(results, claim.series[0])
    seeds = sorted({seed for _, seed in counts})
    ladders = [[counts[weight, seed] for weight, one in sorted(counts) if one == seed] for seed in seeds]
    return [ladder for ladder in ladders if len(ladder) >= LEAST_WEIGHTS]


def _no_ladder(claim: Claim) -> Finding:
    return lacking(claim, f"No seed has {LEAST_WEIGHTS} or more values of λ.")


def _by_seeds(claim: Claim, ours: str, spread: str, holds: bool, why: str, seeds: int) -> Finding:
    """A finding that is no mean, but still one of so many seeds."""
    decided = CONFIRMED if holds else NOT_CONFIRMED
    if seeds >= DECIDES:
        return Finding(claim, ours, spread, decided, why)
    return Finding(claim, ours, spread, TOO_LITTLE, f"{why} {sureness(seeds)}")


def top_first(results: Results, claim: Claim) -> Finding:
    """Whether the last quarter of the layers keeps a smaller share of its heads than those below."""
    what = "share of heads kept below minus share kept there"
    return _by_layer(results, claim, lambda depth: lambda column: column.layer + 1 <= depth * 3 / 4, what)


def middle_last(results: Results, claim: Claim) -> Finding:
    """Whether the layers from 2/12 to 7/12 of the depth keep a larger share than the others."""
    what = "share of heads kept there minus share kept elsewhere"
    return _by_layer(results, claim, lambda depth: lambda column: 2 < 12 * (column.layer + 0.5) / depth < 7, what)


def _by_layer(results: Results, claim: Claim, where: Callable[[int], Chosen], what: str) -> Finding:
    runs = _pruned(results, claim)
    if not runs:
        return _no_run(claim)
    if _kinds(runs) > 1:
        return lacking(claim, "The paper says it of an encoder alone (BERT).")
    return _kept_more(claim, runs, where(len(runs[0].columns)), what)


def cross_last(results: Results, claim: Claim) -> Finding:
    """Whether cross-attention keeps a larger share of its heads than self-attention."""
    runs = _pruned(results, claim)
    if not runs:
        return _no_run(claim)
    if _kinds(runs) == 1:
        return lacking(claim, "The model has one kind of attention.")
    what = "share of cross-attention heads kept minus share of self-attention heads"
    return _kept_more(claim, runs, lambda column: column.kind == "cross", what)


def no_encoder(results: Results, claim: Claim) -> Finding:
    """Whether runs with few heads keep none in the encoder."""
    runs = _pruned(results, claim)
    if not runs:
        return _no_run(claim)
    if _kinds(runs) == 1:
        return lacking(claim, "The model has one kind of attention.")
    few = [run for run in runs if run.k < run.total * (claim.below or 1.0)]
    if not few:
        return lacking(claim, f"There is no run of {claim.named} with so few heads.")
    left = [sum(_kept(run, column) for column in run.columns if column.kind == "encoder") for run in few]
    ks = ", ".join(map(str, sorted({run.k for run in few})))
    ours = f"{mean_interval(left).mean:.1f} encoder heads on average"
    why = f"Runs of {claim.named}, K = {ks}."
    spread, seeds = f"{min(left)} to {max(left)} over runs", len({run.seed for run in few})
    return _by_seeds(claim, ours, spread, max(left) == 0, why, seeds)


def _pruned(results: Results, claim: Claim) -> list[Run]:
    return [run for run in results.of(claim.series[0]) if run.k < run.total]


def _no_run(claim: Claim) -> Finding:
    return lacking(claim, f"There is no run of {claim.named}.")


def _kinds(runs: Sequence[Run]) -> int:
    return len({column.kind for column in runs[0].columns})


def _kept_more(claim: Claim, runs: Sequence[Run], chosen: Chosen, what: str) -> Finding:
    """Compares the share of heads kept in some columns with that in the others."""
    found = {(run.k, run.seed): _share(run, chosen) - _share(run, lambda column: not chosen(column)) for run in runs}
    ks = ", ".join(map(str, sorted({run.k for run in runs})))
    return above_zero(claim, found, PERCENT, f"{_begin(claim.named)}, K = {ks}: {what}")


def _begin(words: str) -> str:
    return words[:1].upper() + words[1:]


def _share(run: Run, chosen: Chosen) -> float:
    """The share of the heads of some columns that a run keeps."""
    columns = [column for column in run.columns if chosen(column)]
    kept = sum(_kept(run, column) for column in columns)
    return kept / max(1, sum(column.heads for column in columns))


def _kept(run: Run, column: Column) -> int:
    return len(run.record["kept"].get(column.site, ()))


def settles(results: Results, claim: Claim) -> Finding:
    """Whether the heads that stay are chosen two thirds through training."""
    shares = _late_shares(results, claim, True)
    if not shares:
        return _no_log(claim)
    found = over_seeds(shares)
    why = (
        "Least share of the final heads chosen in the last third of training, mean over "
        f"{found.count} seeds; settled means {100 * SETTLED:.0f} % or more."
    )
    return judged(claim, found, Unit(100, "{:.1f}", "%"), found.low >= SETTLED, why)


def unsettled(results: Results, claim: Claim) -> Finding:
    """Whether that share is smaller without annealing."""
    with_, without = (_late_shares(results, claim, annealed) for annealed in (True, False))
    if not with_:
        return _no_log(claim)
    found = {place: with_[place] - without[place] for place in with_.keys() & without.keys()}
    if not found:
        return lacking(claim, "No K and seed ran with and without annealing.")
    return above_zero(claim, found, PERCENT, "That share with annealing minus without")


def _no_log(claim: Claim) -> Finding:
    return lacking(claim, f"No run of {claim.named} logged its heads while it trained.")


def _late_shares(results: Results, claim: Claim, annealed: bool) -> Mapping[Place, float]:
    runs = [run for run in joint_runs(results, annealed) if run.key in claim.series]
    return {((run.k, run.variant), run.seed): _late_share(run) for run in runs}


def _late_share(run: Run) -> float:
    """The lowest share of final heads from two thirds of training on."""
    shares = chosen_shares(run)
    begin = LATE * max(shares)
    return min(share for step, share in shares.items() if step >= begin)
