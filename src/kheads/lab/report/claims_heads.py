"""Claims about heads: Voita's penalty, which heads go first, and when the choice settles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from kheads.lab.report.dynamics import chosen_shares, joint_runs
from kheads.lab.report.penalty import own_counts
from kheads.lab.report.results import Results, Run, Variant
from kheads.lab.report.sites import Column
from kheads.lab.report.verdicts import CONFIRMED, NOT_CONFIRMED, TOO_LITTLE, Claim, Unit, above_zero, lacking
from kheads.measuring.statistics import ENOUGH, mean_interval

LEAST_LAMBDAS = 4
FLAT = 0.05  # of all heads: the curve has reached its upper end where it changes by less
LATE = 2 / 3  # of training
SETTLED = 0.95  # of the heads
Place = tuple[int, int, Variant]  # K, seed, and what else sets a run apart
PERCENT = Unit(100, "{:+.1f}", "%")


def head_claims(results: Results) -> list[Claim]:
    """In the paper's order."""
    return [not_monotone(results), upper_bound(results), *first_pruned(results), *annealing(results)]


def not_monotone(results: Results) -> Claim:
    """Counts where a larger lambda keeps more heads, in every seed's own staircase."""
    paper = "The number of heads does not fall monotonically as λ grows."
    ladders = _ladders(results)
    if not ladders:
        return lacking(paper, "§5.2", f"No seed has {LEAST_LAMBDAS} or more values of λ.")
    steps = [after - before for ladder in ladders for before, after in itertools.pairwise(ladder)]
    rises = [step for step in steps if step > 0]
    seeds = sum(any(after > before for before, after in itertools.pairwise(one)) for one in ladders)
    why = f"{seeds} of {len(ladders)} seeds have a step up" + (
        f"; the largest is {max(rises):g} heads." if rises else "."
    )
    verdict = CONFIRMED if 2 * seeds > len(ladders) else NOT_CONFIRMED
    return Claim(paper, "§5.2", f"{len(rises)} of {len(steps)} steps go up", "", verdict, why)


def upper_bound(results: Results) -> Claim:
    """Where the smallest lambdas give about the same number of heads, and that is not all of them."""
    paper = "However small λ is, not all heads are kept (117 of 144 in the paper)."
    ladders = _ladders(results)
    if not ladders:
        return lacking(paper, "§5.2", f"No seed has {LEAST_LAMBDAS} or more values of λ.")
    most = [max(ladder) for ladder in ladders]
    change = max(abs(ladder[0] - ladder[1]) for ladder in ladders)
    ours = f"at most {max(most):g} of {results.total} heads"
    spread = f"{min(most):g} to {max(most):g} over seeds"
    if max(most) >= results.total:
        return Claim(paper, "§5.2", ours, spread, NOT_CONFIRMED, "A small λ keeps every head.")
    if change > FLAT * results.total:
        why = f"The two smallest λ still differ by {change:g} heads; smaller ones might keep more."
        return Claim(paper, "§5.2", ours, spread, TOO_LITTLE, why)
    why = f"The two smallest λ differ by {change:g} heads at most, so a smaller one would hardly keep more."
    return Claim(paper, "§5.2", ours, spread, CONFIRMED, why)


def _ladders(results: Results) -> list[list[float]]:
    """Each seed's numbers of heads by rising lambda."""
    counts = own_counts(results)
    seeds = sorted({seed for _, seed in counts})
    ladders = [[counts[weight, seed] for weight, one in sorted(counts) if one == seed] for seed in seeds]
    return [ladder for ladder in ladders if len(ladder) >= LEAST_LAMBDAS]


def first_pruned(results: Results) -> list[Claim]:
    """By layer where there is one kind of attention, by kind where there are several."""
    top = "The top layers (the last quarter) are pruned first."
    middle = "The middle layers (3 to 7 of 12) are mostly retained."
    cross = "Cross-attention heads are retained more than self-attention heads."
    encoder = "With less than 16 of 72 heads, no self-attention head of the encoder is left."
    runs = [run for run in results.of("dsp") if run.k < run.total]
    if not runs:
        return [lacking(paper, "§5.5", "There is no run of joint DSP.") for paper in (top, middle, cross, encoder)]
    what = "runs of joint DSP"
    if len({column.kind for column in runs[0].columns}) == 1:
        depth = len(runs[0].columns)
        higher = [
            _share(run, lambda c: c.layer <= depth * 3 / 4) - _share(run, lambda c: c.layer > depth * 3 / 4)
            for run in runs
        ]
        inner = [_share(run, _is_middle(depth)) - _share(run, _not(_is_middle(depth))) for run in runs]
        why = "The model has one kind of attention."
        return [
            above_zero(top, "§5.5", higher, PERCENT, f"{what}: share kept below minus share kept there"),
            above_zero(middle, "§5.5", inner, PERCENT, f"{what}: share kept there minus share kept elsewhere"),
            lacking(cross, "§5.5", why),
            lacking(encoder, "§5.5", why),
        ]
    kept = [_share(run, lambda c: c.kind == "cross") - _share(run, lambda c: c.kind != "cross") for run in runs]
    why = "The paper says it of an encoder alone (BERT)."
    return [
        lacking(top, "§5.5", why),
        lacking(middle, "§5.5", why),
        above_zero(cross, "§5.5", kept, PERCENT, f"{what}: share kept of cross minus of self-attention"),
        _encoder_emptied(encoder, runs),
    ]


def _is_middle(depth: int) -> Callable[[Column], bool]:
    return lambda column: 2 / 12 < (column.layer - 0.5) / depth < 7 / 12


def _not(test: Callable[[Column], bool]) -> Callable[[Column], bool]:
    return lambda column: not test(column)


def _share(run: Run, chosen: Callable[[Column], bool]) -> float:
    """The share of the heads of some columns that a run keeps."""
    columns = [column for column in run.columns if chosen(column)]
    kept = sum(len(run.record["kept"].get(column.site, ())) for column in columns)
    return kept / max(1, sum(column.heads for column in columns))


def _encoder_emptied(paper: str, runs: Sequence[Run]) -> Claim:
    few = [run for run in runs if run.k < run.total * 16 / 72]
    if not few:
        return lacking(paper, "§5.5", "There is no run of joint DSP with so few heads.")
    left = [
        sum(len(run.record["kept"].get(column.site, ())) for column in run.columns if column.kind == "encoder")
        for run in few
    ]
    ks = ", ".join(map(str, sorted({run.k for run in few})))
    verdict = CONFIRMED if max(left) == 0 else NOT_CONFIRMED
    ours = f"{mean_interval(left).mean:.1f} encoder heads on average"
    return Claim(paper, "§5.5", ours, f"{min(left)} to {max(left)} over runs", verdict, f"Runs of joint DSP, K = {ks}.")


def annealing(results: Results) -> list[Claim]:
    """The share of the final heads that is already chosen two thirds through training."""
    settles = "With annealing, the chosen subset settles during training."
    never = "Without annealing, it does not settle."
    with_, without = (_late_shares(joint_runs(results, annealed)) for annealed in (True, False))
    if not with_:
        why = "No run of joint DSP logged its heads while it trained."
        return [lacking(settles, "§5.6", why), lacking(never, "§5.6", why)]
    return [_settled(settles, with_), _unsettled(never, with_, without)]


def _late_shares(runs: Sequence[Run]) -> dict[Place, float]:
    return {(run.k, run.seed, run.variant): _late_share(run) for run in runs}


def _late_share(run: Run) -> float:
    """The lowest share of final heads from two thirds of training on."""
    shares = chosen_shares(run)
    begin = LATE * max(shares)
    return min(share for step, share in shares.items() if step >= begin)


def _settled(paper: str, shares: Mapping[Place, float]) -> Claim:
    found = mean_interval(list(shares.values()))
    unit = Unit(100, "{:.1f}", "%")
    why = (
        f"Least share of the final heads chosen in the last third of training, over {found.count} pairs of K and seed; "
        f"settled means {100 * SETTLED:.0f} % or more."
    )
    if found.count < ENOUGH:
        return Claim(paper, "§5.6", unit.write(found.mean), unit.span(found), TOO_LITTLE, f"{why} {ENOUGH} are needed.")
    verdict = CONFIRMED if found.low >= SETTLED else NOT_CONFIRMED
    return Claim(paper, "§5.6", unit.write(found.mean), unit.span(found), verdict, why)


def _unsettled(paper: str, with_: Mapping[Place, float], without: Mapping[Place, float]) -> Claim:
    places = with_.keys() & without.keys()
    if not places:
        return lacking(paper, "§5.6", "No K and seed ran with and without annealing.")
    differences = [with_[place] - without[place] for place in places]
    return above_zero(
        paper, "§5.6", differences, PERCENT, "pairs of K and seed: that share with annealing minus without"
    )
