"""The straight-through estimator: the paper's simplest joint baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kheads.blocks.fields import Positive
from kheads.methods.base import Goal, Learned, Moment, Options, Schedule
from kheads.methods.look import Look
from kheads.subset import straight_through


@dataclass(frozen=True)
class STE(Learned):
    """Opens the K heads of highest weight in every forward and passes the gates' gradient to all weights.

    Differs: ties and K = H keep exactly K heads, because the forward uses the same selection as everything else.

    Attributes:
        gate_lr: Learning rate of the gates' weights.
        gate_lr_schedule: How that rate goes: "linear" or "constant".
    """

    reference: ClassVar[str] = "Li, Cotterell and Sachan 2021, section 4.2.3; Bengio et al. 2013"
    idea: ClassVar[str] = "hard top-K forward, identity backward"
    look: ClassVar[Look] = Look("STE", slot=2, marker="square")
    for_task: ClassVar[Mapping[str, Options]] = {"translation": {"gate_lr": 0.2, "gate_lr_schedule": "constant"}}

    gate_lr: Positive = 0.5
    gate_lr_schedule: Schedule = "linear"

    def gates(self, w: Tensor, goal: Goal, moment: Moment) -> Tensor:
        """Exactly K ones, with the gradient of w."""
        return straight_through(goal.mask(w), w)
