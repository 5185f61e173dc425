"""Prune and retrain: what a method that learns the heads along with the model has to beat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kheads.methods.base import Estimated, Goal, LossFunction, Steps, as_steps, check_steps
from kheads.methods.michel import gradient_scores, per_site_norm


@dataclass(frozen=True)
class Retrain(Estimated):
    """Trains the whole model for a while, cuts it to K heads at once, and trains on with these.

    Both parts together are as long as a joint run, so their qualities compare. The heads that stay are those of largest
    mean |gradient|, as Michel computes it, in one round. A model that is trained already is cut at once.

    Attributes:
        before_cut: how much of the training comes before the cut.
        normalised: divide scores by their norm within each site.
    """

    reference: ClassVar[str] = "a control, after Han et al. 2015; the scores are Michel's"
    idea: ClassVar[str] = "one cut by the gradient of the gates, then on with training"

    before_cut: Steps = 1 / 3
    normalised: bool = True

    def __post_init__(self) -> None:
        check_steps("before_cut", self.before_cut)

    def estimate(
        self,
        model: nn.Module,
        goal: Goal,
        batches: Callable[[], Iterable[Mapping[str, Any]]],
        loss: LossFunction,
        seed: int,
    ) -> Tensor:
        """One pass over the examples with all heads open; K has no part in it."""
        scores = gradient_scores(model, goal, torch.ones(goal.total, dtype=torch.float64), batches(), loss)
        return per_site_norm(scores, goal) if self.normalised else scores

    def parts(self, total: int) -> tuple[int, int]:
        """How many of `total` steps come before the cut, and how many after it."""
        first = max(1, as_steps(self.before_cut, total))
        if first >= total:
            raise ValueError(
                f"`before_cut` must leave steps for training after the cut; got {self.before_cut} of {total}. "
                "Give a smaller one, or train longer."
            )
        return first, total - first
