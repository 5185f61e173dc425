"""How a claim is judged: a number, its interval, and one of three verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kheads.measuring.statistics import ENOUGH, Interval, mean_interval

CONFIRMED, NOT_CONFIRMED, TOO_LITTLE = VERDICTS = ("confirmed", "not confirmed", "not enough data")


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes:
        paper: what it says, in one sentence.
        where: the section.
        ours: our number.
        interval: its interval; empty where the claim is no matter of chance.
        verdict: one of `VERDICTS`.
        why: what was compared, or what is missing.
    """

    paper: str
    where: str
    ours: str
    interval: str
    verdict: str
    why: str


@dataclass(frozen=True)
class Unit:
    """How numbers of a claim are written."""

    factor: float = 1.0
    form: str = "{:+.2f}"
    name: str = ""

    def write(self, value: float) -> str:
        """A number with its sign and unit."""
        return self.form.format(self.factor * value).replace("-", "−") + (f" {self.name}" if self.name else "")

    def span(self, found: Interval) -> str:
        """The interval; nothing where there is none."""
        ends = [self.form.format(self.factor * end).replace("-", "−") for end in (found.low, found.high)]
        return f"{ends[0]} to {ends[1]}" if math.isfinite(found.low) else ""


def lacking(paper: str, where: str, why: str) -> Claim:
    """A claim that these results cannot judge."""
    return Claim(paper, where, "–", "", TOO_LITTLE, why)


def above_zero(paper: str, where: str, values: Sequence[float], unit: Unit, what: str) -> Claim:
    """Confirmed where the whole interval of the mean is above zero; few values decide nothing.

    Args:
        paper: the claim.
        where: its section.
        values: differences, one per pair.
        unit: how to write them.
        what: what the values are, for the reader.
    """
    if not values:
        return lacking(paper, where, f"There are no {what}.")
    found = mean_interval(values)
    why = f"Mean over {found.count} {what}."
    if found.count < ENOUGH:
        more = f"{why} An interval needs {ENOUGH} or more."
        return Claim(paper, where, unit.write(found.mean), unit.span(found), TOO_LITTLE, more)
    verdict = CONFIRMED if found.low > 0 else NOT_CONFIRMED
    return Claim(paper, where, unit.write(found.mean), unit.span(found), verdict, why)
