"""What a run aims at: a goal, from what the user asked for and what the model is."""

from __future__ import annotations

from typing import Any

import torch

from kheads.anatomy import discover
from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.site import total
from kheads.measuring.pricing import price
from kheads.methods.base import Goal

UNITS = {"params": "parameters", "flops": "FLOPs", "ms": "ms"}


def aimed(
    model: Any, asked: int | Budget, parts: str | None, constraints: Constraints | None, unit: str = "group"
) -> Goal:
    """The goal of a run; what is impossible is refused here, before hours of training.

    Args:
        model: the model to make smaller.
        asked: a number of heads, or a budget.
        parts: what may go; None is heads for a number of heads, and all for any other budget.
        constraints: further demands on the selection.
        unit: what counts as a head where query heads share keys and values.
    """
    if isinstance(asked, Budget) and asked.currency != "heads":
        goal = _priced(model, asked, parts or "all", constraints, unit)
    else:
        goal = _counted(model, asked, parts or "heads", constraints, unit)
    goal.kept(torch.zeros(goal.total))
    return goal


def _counted(model: Any, asked: int | Budget, parts: str, constraints: Constraints | None, unit: str) -> Goal:
    if parts != "heads":
        raise ValueError(
            f'`parts="{parts}"` is for budgets of parameters, FLOPs or time; a number of heads leaves neurons alone. '
            "Leave `parts` out, or give another budget."
        )
    sites = discover(model, unit)
    k = int(asked.limit(total(sites))) if isinstance(asked, Budget) else asked
    return Goal(k, sites, constraints, unit)


def _priced(model: Any, budget: Budget, parts: str, constraints: Constraints | None, unit: str) -> Goal:
    sites = discover(model, unit, parts)
    costs = price(model, budget, sites)
    if budget.limit(costs.whole) >= costs.whole:
        have = f"{costs.whole:,.0f} {UNITS[costs.currency]}"
        raise ValueError(f"The model has {have} already, which is within {budget}; ask for less.")
    return Goal(budget, sites, constraints, unit, costs)
