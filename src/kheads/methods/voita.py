"""Voita et al.: hard concrete gates with a penalty on the expected number of open heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from kheads.blocks.fields import NotNegative, Positive, Steps, Whole
from kheads.methods.base import Goal, Learned, Moment, Options, Schedule
from kheads.methods.look import Look
from kheads.methods.phases import Search
from kheads.subset import hard_concrete, hard_concrete_penalty, logistic


@dataclass(frozen=True)
class Voita(Learned):
    """Samples a hard concrete gate per head and adds lambda times the expected number of open heads to the loss.

    The number of heads follows from `weight` only indirectly; K is reached by adding or dropping heads in the order of
    the learned parameter, which does not tie where gates saturate. `report` says how many heads that moved.

    Attributes:
        weight: The penalty for an open head, lambda of eq. 23, relative to the mean loss of the model.
        gate_lr: Learning rate of the gates' parameters.
        gate_lr_schedule: How that rate goes: "linear" or "constant".
        gate_start: First value of every parameter; none draws them from U(-0.68, 0.68), as the paper's code does for
            BERT.
        beta: Temperature of the hard concrete distribution.
        search: Look for the weight whose own number of heads comes nearest to K, by this many short runs; 0 takes
            `weight` as it is.
        search_steps: How long each of them is.
    """

    reference: ClassVar[str] = "Voita et al. 2019; Louizos et al. 2018; the paper's section 4.2.2"
    idea: ClassVar[str] = "stochastic gates that pay for being open"
    look: ClassVar[Look] = Look("Voita", slot=3, marker="triangle-up")
    # The paper's code adds the penalty to the loss summed over the target tokens of a batch, kheads to the mean loss of
    # a token: a lambda of that code is divided by the target tokens of its batches, about 3,500 of 4,096 allowed.
    for_task: ClassVar[Mapping[str, Options]] = {"translation": {"weight": 0.01}}

    weight: NotNegative = 0.0015
    gate_lr: Positive = 0.1
    gate_lr_schedule: Schedule = "linear"
    gate_start: float | None = None
    beta: Positive = 0.33
    search: Whole = 0
    search_steps: Steps = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search and not self.weight:
            raise ValueError("`search` looks around `weight`, which must be positive then; got 0.")

    def serves_every_k(self, constrained: bool, evaluated: bool) -> bool:
        """Its gates never hear of K, unless lambda is searched for it or its heads are evaluated on the way."""
        return not self.search and not evaluated

    def searches(self) -> tuple[Search, ...]:
        """Short runs that look for lambda."""
        return (Search(self.search, self.search_steps),) if self.search else ()

    def search_for(self, attempt: Callable[[Any], Tensor], goal: Goal) -> tuple[Voita, list[dict[str, Any]]]:
        """Bisects lambda, until its own number of heads comes nearest to K."""
        low, high, tried = self.weight / 30, self.weight * 30, []
        for _ in range(self.search):
            trial = dataclasses.replace(self, weight=(low * high) ** 0.5)
            found = attempt(trial)
            cost = float(goal.prices[found.cpu() > 0].sum())
            tried.append({"weight": trial.weight, "natural_heads": int((found > 0).sum()), "cost": cost})
            low, high = (trial.weight, high) if cost > goal.limit else (low, trial.weight)
        best = min(tried, key=lambda entry: abs(entry["cost"] - goal.limit))
        return dataclasses.replace(self, weight=best["weight"]), tried

    def initial(self, size: int, seed: int) -> Tensor:
        """The first parameters of the gates, (H,)."""
        if self.gate_start is not None:
            return torch.full((size,), self.gate_start, dtype=torch.float64)
        return super().initial(size, seed) * 2 * 0.68

    def gates(self, w: Tensor, goal: Goal, moment: Moment) -> Tensor:
        """A sample of the gates."""
        return hard_concrete(w, logistic(len(w), moment.generator()).to(w.device), self.beta)

    def penalty(self, w: Tensor, goal: Goal | None = None) -> Tensor:
        """Lambda times eq. 22; where blocks have prices, lambda is for one of the mean price of a head."""
        if goal is None:
            return self.weight * hard_concrete_penalty(w, self.beta).sum()
        prices = goal.prices.to(w) / goal.price_of_a_head
        return self.weight * (prices * hard_concrete_penalty(w, self.beta)).sum()

    def report(self, w: Tensor, goal: Goal) -> dict[str, Any]:
        """Lambda, the number of heads it leads to by itself, and how many were added (+) or dropped (-) to reach K."""
        natural = int((w > 0).sum())
        return {"weight": self.weight, "natural_heads": natural, "adjusted_heads": len(goal.kept(w)) - natural}
