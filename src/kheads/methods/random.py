"""Random heads: what any method has to beat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kheads.methods.base import Estimated, Goal, LossFunction


@dataclass(frozen=True)
class Random(Estimated):
    """Scores every head at random."""

    reference: ClassVar[str] = "a control; also the paper's section 5.4 for measuring speed"
    idea: ClassVar[str] = "K heads by chance"

    def estimate(
        self,
        model: nn.Module,
        goal: Goal,
        batches: Callable[[], Iterable[Mapping[str, Any]]],
        loss: LossFunction,
        seed: int,
    ) -> Tensor:
        """Uniform scores."""
        return torch.rand(goal.total, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
