"""Michel et al.: heads by the size of the loss's gradient with respect to their gates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kheads.blocks.constraints import Constraints
from kheads.blocks.fields import Count
from kheads.methods.base import Estimated, Evidence, Goal, LossFunction, Options, split_by_site
from kheads.methods.finite import check_gradient, check_told_apart
from kheads.methods.look import Look
from kheads.surgery.gates import gated


@dataclass(frozen=True)
class Michel(Estimated):
    """Scores a head by the mean |gradient| of an example's loss by its gate, and removes heads in rounds (eq. 21).

    The gradient is that of each example, from one backward with a gate per example, so the batch size does not matter.
    Scores are computed again after each round on the heads that are left; what is removed stays removed, and the last
    round takes the remainder. A head's final score is the round it survived to, then its rank there.

    Attributes:
        per_round: How many heads a round removes; the paper takes 12 of 144 for BERT and 4 of 72 for translation. With
            a budget that is not in heads, a round removes what costs as much.
        normalised: Divide scores by their norm within each site; off in the paper's equation.
    """

    reference: ClassVar[str] = "Michel, Levy and Neubig 2019; the paper's section 4.2.1"
    idea: ClassVar[str] = "greedy removal by the gradient of the gates"
    look: ClassVar[Look] = Look("Michel", slot=4, marker="triangle-down", dash="dashdot")
    for_task: ClassVar[Mapping[str, Options]] = {"translation": {"per_round": 4}}

    per_round: Count = 12
    normalised: bool = False

    def serves_every_k(self, constrained: bool, evaluated: bool) -> bool:
        """Each round removes the lowest of an order in which only the heads still there take part.

        So the order that leads to the smallest K is total, and its top K are the heads that a run of its own would
        keep; with constraints they need not be.
        """
        return not constrained

    def passes(self, goal: Goal) -> int:
        """One for all heads, and one after every round."""
        return math.ceil((goal.whole - goal.limit) / self._step(goal) - 1e-9) + 1

    def _step(self, goal: Goal) -> float:
        """What the blocks that a round removes cost: as much as so many heads."""
        return self.per_round * goal.price_of_a_head

    def estimate(self, model: nn.Module, goal: Goal, evidence: Evidence) -> Tensor:
        """Runs the rounds. The order is total, so the same scores also give every larger K on the way."""
        mask = torch.ones(goal.total, dtype=torch.float64)
        scores = torch.zeros(goal.total, dtype=torch.float64)
        rounds, of = 0, self.passes(goal)
        while True:
            importance = self._importance(model, goal, mask, evidence, f"round {rounds + 1} of {of}")
            # Ranks below one: they order the heads inside a round and never lift one over the next round.
            order = importance.argsort(stable=True).argsort().double() / (goal.total + 1)
            scores = torch.where(mask.bool(), rounds + order, scores)
            rounds += 1
            if rounds == of:
                return scores
            mask = self._survivors(scores, max(goal.limit, goal.whole - rounds * self._step(goal)), goal)

    def _survivors(self, scores: Tensor, limit: float, goal: Goal) -> Tensor:
        """The heads that a round leaves: those that would stay if it were the last one, and the best of the others.

        So the heads that are left can always meet the constraints, and no round has to take a removed one back.
        """
        last = Constraints(protected=goal.kept(scores).to_dict())
        return goal.eased(limit, last).mask(scores)

    def _importance(
        self,
        model: nn.Module,
        goal: Goal,
        mask: Tensor,
        evidence: Evidence,
        label: str,
    ) -> Tensor:
        scores = gradient_scores(model, goal, mask, evidence.batches(label), evidence.loss)
        return goal.per_price(per_site_norm(scores, goal) if self.normalised else scores)


def gradient_scores(
    model: nn.Module, goal: Goal, mask: Tensor, batches: Iterable[Mapping[str, Any]], loss: LossFunction
) -> Tensor:
    """The mean over examples of |d loss / d gate|, (H,), with the heads outside `mask` closed."""
    total, examples = torch.zeros_like(mask), 0
    training = model.training
    model.eval()
    try:
        for number, batch in enumerate(batches, 1):
            gradient = _example_gradients(model, goal, mask, batch, loss)
            check_gradient(gradient, model, number)
            total += gradient.abs().sum(0).double().cpu()
            examples += len(gradient)
    finally:
        model.train(training)
    if examples == 0:
        raise ValueError("There are no examples to estimate the importance of heads from; give a non-empty data set.")
    check_told_apart(total[mask.bool()])
    return total / examples


def _example_gradients(
    model: nn.Module, goal: Goal, mask: Tensor, batch: Mapping[str, Any], loss: LossFunction
) -> Tensor:
    """The gradient of each example's own mean loss with respect to its gates, (B, H).

    The loss of a batch averages over all its items, so an example's share is undone by its count.
    """
    size = len(next(value for value in batch.values() if isinstance(value, Tensor)))
    device = next(model.parameters()).device
    values = mask.float().to(device).expand(size, -1).clone().requires_grad_()
    with torch.enable_grad(), gated(model, values, goal.unit, goal.parts):
        mean, counts = loss(model, batch)
    (gradient,) = torch.autograd.grad(mean, values)
    return gradient * (counts.sum() / counts.clamp(min=1)).unsqueeze(-1).to(gradient.device)


def per_site_norm(scores: Tensor, goal: Goal) -> Tensor:
    """Scores by their share of their site's norm."""
    return torch.cat([part / part.norm().clamp(min=1e-300) for part in split_by_site(scores, goal.sites)])
