"""Voita et al.: hard concrete gates with a penalty on the expected number of open heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from kheads.methods.base import Goal, Learned, Moment, Steps, check_choice, check_positive, check_steps
from kheads.subset import hard_concrete, hard_concrete_penalty, logistic


@dataclass(frozen=True)
class Voita(Learned):
    """Samples a hard concrete gate per head and adds lambda times the expected number of open heads to the loss.

    The number of heads follows from `weight` only indirectly; K is reached by adding or dropping heads in the order of
    the learned parameter, which does not tie where gates saturate. `report` says how many heads that moved.

    Attributes:
        weight: lambda of eq. 23, relative to the mean loss of the model.
        lr: learning rate of the gates' parameters.
        lr_schedule: "linear" or "constant".
        start: every parameter's first value; None draws them from U(-0.68, 0.68), as the paper's code does for BERT.
        beta: temperature of the hard concrete distribution.
        search: how many short runs look for the lambda whose own number of heads comes nearest to K; 0 takes `weight`.
        search_steps: how long each of them is.
    """

    reference: ClassVar[str] = "Voita et al. 2019; Louizos et al. 2018; the paper's section 4.2.2"
    idea: ClassVar[str] = "stochastic gates that pay for being open"

    weight: float = 0.0015
    lr: float = 0.1
    lr_schedule: str = "linear"
    start: float | None = None
    beta: float = 0.33
    search: int = 0
    search_steps: Steps = 0.2

    def __post_init__(self) -> None:
        for name in ("lr", "beta"):
            check_positive(name, getattr(self, name))
        check_choice("lr_schedule", self.lr_schedule, ("linear", "constant"))
        check_steps("search_steps", self.search_steps)
        if self.search < 0:
            raise ValueError(f"`search` must not be negative; got {self.search}.")
        if self.weight < 0:
            raise ValueError(f"`weight` must not be negative; got {self.weight}.")
        if self.search and not self.weight:
            raise ValueError("`search` looks around `weight`, which must be positive then; got 0.")

    def initial(self, size: int, seed: int) -> Tensor:
        """The first parameters of the gates, (H,)."""
        if self.start is not None:
            return torch.full((size,), self.start, dtype=torch.float64)
        return super().initial(size, seed) * 2 * 0.68

    def gates(self, w: Tensor, goal: Goal, moment: Moment) -> Tensor:
        """A sample of the gates."""
        return hard_concrete(w, logistic(len(w), moment.generator()).to(w.device), self.beta)

    def penalty(self, w: Tensor) -> Tensor:
        """Lambda times eq. 22."""
        return self.weight * hard_concrete_penalty(w, self.beta).sum()

    def report(self, w: Tensor, goal: Goal) -> dict[str, Any]:
        """Lambda, the number of heads it leads to by itself, and how many were added (+) or dropped (-) to reach K."""
        natural = int((w > 0).sum())
        return {"lambda": self.weight, "natural_heads": natural, "adjusted_heads": goal.k - natural}
