"""Claims about quality: which method is above which."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kheads.lab.report.pooling import Qualities, pairs
from kheads.lab.report.results import LOWER_IS_BETTER, Results
from kheads.lab.report.style import scale
from kheads.lab.report.verdicts import Claim, Unit, above_zero, lacking
from kheads.lab.terminal import PLAIN_METRICS

JOINT, PIPELINED = ("dsp", "ste", "voita"), ("dsp-pipelined", "michel")
FEW = 1 / 6  # "when less than 1/6 of the heads are left unpruned"


def quality_claims(results: Results) -> list[Claim]:
    """Pipelined DSP against Michel, joint against pipelined, DSP against Voita and STE with few heads."""
    few = results.total * FEW

    def is_few(k: int) -> bool:
        return k < few

    return [
        _above(results, "Pipelined DSP is better than Michel.", "§5.1", ("dsp-pipelined", "michel")),
        _above(results, "Joint DSP is better than pipelined DSP.", "§5.3", ("dsp", "dsp-pipelined")),
        _joint_above_pipelined(results),
        _above(
            results,
            "With less than 1/6 of the heads, joint DSP is better than Voita.",
            "§5.2",
            ("dsp", "voita"),
            is_few,
        ),
        _above(
            results, "With less than 1/6 of the heads, joint DSP is better than STE.", "§5.2", ("dsp", "ste"), is_few
        ),
    ]


def _above(
    results: Results, paper: str, where: str, methods: tuple[str, str], which: Callable[[int], bool] = lambda k: True
) -> Claim:
    first, second = (results.qualities(results.of(key)) for key in methods)
    return _judged(results, paper, where, first, second, which)


def _joint_above_pipelined(results: Results) -> Claim:
    first, second = (_mean_of([results.qualities(results.of(key)) for key in keys]) for keys in (JOINT, PIPELINED))
    paper = "Joint methods (DSP, STE, Voita) are better than pipelined ones (DSP, Michel) on average."
    return _judged(results, paper, "§5.3", first, second)


def _judged(
    results: Results,
    paper: str,
    where: str,
    first: Qualities,
    second: Qualities,
    which: Callable[[int], bool] = lambda k: True,
) -> Claim:
    a, b, ks = pairs(first, second, which)
    if not ks:
        return lacking(paper, where, "No K and seed has both.")
    sign = -1 if results.metric in LOWER_IS_BETTER else 1
    unit = Unit(scale(results.metric), name=results.metric if results.metric in PLAIN_METRICS else "points")
    differences = [sign * (one - other) for one, other in zip(a, b, strict=True)]
    what = f"pairs of K and seed (K = {', '.join(map(str, sorted(set(ks))))})"
    return above_zero(paper, where, differences, unit, what)


def _mean_of(methods: Sequence[Qualities]) -> Qualities:
    """The mean of methods wherever all of them were run."""
    if not all(methods):
        return {}
    places = set.intersection(*[set(found) for found in methods])
    return {place: sum(found[place] for found in methods) / len(methods) for place in places}
