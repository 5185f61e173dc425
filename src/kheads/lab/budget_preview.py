"""`preview` over budgets: quality, size and speed at ten budgets, of heads alone and of heads and neurons."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from kheads.anatomy import discover
from kheads.blocks.budget import Budget
from kheads.blocks.fields import OneOf, check_fields
from kheads.blocks.kept import Kept
from kheads.blocks.site import part, total
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.preview import (
    ROUNDS,
    ROWS,
    Judged,
    Metrics,
    Tell,
    batch_at,
    cut_and_repaired,
    opened,
    plain_ratio,
    score,
    usual_length,
)
from kheads.measuring.measurement import Measurement, cut_copy, known_parts, measure, size
from kheads.measuring.pricing import price
from kheads.measuring.timing import Ratio
from kheads.measuring.work import least
from kheads.methods.base import Goal
from kheads.training.run import Run

EDGE = 0.95  # of what can go at all: beyond it a few blocks are left
HARDLY = 1e-4  # a share of the whole that is not worth a budget
WITHIN, BEYOND = 4, 6  # budgets that heads alone can meet, and further ones
BOTH = ("heads", "all")
HEADS_ALONE = "kheads does not know the feed-forward layers of this model, so the preview is of its heads alone."


@dataclass(frozen=True)
class BudgetRequest:
    """What to look at.

    Attributes:
        budgets: What the budgets are of: params, flops or speedup.
        parts: What may go: heads, ffn or all; by default heads alone and, beside it, all.
        timed: Measure speed, too.
        at: Examples and tokens of the batch that speed and FLOPs are about; by default 8 of the usual length.
    """

    budgets: Annotated[str, OneOf(("params", "flops", "speedup"))] = "params"
    parts: Annotated[str, OneOf(("heads", "ffn", "all"))] | None = None
    timed: bool = True
    at: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def budget(self, removed: float, batch: tuple[int, int]) -> Budget:
        """What is left when so much of the whole cost is removed."""
        if self.budgets == "params":
            return Budget(params=1 - removed)
        if self.budgets == "flops":
            return Budget(flops=1 - removed, at=batch)
        return Budget(speedup=max(1.01, math.floor(100 / (1 - removed) + 1e-9) / 100), at=batch)


@dataclass(frozen=True)
class BudgetPoint:
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
class BudgetPreview(Judged):
    """What each budget gives without training.

    Attributes:
        model: the model that was given.
        method: how its blocks were chosen.
        heads: how many it has.
        neurons: how many it has; None where only heads could go.
        parameters: how many it has.
        metric: the headline metric.
        lower_is_better: whether a smaller metric is a better one.
        evaluation: the first evaluation set, on which that metric counts.
        examples: how many are in that set.
        unpruned: metrics of the model as it was given.
        budgets: what was looked at, from the most that may stay to the least.
        points: what each of them gives for each of the parts; one that cannot be met has no point.
        limits: what is left without any block, one for each of the parts.
        timing: how speed was measured: batch, tokens, rounds, threads, device; None where it was not.
        seconds: how long it took.
        remarks: what else there is to say, a sentence each.
    """

    model: str
    method: str
    heads: int
    neurons: int | None
    parameters: int
    metric: str
    lower_is_better: bool
    evaluation: str
    examples: int
    unpruned: Metrics
    budgets: tuple[Budget, ...]
    points: tuple[BudgetPoint, ...]
    limits: tuple[Limit, ...]
    timing: Mapping[str, Any] | None
    seconds: float
    remarks: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What could go, in the order of columns."""
        return tuple(limit.parts for limit in self.limits)

    def worse(self, point: BudgetPoint) -> float:
        """How much worse a repaired model is than the unpruned one: in points, or in percent where lower is better."""
        return self.loss(point.repaired)

    def at(self, budget: Budget, parts: str) -> BudgetPoint | None:
        """What a budget gives; None where it cannot be met."""
        return next((point for point in self.points if (point.budget, point.parts) == (budget, parts)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data. `worse` is in points, or in percent where lower is better."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        points = [
            {
                **{name: getattr(point, name) for name in ("parts", "heads", "neurons", "parameters")},
                "budget": plain_budget(point.budget),
                "cut": point.cut,
                "repaired": point.repaired,
                "worse": self.worse(point),
                "speedup": plain_ratio(point.speedup),
            }
            for point in self.points
        ]
        limits = [{**dataclasses.asdict(limit), "speedup": plain_ratio(limit.speedup)} for limit in self.limits]
        budgets = [plain_budget(budget) for budget in self.budgets]
        return {**fields, "budgets": budgets, "points": points, "limits": limits}


def plain_budget(budget: Budget) -> dict[str, Any]:
    """What was given of a budget, as plain data."""
    given = {name: value for name, value in dataclasses.asdict(budget).items() if value is not None}
    return {**given, **({"at": list(budget.batch)} if budget.at is not None else {})}


def shares(limits: Sequence[float]) -> list[float]:
    """Ten shares to remove, rising: some that heads alone can lose, and further ones up to what all parts can.

    Args:
        limits: the share that each of the parts costs; no more can go.
    """
    few, many = min(limits), EDGE * max(limits)
    if 0 < EDGE * few < many and few < many:
        raw = [EDGE * few * turn / WITHIN for turn in range(1, WITHIN + 1)]
        raw += [few + (many - few) * turn / BEYOND for turn in range(1, BEYOND + 1)]
    else:
        raw = [many * turn / (WITHIN + BEYOND) for turn in range(1, WITHIN + BEYOND + 1)]
    for digits in (100, 1000, 10_000):  # whole percent where they tell the budgets apart
        found = [math.floor(share * digits + 1e-9) / digits for share in raw]
        if found[0] > 0 and len(set(found)) == len(found):
            return found
    return sorted({share for share in found if share > 0} or {raw[-1]})


def preview_budgets(job: Job, prepared: Prepared, asked: BudgetRequest, tell: Tell) -> BudgetPreview:
    """Scores the blocks once for each of the parts, and cuts and repairs a copy of the model for every budget.

    Args:
        job: what `ready` settled: the model, its data, the method.
        prepared: what it loaded; the model is left as it was.
        asked: which budgets to look at, and whether to take times.
        tell: is told how far it is.
    """
    begin = time.monotonic()
    parts = parts_for(prepared.model, asked.parts)
    shape = (int(asked.at[0]), int(asked.at[1])) if asked.at else (ROWS, usual_length(prepared))
    batch = batch_at(prepared, shape) if asked.timed else None
    tell("finding out what blocks cost", 0, 0)
    goals = [goal_for(job, prepared.model, asked.budget(0.5, shape), name) for name in parts]
    limits = [removable(goal) for goal in goals]
    budgets = (
        list(dict.fromkeys(asked.budget(share, shape) for share in shares(limits))) if max(limits) > HARDLY else []
    )
    plans = [[reach for budget in budgets if (reach := reachable(goal, budget)) is not None] for goal in goals]
    if not any(plans):
        raise ValueError(nothing_to_remove(parts[-1]))
    done, of = 0, sum(map(len, plans))
    points: list[BudgetPoint] = []
    with tempfile.TemporaryDirectory(prefix="kheads-", ignore_cleanup_errors=True) as folder:
        run = opened(job, prepared, folder)
        tell("measuring the unpruned model", 0, of)
        unpruned = run.bench.evaluate()[0]
        emptied = _limits(prepared.model, goals, batch)
        for plan in (plan for plan in plans if plan):
            tell(f"scoring {named(plan[0].parts)}", done, of)
            score(run, plan[-1])  # scores that lead to the fewest blocks serve every budget
            for goal in plan:
                points.append(_point(run, goal, batch, _at(tell, done, of)))
                done += 1
    evaluation, rows = next(iter(prepared.evals.items()))
    known = {part(site): total(s for s in goal.sites if part(s) == part(site)) for goal in goals for site in goal.sites}
    alone = (HEADS_ALONE,) if asked.parts is None and len(parts) == 1 else ()
    return BudgetPreview(
        model=job.model,
        method=job.method_name,
        heads=known.get("heads", total(discover(prepared.model, job.unit))),
        neurons=known.get("ffn"),
        parameters=size(prepared.model)["parameters"],
        metric=prepared.metric,
        lower_is_better=prepared.lower_is_better,
        evaluation=evaluation,
        examples=len(rows),
        unpruned=unpruned,
        budgets=tuple(budgets),
        points=tuple(points),
        limits=tuple(emptied),
        timing=_timing(points),
        seconds=time.monotonic() - begin,
        remarks=tuple(dict.fromkeys((*prepared.notes, *alone))),
    )


def parts_for(model: Any, asked: str | None) -> tuple[str, ...]:
    """What may go: what was asked for, or heads and beside it all parts, where kheads knows them."""
    if asked is not None:
        return (asked,)
    return BOTH if known_parts(model) == "all" else BOTH[:1]


def named(parts: str) -> str:
    """What people call the blocks of some parts."""
    return {"heads": "heads", "ffn": "neurons", "all": "heads and neurons"}[parts]


def goal_for(job: Job, model: Any, budget: Budget, parts: str) -> Goal:
    """What a choice from these parts is for, with what blocks cost; the budget stands for others of its kind."""
    sites = discover(model, job.unit, parts)
    return Goal(budget, sites, None, job.unit, price(model, budget, sites))


def removable(goal: Goal) -> float:
    """The share of the whole cost that can go: all blocks, but one where a site is never empty."""
    assert goal.costs is not None, "a budget has costs"
    return 1 - goal.costs.of(least(goal.sites), goal.sites) / goal.costs.whole


def nothing_to_remove(parts: str) -> str:
    """Why there is no budget to look at."""
    more = "" if parts == "all" else "; look at other `parts`"
    return f"There is nothing to remove: {named(parts)} that could go are hardly any of this model{more}."


def reachable(goal: Goal, budget: Budget) -> Goal | None:
    """The goal with another budget; None where these parts cannot meet it."""
    found = replace(goal, budget=budget)
    try:
        found.kept(torch.zeros(found.total))
    except ValueError:
        return None
    return found


def _point(run: Run, goal: Goal, batch: Mapping[str, Tensor] | None, tell: Callable[[str], None]) -> BudgetPoint:
    """Cuts, repairs and measures a copy of the model."""
    label = f"{goal.budget}, {named(goal.parts)}"
    kept = goal.kept(run.scores)
    cut, repaired = cut_and_repaired(run, kept, lambda text: tell(f"{label}: {text}"))
    tell(f"{label}: taking times")
    model = run.bench.model
    measured = None if batch is None else measure(model, batch, run.original, repeats=ROUNDS)
    heads, neurons = counted(goal, kept, run.original)
    assert isinstance(goal.budget, Budget), "a preview of budgets"
    return BudgetPoint(goal.budget, goal.parts, heads, neurons, size(model)["parameters"], cut, repaired, measured)


def counted(goal: Goal, kept: Kept, model: Any) -> tuple[int, int | None]:
    """How many heads stay, and neurons where these could go."""
    blocks = kept.to_dict()
    found = {name: [len(blocks[site.name]) for site in goal.sites if part(site) == name] for name in ("heads", "ffn")}
    heads = sum(found["heads"]) if found["heads"] else total(discover(model, goal.unit))
    return heads, sum(found["ffn"]) if found["ffn"] else None


def _limits(model: Any, goals: Sequence[Goal], batch: Mapping[str, Tensor] | None) -> list[Limit]:
    """The model without any block of each of the parts; its speed where one is to be measured."""
    empty = {goal.parts: cut_copy(model, Kept(tuple((site.name, ()) for site in goal.sites))) for goal in goals}
    sizes = {parts: size(found)["parameters"] for parts, found in empty.items()}
    if batch is None:
        return [Limit(parts, count) for parts, count in sizes.items()]
    speeds = {
        parts: measure(found, batch, model, repeats=ROUNDS).model.grid[0].speedup for parts, found in empty.items()
    }
    return [Limit(parts, count, speeds[parts]) for parts, count in sizes.items()]


def _timing(points: Sequence[BudgetPoint]) -> dict[str, Any] | None:
    measured = points[-1].measured if points else None
    if measured is None:
        return None
    batch = measured.model.grid[0]
    return {"batch": batch.batch, "length": batch.length, **measured.settings}


def _at(tell: Tell, done: int, of: int) -> Callable[[str], None]:
    return lambda text: tell(text, done, of)
