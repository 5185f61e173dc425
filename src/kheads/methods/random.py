"""Random heads: what any method has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from kheads.methods.base import Estimated, Evidence, Goal
from kheads.methods.look import Look


@dataclass(frozen=True)
class Random(Estimated):
    """Scores every head at random."""

    reference: ClassVar[str] = "a control; also the paper's section 5.4 for measuring speed"
    idea: ClassVar[str] = "K heads by chance"
    look: ClassVar[Look] = Look("Random", slot=6, marker="cross", dash="dot")

    def estimate(self, model: nn.Module, goal: Goal, evidence: Evidence) -> Tensor:
        """Uniform scores."""
        return torch.rand(goal.total, generator=torch.Generator().manual_seed(evidence.seed), dtype=torch.float64)
