"""Prune and retrain: what a method that learns the heads along with the model has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from kheads.blocks.fields import Steps
from kheads.methods.base import Estimated, Evidence, Goal
from kheads.methods.look import Look
from kheads.methods.michel import gradient_scores, per_site_norm
from kheads.methods.phases import Cut, Estimate, Outline, Phase, Repair, Train


@dataclass(frozen=True)
class Retrain(Estimated):
    """Trains the whole model for a while, cuts it to K heads at once, and trains on with these.

    Both parts together are as long as a joint run, so their qualities compare. The heads that stay are those of largest
    mean |gradient|, as Michel computes it, in one round. A model that is trained already is cut at once.

    Attributes:
        before_cut: How much of the training comes before the cut.
        normalised: Divide scores by their norm within each site.
    """

    reference: ClassVar[str] = "a control, after Han et al. 2015; the scores are Michel's"
    idea: ClassVar[str] = "one cut by the gradient of the gates, then on with training"
    look: ClassVar[Look] = Look("Prune and retrain", slot=5, marker="pentagon", dash="dash")

    before_cut: Steps = 1 / 3
    normalised: bool = True

    def phases(self, outline: Outline) -> tuple[Phase, ...]:
        """A part of the training, one cut, and the rest of it; of a trained model, all of it comes after the cut."""
        first = () if outline.trained else (Train(self.before_cut, stage="whole"),)
        return (*first, Estimate(), Cut(), Repair(), Train(stage="pruned", name="retrain"))

    def serves_every_k(self, constrained: bool, evaluated: bool) -> bool:
        """What comes before the cut never hears of K."""
        return True

    def passes(self, goal: Goal) -> int:
        """One, with all heads open."""
        return 1

    def estimate(self, model: nn.Module, goal: Goal, evidence: Evidence) -> Tensor:
        """One pass over the examples with all heads open; K has no part in it. Scores are for what a block costs."""
        everything = torch.ones(goal.total, dtype=torch.float64)
        scores = gradient_scores(model, goal, everything, evidence.batches("scoring heads"), evidence.loss)
        return goal.per_price(per_site_norm(scores, goal) if self.normalised else scores)
