"""The paper's equations as pure tensor functions: noise, relaxed and hard top-K, hard concrete gates, annealing.

Beside them the relaxed knapsack, which is the relaxed top-K for blocks that do not cost the same.

Symbols follow the paper: H heads, K of them kept; w_h a head's weight (eq. 20) and r_h = w_h + Gumbel noise its
perturbed logit; tau the temperature; g_h a gate. Vectors over heads have shape (H,), over blocks of any kind (N,).

The relaxations, each a node of the graph with a backward pass of its own, have a file each.
"""

import numbers
from collections.abc import Callable, Sequence
from math import inf, log

import torch
from torch import Tensor

from kheads.subset.knapsack import Knapsack
from kheads.subset.precision import COLDEST, exact
from kheads.subset.successive import Successive
from kheads.subset.threshold import Threshold

__all__ = [
    "anneal",
    "gumbel",
    "hard_concrete",
    "hard_concrete_penalty",
    "hard_top_k",
    "logistic",
    "soft_knapsack",
    "soft_top_k",
    "straight_through",
]

_RELAXATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "successive": Successive.apply,
    "threshold": Threshold.apply,
}
_relaxed_knapsack: Callable[[Tensor, Tensor, float, float], Tensor] = Knapsack.apply


# ------------------------------------------------------------------------------------------------ noise and annealing


def gumbel(shape: int | Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Draw Gumbel(0, 1) noise in float64 on the CPU; it is always finite.

    `hard_top_k(w + gumbel(w.shape), k)` draws a set of k heads with the probability of eq. 13.
    """
    return -torch.log(-torch.log(_uniform(shape, generator)))


def logistic(shape: int | Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Draw logistic noise, the `noise` of `hard_concrete`, in float64 on the CPU; it is always finite."""
    return torch.logit(_uniform(shape, generator))


def _uniform(shape: int | Sequence[int], generator: torch.Generator | None) -> Tensor:
    # torch.rand returns multiples of 2**-53 in [0, 1). Zero alone has an infinite logarithm: lift it by half a step.
    size = (shape,) if isinstance(shape, int) else tuple(shape)
    return torch.rand(size, generator=generator, dtype=torch.float64, device="cpu").clamp_min_(2.0**-54)


def anneal(step: int, start: float, end: float, cooldown: int) -> float:
    """Return the temperature after `step` steps: log-linear from `start` to `end` in `cooldown` steps (eq. 24)."""
    _check_positive("start", start)
    _check_positive("end", end)
    _check_not_negative("step", step)
    _check_not_negative("cooldown", cooldown)
    if step >= cooldown:
        return end
    done = step / cooldown
    return float(start ** (1 - done) * end**done)


# ------------------------------------------------------------------------------------------------------- hard gates


def hard_top_k(logits: Tensor, k: int) -> Tensor:
    """Return the gates of the k largest logits: (H,) of 0 and 1, in the dtype and on the device of the logits.

    Equal logits are taken in the order of their index, so exactly k gates are 1 (eqs. 9-11). Infinities are allowed.
    """
    _check_vector(logits)
    if torch.isnan(logits).any():
        raise ValueError("`logits` must not contain NaN.")
    _check_k(k, len(logits))
    kept = torch.sort(logits.detach(), descending=True, stable=True).indices[:k]
    return torch.zeros_like(logits, requires_grad=False).index_fill_(0, kept, 1)


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """Return exactly `hard`, with the gradient of `soft` (section 4.2, STE)."""
    return hard.detach() + (soft - soft.detach())


# ---------------------------------------------------------------------------------------------- hard concrete gates


def hard_concrete(
    log_alpha: Tensor,
    noise: Tensor | None = None,
    beta: float = 0.33,
    stretch: tuple[float, float] = (-0.1, 1.1),
) -> Tensor:
    """Return hard concrete gates in [0, 1], many of them exactly 0 or 1 (Louizos et al. 2018; section 4.2, Voita).

    Args:
        log_alpha: One parameter per head, (H,).
        noise: Logistic noise for a sample, see `logistic`; None gives the deterministic gates used at test time.
        beta: Temperature of a sample.
        stretch: Interval to which (0, 1) is stretched before it is clamped.
    """
    low, high = _check_hard_concrete(beta, stretch)
    gate = torch.sigmoid(log_alpha if noise is None else (log_alpha + noise) / beta)
    return torch.clamp(gate * (high - low) + low, 0, 1)


def hard_concrete_penalty(log_alpha: Tensor, beta: float = 0.33, stretch: tuple[float, float] = (-0.1, 1.1)) -> Tensor:
    """Return the probability of each gate to be non-zero, (H,); their sum is the penalty L_C of eq. 22."""
    low, high = _check_hard_concrete(beta, stretch)
    return torch.sigmoid(log_alpha - beta * log(-low / high))


# ----------------------------------------------------------------------------------------------------- relaxed top-K


def soft_top_k(logits: Tensor, k: float, tau: float, relaxation: str = "successive") -> Tensor:
    """Relax the k-hot vector of the k largest logits into gates that sum to k and have a gradient.

    Both relaxations tend to k/H as tau grows, and to `hard_top_k` as tau falls. They differ in between.

    "successive" is the paper's (eqs. 14-19): the sum of k softmaxes, each of which lowers the logits it has chosen.
    It is exact at every temperature, and that shows what the mathematics does. With H = 144 and Gumbel logits:

    - Gates exceed 1. At tau = 1 the largest is 1.6, 3.8 and 4.8 (medians) for k = 12, 72 and 132.
    - The gradient grows as tau falls, then vanishes. The gain, its norm over the norm that comes in, has a median of
      0.6 at tau = 1, 1.2 at 0.1 and 1e9 at 0.01 (k = 132). At 1e-8 it is exactly 0, unless logits nearly tie.
    - At k = H the gates are not all ones: at tau = 1 they go from 0.1 to 4.9. An unpruned model needs no gates.
    - Equal logits share their gates at every temperature: (0, 0, -5) with k = 3 tends to (1.5, 1.5, 0).
    - A chosen logit falls by gap / tau, where gap is its lead over the next one. So the gates are hard when every gap
      exceeds 50 tau and the spread of the logits is below the smallest gap / tau.

    "threshold" is sigmoid((r - nu) / tau), with nu such that the gates sum to k. Gates stay in [0, 1], k may be
    fractional, the cost is O(H) whatever k is, and the gates are hard as soon as the k-th logit leads the next one.
    Its gradient is at most 1 / (4 tau) times the gradient that comes in.

    Differs: `successive.MAX_GAIN` bounds that gain and keeps the direction. Of 6,000 gradients at tau = 0.1 and 0.2
    none reached it; at 0.01 most do, and unbounded they would wipe out every other gradient they are clipped with.

    Args:
        logits: Perturbed logits r, (H,), finite.
        k: Sum of the gates, between 0 and H; an integer unless the relaxation is "threshold".
        tau: Temperature, positive.
        relaxation: "successive" or "threshold".

    Returns:
        Gates, (H,), in the dtype and on the device of the logits. They sum to k up to the rounding of that dtype:
        keep the logits in float64 where the sum matters.
    """
    if relaxation not in _RELAXATIONS:
        raise ValueError(f"`relaxation` must be one of {', '.join(map(repr, _RELAXATIONS))}; got {relaxation!r}.")
    _check_vector(logits)
    _check_positive("tau", tau)
    if relaxation == "threshold":
        _check_range(k, len(logits))
    else:
        _check_k(k, len(logits), hint=' A fractional `k` needs relaxation="threshold".')
    return _RELAXATIONS[relaxation](logits, k, max(float(tau), COLDEST))


# -------------------------------------------------------------------------------------------------- relaxed knapsack


def soft_knapsack(logits: Tensor, costs: Tensor, budget: float, tau: float) -> Tensor:
    """Relax the choice of the largest logits within a budget into gates that cost the budget and have a gradient.

    The gates are sigmoid((r - nu) / tau), with nu such that sum(costs * gates) = budget. They stay in [0, 1] and follow
    the order of the logits; with equal costs they are those of the relaxation "threshold" of `soft_top_k`. As tau
    grows they tend to budget / sum(costs). As tau falls they become 1 from the largest logit down until the budget is
    spent, and the block at which that happens has what is left of it: one gate in between, or none, unless logits tie.

    The gradient is exact. Its 1-norm is at most 1 / (2 tau) times that of the gradient that comes in, whatever the
    costs; its 2-norm is at most (q + 1/q) / (8 tau) times, where q is the root of the largest cost over the smallest.
    With equal costs that is the 1 / (4 tau) of "threshold".

    Args:
        logits: Perturbed logits r, (N,), finite.
        costs: What each block costs, (N,), finite and not negative; constants, without a gradient. A block that costs
            nothing has no say in nu, and its gate follows it.
        budget: Cost of the gates, between 0 (all gates are 0) and the sum of the costs (all are 1). What exceeds the
            sum by a billionth is taken as rounding.
        tau: Temperature, positive.

    Returns:
        Gates, (N,), in the dtype and on the device of the logits, computed in float64 as those of `soft_top_k`.
    """
    _check_vector(logits)
    _check_positive("tau", tau)
    known = _check_costs(costs, logits)
    spend = _check_budget(budget, known.sum().item())
    return _relaxed_knapsack(logits, known, spend, max(float(tau), COLDEST))


# ------------------------------------------------------------------------------------------------------------ checks


def _check_vector(logits: Tensor) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"`logits` must be a tensor of floating point numbers; got {kind}.")
    if logits.ndim != 1:
        raise ValueError(f"`logits` must have one dimension, one value per head; got shape {tuple(logits.shape)}.")


def _check_k(k: float, size: int, hint: str = "") -> None:
    _check_range(k, size)
    if not isinstance(k, numbers.Integral):
        raise ValueError(f"`k` must be an integer; got {k}.{hint}")


def _check_range(k: float, size: int) -> None:
    if not isinstance(k, numbers.Real):
        raise TypeError(f"`k` must be a number; got {type(k).__name__}.")
    if not 0 <= k <= size:
        raise ValueError(f"`k` must be between 0 and {size} (the number of logits); got {k}.")


def _check_costs(costs: Tensor, logits: Tensor) -> Tensor:
    """Returns the costs as they are computed with."""
    if not isinstance(costs, Tensor) or costs.is_complex():
        kind = costs.dtype if isinstance(costs, Tensor) else type(costs).__name__
        raise TypeError(f"`costs` must be a tensor of real numbers; got {kind}.")
    if costs.shape != logits.shape:
        shapes = f"{tuple(costs.shape)} for logits of shape {tuple(logits.shape)}"
        raise ValueError(f"`costs` must have one value per logit; got shape {shapes}.")
    known = exact(costs.detach())
    if not ((known >= 0).all() and known.sum() < inf):  # false for NaN too
        raise ValueError("`costs` must be finite, also in sum, and not negative; got a negative cost, NaN or infinity.")
    return known


def _check_budget(budget: float, total: float) -> float:
    """Returns the budget, at most the sum of the costs."""
    if not isinstance(budget, numbers.Real):
        raise TypeError(f"`budget` must be a number; got {type(budget).__name__}.")
    if not 0 <= budget <= total * (1 + 1e-9):
        raise ValueError(f"`budget` must be between 0 and {total} (the sum of the costs); got {budget}.")
    return min(float(budget), total)


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < inf:
        raise ValueError(f"`{name}` must be positive and finite; got {value}.")


def _check_not_negative(name: str, value: int) -> None:
    if not value >= 0:
        raise ValueError(f"`{name}` must not be negative; got {value}.")


def _check_hard_concrete(beta: float, stretch: tuple[float, float]) -> tuple[float, float]:
    _check_positive("beta", beta)
    low, high = stretch
    if not (low < 0 and high > 1):
        raise ValueError(f"`stretch` must start below 0 and end above 1, such as (-0.1, 1.1); got ({low}, {high}).")
    return low, high
