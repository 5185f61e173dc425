"""How a claim is judged: a number, its interval, and one of three verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kheads.lab.report.pooling import count_of
from kheads.measuring.statistics import DECIDES, ENOUGH, Interval, Varied, over_seeds
from kheads.methods.claims import Claim

CONFIRMED, NOT_CONFIRMED, TOO_LITTLE = VERDICTS = ("confirmed", "not confirmed", "not enough data")
NO_NUMBER = "–"


@dataclass(frozen=True)
class Finding:
    """What the results say of a claim.

    Attributes:
        claim: what is claimed.
        ours: our number.
        interval: its interval; empty where the claim is no matter of chance.
        verdict: one of `VERDICTS`.
        why: what was compared, or what is missing.
    """

    claim: Claim
    ours: str
    interval: str
    verdict: str
    why: str

    @property
    def has_data(self) -> bool:
        """Whether there is a number at all."""
        return self.ours != NO_NUMBER


@dataclass(frozen=True)
class Unit:
    """How numbers of a claim are written."""

    factor: float = 1.0
    form: str = "{:+.2f}"
    name: str = ""

    def write(self, value: float) -> str:
        """A number with its sign and unit."""
        return self._plain(value) + (f" {self.name}" if self.name else "")

    def span(self, found: Interval) -> str:
        """The interval, or the range of two; nothing where there is none."""
        if not math.isfinite(found.low):
            return ""
        remark = " (range of two)" if found.is_range else ""
        return f"{self._plain(found.low)} to {self._plain(found.high)}{remark}"

    def _plain(self, value: float) -> str:
        return self.form.format(self.factor * value).replace("-", "−")


PERCENT = Unit(100, "{:+.1f}", "%")


def lacking(claim: Claim, why: str) -> Finding:
    """A claim of which these results say nothing."""
    return Finding(claim, NO_NUMBER, "", TOO_LITTLE, why)


def judged(claim: Claim, found: Interval, unit: Unit, holds: bool, why: str) -> Finding:
    """A claim whose number is a mean over seeds; too few of them decide nothing.

    Args:
        claim: what is claimed.
        found: the number with its interval over seeds.
        unit: how to write it.
        holds: whether the whole interval is on the claim's side.
        why: what was compared.
    """
    decided = CONFIRMED if holds else NOT_CONFIRMED
    verdict = decided if found.count >= DECIDES else TOO_LITTLE
    return Finding(claim, unit.write(found.mean), unit.span(found), verdict, f"{why} {sureness(found.count)}".strip())


def sureness(seeds: int) -> str:
    """What so many seeds are worth, where that has to be said."""
    if seeds < DECIDES:
        return "One seed decides nothing." if seeds == 1 else "Two seeds decide nothing."
    return "" if seeds >= ENOUGH else f"With fewer than {ENOUGH} seeds, the interval is narrower than 95 %."


def above_zero(claim: Claim, values: Mapping[tuple[Varied, int], float], unit: Unit, what: str) -> Finding:
    """Confirmed where the whole interval of the mean over seeds is above zero.

    Args:
        claim: what is claimed.
        values: differences by what was varied (such as K) and seed.
        unit: how to write them.
        what: what the values are, for the reader.
    """
    found = over_seeds(values)
    return judged(claim, found, unit, found.low > 0, f"{what}, mean over {count_of(found.count, 'seed')}.")
