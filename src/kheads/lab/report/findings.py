"""What was found, in a sentence or three: the opening of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kheads.lab.report.budget_quality import spots
from kheads.lab.report.efficiency import by_k, mean
from kheads.lab.report.pooling import by_first, count_of, listed
from kheads.lab.report.quality import shown
from kheads.lab.report.results import Results
from kheads.lab.report.style import plain_name, scale
from kheads.lab.terminal import PLAIN_METRICS
from kheads.measuring.statistics import DECIDES, ENOUGH, Interval, mean_interval

TYPICAL = 1 / 6  # of the heads: with fewer, says the paper, methods come apart

# The mean quality of each method at one K, by its label; the best one first.
Standing = list[tuple[str, Interval]]


def findings(results: Results) -> list[str]:
    """How good the best models are, who leads where, and how sure that is; speed where nothing else was measured."""
    standings = _standings(results)
    if not standings:
        return _budgets(results) or _speed(results)
    return [told for told in (_losses(results, standings), _leaders(results, standings), _sureness(standings)) if told]


def _budgets(results: Results) -> list[str]:
    """What the best model of the largest and of the smallest size is worth, beside the unpruned one."""
    found = spots(results)
    if not found:
        return []
    unpruned = results.unpruned()
    whole = mean_interval(list(unpruned.values())).mean if unpruned else None
    ends = {spot.asked: spot for spot in (found[-1], found[0])}.values()
    told = "; ".join(
        f"{spot.look.label}, {spot.asked}, with {spot.kept:.0f} % of the parameters, "
        f"{_reached(results, spot.quality.mean, whole)}"
        for spot in ends
    )
    what = f"{_name(results)} on {results.evaluation}"
    if whole is None:
        return [f"The largest and the smallest model: {told}. The numbers are {what}."]
    return [f"Unpruned, {what} is {_written(results, whole)}. The largest and the smallest model: {told}."]


def _standings(results: Results) -> dict[int, Standing]:
    """By rising K, below all heads."""
    means = {look.label: by_first(values) for look, values in shown(results)}
    ks = sorted({k for found in means.values() for k in found if k < results.total})
    return {k: _best_first(means, k, results.sign) for k in ks}


def _best_first(means: Mapping[str, Mapping[int, Interval]], k: int, sign: int) -> Standing:
    there = [(label, found[k]) for label, found in means.items() if k in found]
    return sorted(there, key=lambda one: -sign * one[1].mean)


def _losses(results: Results, standings: Mapping[int, Standing]) -> str:
    """The best with the most heads, with a sixth of them, and with the fewest, beside the unpruned model."""
    typical = min(standings, key=lambda k: abs(k - TYPICAL * results.total))
    ks = sorted({max(standings), typical, min(standings)}, reverse=True)
    unpruned = results.unpruned()
    whole = mean_interval(list(unpruned.values())).mean if unpruned else None
    parts = [f"{standings[k][0][0]} with {k}, {_reached(results, standings[k][0][1].mean, whole)}" for k in ks]
    parts[0] = parts[0].replace(f" with {ks[0]},", f" with {ks[0]} of {results.total} heads,", 1)
    what = f"{_name(results)} on {results.evaluation}"
    best = f"The best pruned model{'s'[: len(ks) != 1]}: {'; '.join(parts)}."
    if whole is None:
        return f"{best} The numbers are {what}."
    return f"Unpruned, {what} is {_written(results, whole)}. {best}"


def _reached(results: Results, quality: float, whole: float | None) -> str:
    """How good a model is, or how much better or worse than the unpruned one."""
    if whole is None:
        return _written(results, quality)
    gain = results.sign * (quality - whole)
    return f"{_points(results, abs(gain))} {'better' if gain > 0 else 'worse'}"


def _leaders(results: Results, standings: Mapping[int, Standing]) -> str:
    """Which method is ahead at which K, and by how much."""
    contested = {k: standing for k, standing in standings.items() if len(standing) > 1}
    leads: dict[str, list[int]] = {}
    for k, standing in contested.items():
        leads.setdefault(standing[0][0], []).append(k)
    parts = [
        f"{label} at K = {listed(ks)}, by {_margins(results, [contested[k] for k in ks])}"
        for label, ks in sorted(leads.items(), key=lambda lead: -len(lead[1]))
    ]
    return f"Ahead of the next best: {'; '.join(parts)}." if parts else ""


def _margins(results: Results, standings: Sequence[Standing]) -> str:
    gaps = sorted(abs(standing[0][1].mean - standing[1][1].mean) for standing in standings)
    least, most = (_points(results, gap) for gap in (gaps[0], gaps[-1]))
    return least if least == most else f"{least.split()[0]} to {most}"


def _sureness(standings: Mapping[int, Standing]) -> str:
    counts = {found.count for standing in standings.values() for _, found in standing}
    least, most = min(counts), max(counts)
    told = count_of(least, "seed") if least == most else f"{least} {'to' if most > least + 1 else 'or'} {most} seeds"
    begin = f"Every number is one run ({told})" if most == 1 else f"Every number is a mean over {told}"
    if least < DECIDES:
        return f"{begin}, which is too few to be sure of a difference."
    return f"{begin}." if least >= ENOUGH else f"{begin}; differences within the bars may be chance."


def _speed(results: Results) -> list[str]:
    """The fewest heads of each model that was measured."""
    return [told for measured in results.efficiency for told in _fastest(measured["rows"], int(measured["heads"]))]


def _fastest(rows: Sequence[Mapping[str, object]], heads: int) -> list[str]:
    speeds, saved = by_k(rows, "speedup"), by_k(rows, "shrinkage")
    if not speeds:
        return []
    k = min(speeds, key=lambda k: abs(k - TYPICAL * heads))
    size = f" and has {100 * mean(saved[k]):.1f} % fewer parameters" if k in saved else ""
    ends = f"{min(speeds[k]):.2f} to {max(speeds[k]):.2f}"
    masks = count_of(len(speeds[k]), "random mask")
    return [
        f"With {k} of {heads} heads, the model is {mean(speeds[k]):.2f} times as fast{size} ({masks}: {ends} times)."
    ]


def _name(results: Results) -> str:
    name = plain_name(results.metric)
    return name if name.isupper() else name[0].lower() + name[1:]


def _written(results: Results, value: float) -> str:
    unit = "" if results.metric in PLAIN_METRICS else " %"
    return f"{scale(results.metric) * value:.2f}{unit}"


def _points(results: Results, value: float) -> str:
    unit = plain_name(results.metric) if results.metric in PLAIN_METRICS else "points"
    return f"{scale(results.metric) * value:.2f} {unit}"
