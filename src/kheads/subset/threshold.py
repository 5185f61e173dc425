"""The bounded relaxed top-K: sigmoids around one threshold, which lies where they sum to k."""

import math
from collections.abc import Callable
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kheads.subset.precision import FARTHEST, check_finite, exact

Sum = tuple[float, float]  # a sum of sigmoids, and the size of its derivative


class Threshold(torch.autograd.Function):
    """g = sigmoid((r - nu) / tau) with sum(g) = k, differentiated by the implicit function theorem."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, k: float, tau: float) -> Tensor:
        """Returns the gates and remembers the slopes of the sigmoids."""
        ctx.tau, ctx.slope = tau, None
        r = exact(logits)
        check_finite(*(end.item() for end in (torch.aminmax(r) if len(r) else ())))
        if k == 0 or k == len(r):
            return torch.full_like(logits, float(k > 0))
        with torch.inference_mode():
            kth = torch.kthvalue(r, len(r) - math.ceil(k) + 1).values
            x = ((r - kth) / tau).clamp_(-FARTHEST, FARTHEST)  # what is near the k-th stays precise
            x -= _shift(x, float(k))
            ctx.slope = torch.sigmoid(x) * torch.sigmoid(-x)
        return torch.sigmoid(x).to(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Returns the gradient of the logits; 0 where the gates are hard."""
        total = 0.0 if ctx.slope is None else float(ctx.slope.sum())
        if total == 0:  # the gates are hard
            return torch.zeros_like(grad), None, None
        with torch.inference_mode():
            g = exact(grad)
            centred = g - ctx.slope.dot(g) / total
        return (ctx.slope * centred / ctx.tau).to(grad), None, None


def _shift(x: Tensor, k: float) -> float:
    """Solve sum(sigmoid(x - c)) = k for c, where the ceil(k)-th largest x is 0.

    What the heads below 0 hold and what the others lack to be 1 must balance: spill = lack.
    """
    above = x >= 0
    upper, lower = x[above], x[~above]
    spare = len(upper) - k
    low = (log(spare) if spare > 0 else lower.max().item()) - log(k)
    high = log(len(x) - k) - log(k - (math.ceil(k) - 1))

    def sums(c: float) -> tuple[Sum, Sum]:
        spill, spill_slope = _sigmoid_sum(lower - c)
        return (spill + spare, spill_slope), _sigmoid_sum(c - upper)

    return balance(sums, low, high)


def balance(sums: Callable[[float], tuple[Sum, Sum]], low: float, high: float) -> float:
    """Find the c between low and high at which two sums are equal, of which the first falls with c, the second grows.

    The difference of their logarithms is nearly linear in c, so Newton's method needs about five steps from anywhere.
    A bracket keeps it safe.
    """
    low, high = low - 1, high + 1  # a root at the edge may be approached from both sides
    c = (low + high) / 2
    for _ in range(200):
        (spill, spill_slope), (lack, lack_slope) = sums(c)
        spill, lack = max(spill, 5e-324), max(lack, 5e-324)
        slope = spill_slope / spill + lack_slope / lack
        excess = log(spill) - log(lack)
        low, high = (c, high) if excess > 0 else (low, c)
        following = c + excess / max(slope, 1e-300)
        if not low <= following <= high:
            following = (low + high) / 2
        change, c = abs(following - c), following
        if change <= 1e-8:  # convergence is quadratic: what is left is rounding
            break
    return c


def _sigmoid_sum(x: Tensor) -> Sum:
    """Return the sum of sigmoid(x) and of its derivative."""
    value = torch.sigmoid(x)
    total = value.sum().item()
    return total, total - value.dot(value).item()
