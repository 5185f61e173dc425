"""The relaxed knapsack: sigmoids around one threshold, which lies where what the open gates cost is the budget.

With a hundred thousand blocks fresh memory takes longer than the arithmetic: hence the operations in place.
"""

import sys
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kheads.subset.precision import FARTHEST, check_finite, exact
from kheads.subset.threshold import Sum, balance

FAINTEST = 1e-280  # a smaller sum of slopes has lost digits, and its shares are computed from logarithms


class Knapsack(torch.autograd.Function):
    """g = sigmoid((r - nu) / tau) with sum(c g) = budget, differentiated by the implicit function theorem."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, costs: Tensor, budget: float, tau: float) -> Tensor:
        """Returns the gates and remembers the distances to the threshold, in units of tau."""
        ctx.tau, ctx.costs, ctx.x = tau, costs, None
        r = exact(logits).detach()
        check_finite(*(end.item() for end in (torch.aminmax(r) if len(r) else ())))
        total = costs.sum().item()
        if budget == 0 or budget == total:
            return torch.full_like(logits, float(budget == total))
        with torch.inference_mode():
            paid = costs > 0 if costs.min() == 0 else slice(None)  # what is free has no say in the threshold
            margin = _margin(r[paid].numpy(), costs[paid].numpy(), budget)
            x = (r - margin).div_(tau).clamp_(-FARTHEST, FARTHEST)  # what is near the margin stays precise
            x -= _shift(x[paid], costs[paid], budget, total)
            ctx.x = x
        return torch.sigmoid(x).to(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """Returns the gradient of the logits; 0 where the gates are hard."""
        if ctx.x is None:
            return torch.zeros_like(grad), None, None, None
        with torch.inference_mode():
            g = exact(grad)
            slope = torch.sigmoid(ctx.x).mul_(ctx.x.neg().sigmoid_())
            pull = _shares(ctx.x, ctx.costs * slope, ctx.costs).mul_(slope.dot(g))
            adjoint = slope.mul_(g).sub_(pull)
        return (adjoint / ctx.tau).to(grad), None, None, None


def _shares(x: Tensor, weighted: Tensor, costs: Tensor) -> Tensor:
    """Return the share of each logit in the threshold, c s / sum(c s): what nu moves by when the logit does."""
    total = weighted.sum().item()
    if total > FAINTEST:
        return weighted.div_(total)
    # Blocks that cost something are hard, but one that is free may lie at the threshold and move with it.
    log_sigmoid = torch.nn.functional.logsigmoid
    return torch.softmax(costs.log() + log_sigmoid(x) + log_sigmoid(-x), 0)


def _margin(r: Any, costs: Any, budget: float) -> float:
    """Return the logit at which the costs, added up from the largest logit down, reach the budget.

    The half that holds it is halved again: linear, where sorting is not. Of equal logits any stands for all.
    """
    while len(r) > 1:
        half = len(r) // 2
        order = np.argpartition(r, half)
        upper, lower = order[half:], order[:half]
        cost = costs[upper].sum()
        part = upper if cost >= budget else lower
        budget -= 0 if cost >= budget else cost
        r, costs = r[part], costs[part]
    return float(r[0])


def _shift(x: Tensor, costs: Tensor, budget: float, total: float) -> float:
    """Solve sum(costs sigmoid(x - c)) = budget for c, where the x at the margin is 0 and every cost is positive.

    As for `Threshold`, what the blocks below hold and what the others lack must balance, up to what the others cost
    more or less than the budget. The margin counts as above or below, whichever makes that difference the smaller: so
    the budget is met to its own precision, even if it is a small part of what the block at the margin costs.
    """
    above, at_margin = costs.dot((x > 0).to(x)).item(), costs[x == 0].sum().item()
    inside = max(budget - above, sys.float_info.epsilon * budget)  # rounding must not leave nothing for the margin
    outside = max(at_margin - inside, 0.0)
    upper = (x > 0 if inside < outside else x >= 0).to(x)
    spare, need = (0.0, inside) if inside < outside else (outside, 0.0)
    above_costs, value = costs * upper, torch.empty_like(x)
    below_costs, side = costs - above_costs, upper.mul_(-2).add_(1)

    def sums(c: float) -> tuple[Sum, Sum]:
        torch.sub(x, c, out=value).mul_(side).sigmoid_()
        spill, lack = below_costs.dot(value).item(), above_costs.dot(value).item()
        value.square_()
        spill_slope, lack_slope = spill - below_costs.dot(value).item(), lack - above_costs.dot(value).item()
        return (spill + spare, spill_slope), (lack + need, lack_slope)

    low = (log(outside) if outside > 0 else _highest_below(x) + log(costs.min().item())) - log(budget)
    high = log(total - budget) - log(inside)
    return balance(sums, low, high)


def _highest_below(x: Tensor) -> float:
    """Return the largest negative x, or one far below if there is none."""
    return x.masked_fill(x >= 0, -FARTHEST).max().item()
