"""What a run aims at: a goal, from what the user asked for and what the model is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kheads.anatomy import discover
from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.costs import Costs
from kheads.blocks.site import Sites, total
from kheads.blocks.within_budget import ADD_ALL
from kheads.measuring.measurement import known_parts
from kheads.measuring.pricing import price
from kheads.methods.base import Goal

UNITS = {"params": "parameters", "flops": "FLOPs"}


def aimed(
    model: Any,
    asked: int | Budget,
    parts: str | None,
    constraints: Constraints | None,
    unit: str = "group",
    tell: Callable[[str], None] | None = None,
) -> Goal:
    """The goal of a run; what is impossible is refused here, before hours of training.

    Args:
        model: the model to make smaller.
        asked: a number of heads, or a budget.
        parts: what may go; None is heads for a number of heads, and all for any other budget.
        constraints: further demands on the selection.
        unit: what counts as a head where query heads share keys and values.
        tell: is called with a line of text before anything that takes a while.
    """
    if isinstance(asked, Budget) and asked.currency != "heads":
        sites = discover(model, unit, parts or "all")
        goal = Goal(asked, sites, constraints, unit, _priced(model, asked, sites, tell))
    else:
        goal = _counted(model, asked, parts or "heads", constraints, unit)
    try:
        goal.kept(torch.zeros(goal.total))
    except ValueError as error:
        # What cannot be had is not advised.
        raise ValueError(str(error).replace(ADD_ALL, "") if known_parts(model) != "all" else str(error)) from None
    return goal


def check_asked(budget: Any, parts: str | None) -> None:
    """Refuses what is no budget, and parts without one."""
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"`budget` must be a kheads.Budget, such as Budget(params=0.7); got {budget!r}.")
    if budget is None and parts is not None:
        raise ValueError("`parts` belongs to a budget; give one, such as `budget=Budget(params=0.7)`, or leave it out.")


def _counted(model: Any, asked: int | Budget, parts: str, constraints: Constraints | None, unit: str) -> Goal:
    if parts != "heads":
        raise ValueError(
            f'`parts="{parts}"` is for budgets of parameters, FLOPs or time; a number of heads leaves neurons alone. '
            "Leave `parts` out, or give another budget."
        )
    sites = discover(model, unit)
    k = int(asked.limit(total(sites))) if isinstance(asked, Budget) else asked
    return Goal(k, sites, constraints, unit)


def _priced(model: Any, budget: Budget, sites: Sites, tell: Callable[[str], None] | None) -> Costs:
    costs = price(model, budget, sites, tell=tell)
    if budget.limit(costs.whole) >= costs.whole:
        has = (
            f"takes {costs.whole:,.2f} ms" if costs.currency == "ms" else f"has {costs.whole:,.0f} {UNITS[budget.name]}"
        )
        raise ValueError(f"The model {has} already, which is within {budget}; ask for less.")
    return costs
