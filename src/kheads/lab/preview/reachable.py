"""Which budgets a model can meet, by heads alone or by other parts of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kheads.anatomy import discover
from kheads.blocks.budget import Budget
from kheads.blocks.site import total
from kheads.lab.jobs.job import Job
from kheads.lab.preview.amounts import named
from kheads.lab.preview.request import Request
from kheads.measuring.measurement import known_parts
from kheads.measuring.pricing import price
from kheads.measuring.work import least
from kheads.methods.base import Goal

EDGE = 0.95  # of what can go at all: beyond it a few blocks are left
HARDLY = 1e-4  # a share of the whole that is not worth a budget
WITHIN, BEYOND = 4, 6  # budgets that heads alone can meet, and further ones
BOTH = ("heads", "all")


@dataclass(frozen=True)
class Reachable:
    """What there is to look at.

    Attributes:
        budgets: all of them, from the most that may stay to the least.
        goals: in the same order, those that each of the parts can meet, by the name of the parts.
    """

    budgets: tuple[Budget, ...]
    goals: Mapping[str, tuple[Goal, ...]]

    @property
    def count(self) -> int:
        """How many models there are to make."""
        return sum(map(len, self.goals.values()))


def reachable(job: Job, model: Any, asked: Request, batch: tuple[int, int]) -> Reachable:
    """What was asked for, as far as the model can meet it; refuses what it cannot.

    Args:
        job: what `ready` settled.
        model: the model.
        asked: what to look at.
        batch: examples and tokens that speed and FLOPs are about.
    """
    return _numbers(job, model, asked.ks) if asked.ks else _budgets(job, model, asked, batch)


def _numbers(job: Job, model: Any, ks: Sequence[int]) -> Reachable:
    """The numbers of heads that were asked for."""
    sites = discover(model, job.unit)
    heads = total(sites)
    if heads < 2:
        raise ValueError(f"There is nothing to look at: fewer heads than the model's {heads} would be none.")
    for k in ks:
        if not 1 <= k < heads:
            raise ValueError(f"`k` must be between 1 and {heads - 1}, fewer than the model's {heads} heads; got {k}.")
    falling = sorted(set(ks), reverse=True)
    # Goals count, as those of `kheads prune -k` do: a method may order blocks otherwise where they have costs.
    goals = tuple(Goal(k, sites, unit=job.unit) for k in falling)
    return Reachable(tuple(Budget(heads=k) for k in falling), {"heads": goals})


def _budgets(job: Job, model: Any, asked: Request, batch: tuple[int, int]) -> Reachable:
    """About ten budgets between the whole model and the least that can stay."""
    parts = parts_for(model, asked.parts)
    halves = {name: goal_for(job, model, asked.budget(0.5, batch), name) for name in parts}
    most = [removable(half) for half in halves.values()]
    rising = shares(most) if max(most) > HARDLY else []
    budgets = tuple(dict.fromkeys(asked.budget(share, batch) for share in rising))
    goals = {name: met(half, budgets) for name, half in halves.items()}
    if not any(goals.values()):
        raise ValueError(nothing_to_remove(parts[-1]))
    return Reachable(budgets, goals)


def parts_for(model: Any, asked: str | None) -> tuple[str, ...]:
    """What may go: what was asked for, or heads and beside it all parts, where kheads knows them."""
    if asked is not None:
        return (asked,)
    return BOTH if known_parts(model) == "all" else BOTH[:1]


def goal_for(job: Job, model: Any, budget: Budget, parts: str) -> Goal:
    """What a choice from these parts is for, with what blocks cost; the budget stands for others of its kind."""
    sites = discover(model, job.unit, parts)
    return Goal(budget, sites, None, job.unit, price(model, budget, sites))


def removable(goal: Goal) -> float:
    """The share of the whole cost that can go: all blocks, but one where a site is never empty."""
    assert goal.costs is not None, "a budget has costs"
    return 1 - goal.costs.of(least(goal.sites), goal.sites) / goal.costs.whole


def met(goal: Goal, budgets: Iterable[Budget]) -> tuple[Goal, ...]:
    """The goal with each of these budgets that its parts can meet."""
    return tuple(found for budget in budgets if _can_be_met(found := replace(goal, budget=budget)))


def _can_be_met(goal: Goal) -> bool:
    try:
        goal.kept(torch.zeros(goal.total))
    except ValueError:
        return False
    return True


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


def nothing_to_remove(parts: str) -> str:
    """Why there is no budget to look at."""
    more = "" if parts == "all" else "; look at other `parts`"
    return f"There is nothing to remove: {named(parts)} that could go are hardly any of this model{more}."
