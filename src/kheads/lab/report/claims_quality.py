"""Claims about quality: which method is above which."""

from __future__ import annotations

from collections.abc import Sequence

from kheads.lab.report.pooling import Qualities, differences
from kheads.lab.report.results import Results
from kheads.lab.report.style import scale
from kheads.lab.report.verdicts import Finding, Unit, above_zero, lacking
from kheads.lab.terminal import PLAIN_METRICS
from kheads.methods.claims import Claim


def better(results: Results, claim: Claim) -> Finding:
    """Compares the mean of some methods with the mean of others, wherever all of them were run."""
    most = results.total * claim.below if claim.below is not None else results.total + 1
    first, second = (_mean_of(results, keys) for keys in (claim.series, claim.against))
    found = differences(first, second, lambda k: k < most)
    if not found:
        return lacking(claim, "No K and seed has both.")
    ks = ", ".join(map(str, sorted({k for k, _ in found})))
    signed = {place: results.sign * value for place, value in found.items()}
    return above_zero(claim, signed, points(results.metric), f"Difference over K = {ks}")


def points(metric: str) -> Unit:
    """How a difference in the headline metric is written."""
    return Unit(scale(metric), name=metric if metric in PLAIN_METRICS else "points")


def _mean_of(results: Results, keys: Sequence[str]) -> Qualities:
    """The mean of methods wherever all of them were run."""
    found = [results.qualities(results.of(key)) for key in keys]
    places = set.intersection(*[set(one) for one in found])
    return {place: sum(one[place] for one in found) / len(found) for place in places}
