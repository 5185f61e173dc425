"""What a preview finds: a point for each budget and part, and the limits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from kheads.blocks.budget import Budget
from kheads.lab.preview.judged import Judged, Metrics
from kheads.measuring.measurement import Measurement
from kheads.measuring.timing import Ratio


@dataclass(frozen=True)
class Point:
    """What one budget gives.

    Attributes:
        budget: what was asked for.
        parts: what could go: "heads", "ffn" or "all".
        heads: how many stay.
        neurons: how many stay; None where only heads could go.
        parameters: of the smaller model.
        cut: its metrics right after the cut.
        repaired: its metrics after the repair.
        measured: what it costs next to the unpruned model; None where that was not measured.
    """

    budget: Budget
    parts: str
    heads: int
    neurons: int | None
    parameters: int
    cut: Metrics
    repaired: Metrics
    measured: Measurement | None = None

    @property
    def speedup(self) -> Ratio | None:
        """How many times as fast as the unpruned model it is."""
        return self.measured.model.grid[0].speedup if self.measured else None


@dataclass(frozen=True)
class Limit:
    """What is left without any block of some parts; no budget leaves less.

    Attributes:
        parts: what is gone.
        parameters: that are left.
        speedup: how many times as fast the model is; None where that was not measured.
    """

    parts: str
    parameters: int
    speedup: Ratio | None = None


@dataclass(frozen=True)
class Preview(Judged):
    """What each budget gives without training.

    Attributes:
        model: the model that was given.
        method: how its blocks were chosen.
        heads: how many it has.
        neurons: how many it has; None where only heads could go.
        parameters: how many it has.
        budgets: what was looked at, all of one kind, from the most that may stay to the least.
        points: what each of them gives for each of the parts; one that cannot be met has no point.
        limits: what is left without any block, one for each of the parts.
        seconds: how long it took.
        remarks: what else there is to say, a sentence each.
    """

    model: str
    method: str
    heads: int
    neurons: int | None
    parameters: int
    budgets: tuple[Budget, ...]
    points: tuple[Point, ...]
    limits: tuple[Limit, ...]
    seconds: float
    remarks: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What the budgets are of: "heads", "params", "flops" or "speedup"."""
        return self.budgets[0].name

    @property
    def parts(self) -> tuple[str, ...]:
        """What could go, in the order of columns."""
        return tuple(limit.parts for limit in self.limits)

    @property
    def timing(self) -> dict[str, Any] | None:
        """How speed was measured: batch, tokens, rounds, threads, device; None where it was not."""
        measured = self.points[-1].measured
        if measured is None:
            return None
        batch = measured.model.grid[0]
        return {"batch": batch.batch, "length": batch.length, **measured.settings}

    def worse(self, point: Point) -> float:
        """How much worse a repaired model is than the unpruned one: in points, or in percent where lower is better."""
        return self.loss(point.repaired)

    def at(self, budget: Budget, parts: str) -> Point | None:
        """What a budget gives; None where it cannot be met."""
        return next((point for point in self.points if (point.budget, point.parts) == (budget, parts)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data. `worse` is in points, or in percent where lower is better."""
        limits = [dataclasses.asdict(limit) for limit in self.limits]
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "budgets": [plain_budget(budget) for budget in self.budgets],
            "points": [self._plain(point) for point in self.points],
            "limits": limits,
            **({"limit": limits[0], "least": limits[0]["parameters"]} if self.kind == "heads" else {}),
            "timing": self.timing,
        }

    def _plain(self, point: Point) -> dict[str, Any]:
        names = ("heads", "neurons", "parameters", "cut", "repaired")
        return {
            **plain_asked(point),
            **{name: getattr(point, name) for name in names},
            "worse": self.worse(point),
            "speedup": point.speedup and dataclasses.asdict(point.speedup),
        }


def plain_asked(point: Point) -> dict[str, Any]:
    """What was asked for, as plain data: a number of heads is there as `k`, too."""
    k = {} if point.budget.heads is None else {"k": point.heads}
    return {**k, "budget": plain_budget(point.budget), "parts": point.parts}


def plain_budget(budget: Budget) -> dict[str, Any]:
    """What was given of a budget, as plain data."""
    given = {name: value for name, value in dataclasses.asdict(budget).items() if value is not None}
    return {**given, **({"at": list(budget.batch)} if budget.at is not None else {})}
