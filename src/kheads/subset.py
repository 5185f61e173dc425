"""The paper's equations as pure tensor functions: noise, relaxed and hard top-K, hard concrete gates, annealing.

Symbols follow the paper: H heads, K of them kept; w_h a head's weight (eq. 20) and r_h = w_h + Gumbel noise its
perturbed logit; tau the temperature; g_h a gate. Vectors over heads have shape (H,).

Differs: the relaxed top-K is computed in float64 on the CPU, whatever the dtype and device of the logits. In float32
the gradient of eqs. 14-19 is NaN at tau <= 0.01, and H numbers are copied faster than K kernels are launched.
"""

import math
import numbers
from collections.abc import Sequence
from math import exp, inf, log, log1p
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = [
    "anneal",
    "gumbel",
    "hard_concrete",
    "hard_concrete_penalty",
    "hard_top_k",
    "logistic",
    "soft_top_k",
    "straight_through",
]

MAX_GAIN = 1e3  # the gradient of "successive" has at most this many times the norm of the gradient that comes in
_COLDEST = 1e-50  # a lower temperature is taken as this one; 1/tau and its products then stay inside float64
_FARTHEST = 1e100  # scaled logits and adjoints are clamped here, far outside anything that reaches a gate
_FAINTEST = 1e-80  # a smaller probability counts as 0; it cannot move a scaled logit either


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

    Differs: `MAX_GAIN` bounds that gain and keeps the direction. Of 6,000 gradients at tau = 0.1 and 0.2 none reached
    it; at 0.01 most do, and unbounded they would wipe out every other gradient they are clipped with.

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
    gates: Tensor = _RELAXATIONS[relaxation].apply(logits, k, max(float(tau), _COLDEST))
    return gates


def _exact(values: Tensor) -> Tensor:
    return values.to("cpu", torch.float64)


def _check_finite(*ends: float) -> None:
    if not all(-inf < end < inf for end in ends):  # false for NaN too
        raise ValueError("`logits` must be finite; got NaN or infinity.")


class _Steps(NamedTuple):
    """The k softmaxes of eqs. 14-16. A head t that is nearly certain is singled out, and p is 0 there."""

    minus_p: Tensor  # (k, H), -p; where q is 0, -_FAINTEST times the softmax of the others
    p: Tensor  # (k, H), without what is too faint to count
    top: list[int]  # t, or -1
    rest: list[float]  # q = 1 - p_t
    certain: Tensor  # (H,), the sum of p_t


class _Successive(torch.autograd.Function):
    """Eqs. 14-19 as one node of the graph. Inference mode halves the price of its many small operations."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, k: int, tau: float) -> Tensor:
        ctx.tau, ctx.steps = tau, None
        r = _exact(logits).detach().numpy()
        order = np.argsort(r)[::-1].tolist()  # NaN would come first
        _check_finite(*(r[head] for head in order[:1] + order[-1:]))
        if k == 0 or len(r) == 1:  # no choice to make: the gates are 0, or the only gate is 1
            return torch.full_like(logits, k)
        with torch.inference_mode():
            ctx.steps = _successive_softmax(r, order, k, tau)
        gates: Tensor = ctx.steps.certain + ctx.steps.p.sum(0)
        return gates.to(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if ctx.steps is None:
            return torch.zeros_like(grad), None, None
        with torch.inference_mode():
            g = _exact(grad)
            adjoint = _successive_adjoint(ctx.steps, g, ctx.tau)
            norm, size = (torch.linalg.vector_norm(vector).item() for vector in (adjoint, g))
        shrink = norm > MAX_GAIN * ctx.tau * size
        return (adjoint * (MAX_GAIN * size / norm if shrink else 1 / ctx.tau)).to(grad), None, None


def _successive_softmax(r: Any, order: list[int], k: int, tau: float) -> _Steps:
    """From x = r / tau, repeat k times p = softmax(x), x += log(1 - p) / tau, precisely even where a p is nearly 1.

    A nearly certain head t is singled out, and the others get a softmax s of their own. With u = x_t - logsumexp of
    the others, the rest q = 1 - p_t is sigmoid(-u), its logarithm is exact however small, and the others have p = q s.
    No maximum is needed to find t: as 1 - p_j >= p_t, any t with a fair share vouches for the others. From step to
    step t climbs along the order of the first logits; should its share become poor all the same, it is looked up.
    """
    size, rate, fair = len(r), 1 / tau, 0.1 / len(r)
    after = dict(zip(order, order[1:] + order[:1], strict=True))
    x_at, x_all, x_now = _memory(size)
    p_at, p_all, p = _memory(size)
    certain_at, _, certain = _memory(size)
    with np.errstate(over="ignore"):
        scaled = np.subtract(r, r[order[0]], x_all) / tau  # what is near the largest stays precise at every tau
    np.maximum(scaled, -_FARTHEST, out=x_all)
    rates = np.full(size, rate)  # numpy multiplies by an array faster than by a number
    record = np.empty((k, size))
    t, top, rest = order[0], [-1] * k, [1.0] * k
    for step, minus_p in enumerate(record):
        torch.softmax(x_now, 0, out=p)
        if p_at[t] < fair:
            t = int(p_all.argmax())
        if p_at[t] > 0.999:
            x_t, x_at[t] = x_at[t], -inf
            torch.softmax(x_now, 0, out=p)
            other = after[t] if p_at[after[t]] > 1e-200 else int(p_all.argmax())
            u = x_t - x_at[other] + log(p_at[other])
            q = 1 / (1 + exp(u)) if u < 180 else 0.0
            x_at[t] = max(x_t - rate * (u + log1p(exp(-u))), -_FARTHEST)
            top[step], rest[step] = t, q
            certain_at[t] += 1 - q
            np.multiply(p_all, q or _FAINTEST, p_all)
        np.negative(p_all, minus_p)
        np.log1p(minus_p, p_all)
        np.multiply(p_all, rates, p_all)
        np.add(x_all, p_all, x_all)
        while x_at[after[t]] > x_at[t]:
            t = after[t]
    all_minus_p = torch.from_numpy(record)
    return _Steps(all_minus_p, all_minus_p.hardshrink(_FAINTEST).neg_(), top, rest, certain)


@np.errstate(all="ignore")  # an infinite gradient is the caller's, and shows in the result
def _successive_adjoint(steps: _Steps, g: Tensor, tau: float) -> Tensor:
    """Return tau times the gradient of <g, gates> with respect to the logits.

    From the last step to the first, the adjoint a of x changes by p * (b - <p, b>), where b = g - a / (tau (1 - p)).
    With w = p / (tau (1 - p)) that makes it a (1 - w) + p g - p m, where the mean m = <p, b> is <p, g> - <w, a>. At a
    head t that is singled out 1 / (1 - p) may overflow, and only q b_t = q g_t - a_t / tau is used.
    """
    (k, size), rate, pause = steps.p.shape, 1 / tau, _clamp_interval(len(g), tau)
    p, drop = steps.p.numpy(), steps.minus_p.numpy()
    w = 1 - p
    np.divide(p, np.multiply(w, tau, w), w)
    stay, gain = 1 - w, p * g.numpy()
    pairs = _pairs(*(rows[k % 2 :] for rows in (w, stay, gain, drop)))
    p_g, g_at, change = p.dot(g.numpy()).tolist(), g.tolist(), np.empty(size)
    a_at, a, adjoint = _memory(size)
    seen_at, seen, _ = _memory(2)
    mean_at, means, _ = _memory(3)
    mean_at[2] = 1.0

    def take_one(step: int) -> None:
        t, q = steps.top[step], steps.rest[step]
        mean = p_g[step] - float(w[step].dot(a))
        if t >= 0:  # p_t b_t is a part of the mean
            qb_t = q * g_at[t] - a_at[t] * rate
            a_at[t] += (1 - q) * (qb_t - mean)
            mean += (1 - q) * qb_t / (q or _FAINTEST)
        np.multiply(a, stay[step], a)
        np.add(a, gain[step], a)
        np.multiply(drop[step], mean, change)
        np.add(a, change, a)

    for step, (look, both_stay, move, gained, dropped) in zip(range(k - 2, -1, -2), reversed(pairs), strict=True):
        if step % pause < 2:
            adjoint.clamp_(-_FARTHEST, _FARTHEST)
        if steps.top[step] >= 0 or steps.top[step + 1] >= 0:
            take_one(step + 1)
            take_one(step)
            continue
        np.dot(look, a, seen)
        mean_at[0] = later = p_g[step + 1] - seen_at[0]
        mean_at[1] = p_g[step] - seen_at[1] - gained - later * dropped
        np.multiply(a, both_stay, a)
        np.dot(means, move, change)
        np.add(a, change, a)
    if k % 2:
        take_one(0)
    return adjoint.clamp_(-_FARTHEST, _FARTHEST)


def _pairs(w: Any, stay: Any, gain: Any, drop: Any) -> list[tuple[Any, Any, Any, float, float]]:
    """Return what it takes to make two steps of the adjoint at once, which halves the number of operations.

    The later step of a pair leads to a' = a stay + gain + drop m. Then the mean of the earlier one, <p, g> - <w, a'>,
    is linear in a and m too: both means are known from a, and so is the adjoint after both steps.
    """
    late_w, late_stay, late_gain, late_drop = (rows[1::2] for rows in (w, stay, gain, drop))
    w, stay, gain, drop = (rows[::2] for rows in (w, stay, gain, drop))
    look, move = (np.empty((len(w), count, w.shape[1])) for count in (2, 3))
    look[:, 0] = late_w
    np.multiply(w, late_stay, look[:, 1])
    np.multiply(late_drop, stay, move[:, 0])
    move[:, 1] = drop
    np.multiply(late_gain, stay, move[:, 2])
    move[:, 2] += gain
    gained, dropped = (np.einsum("ij,ij->i", w, rows).tolist() for rows in (late_gain, late_drop))
    return list(zip(look, late_stay * stay, move, gained, dropped, strict=True))


def _clamp_interval(size: int, tau: float) -> int:
    """Return the number of steps in which the adjoint grows by 1e50 at most, as one step grows it by H / tau.

    Two steps are safe at every temperature: at the lowest they grow it from `_FARTHEST` to 1e220 at most.
    """
    return max(2, int(50 / math.log10(2 + 30 * max(size, 100) / tau)))


def _memory(size: int) -> tuple[Any, Any, Tensor]:
    """Return the same zeros as scalars, as an array and as a tensor, each the cheapest at some of the work.

    Reading one value of a tensor costs as much as a softmax. Of the vector operations torch has the faster softmax
    and dot product, numpy the others: with a hundred heads a call costs more than its arithmetic.
    """
    values: Any = np.zeros(size)
    return memoryview(values), values, torch.from_numpy(values)


class _Threshold(torch.autograd.Function):
    """g = sigmoid((r - nu) / tau) with sum(g) = k, differentiated by the implicit function theorem."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, k: float, tau: float) -> Tensor:
        ctx.tau, ctx.slope = tau, None
        r = _exact(logits)
        _check_finite(*(end.item() for end in (torch.aminmax(r) if len(r) else ())))
        if k == 0 or k == len(r):
            return torch.full_like(logits, float(k > 0))
        with torch.inference_mode():
            kth = torch.kthvalue(r, len(r) - math.ceil(k) + 1).values
            x = ((r - kth) / tau).clamp_(-_FARTHEST, _FARTHEST)  # what is near the k-th stays precise
            x -= _threshold(x, float(k))
            ctx.slope = torch.sigmoid(x) * torch.sigmoid(-x)
        return torch.sigmoid(x).to(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        total = 0.0 if ctx.slope is None else float(ctx.slope.sum())
        if total == 0:  # the gates are hard
            return torch.zeros_like(grad), None, None
        with torch.inference_mode():
            g = _exact(grad)
            centred = g - ctx.slope.dot(g) / total
        return (ctx.slope * centred / ctx.tau).to(grad), None, None


def _threshold(x: Tensor, k: float) -> float:
    """Solve sum(sigmoid(x - c)) = k for c, where the ceil(k)-th largest x is 0.

    What the heads below 0 hold and what the others lack to be 1 must balance: spill = lack. The difference of their
    logarithms is nearly linear in c, so Newton's method needs about five steps from anywhere. A bracket keeps it safe.
    """
    above = x >= 0
    upper, lower = x[above], x[~above]
    spare = len(upper) - k
    low = (log(spare) if spare > 0 else lower.max().item()) - log(k)
    high = log(len(x) - k) - log(k - (math.ceil(k) - 1))
    low, high = low - 1, high + 1  # a root at the edge may be approached from both sides
    c = (low + high) / 2
    for _ in range(200):
        spill, spill_slope = _sigmoid_sum(lower - c)
        lack, lack_slope = _sigmoid_sum(c - upper)
        spill, lack = max(spill + spare, 5e-324), max(lack, 5e-324)
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


def _sigmoid_sum(x: Tensor) -> tuple[float, float]:
    """Return the sum of sigmoid(x) and of its derivative."""
    value = torch.sigmoid(x)
    total = value.sum().item()
    return total, total - value.dot(value).item()


_RELAXATIONS: dict[str, type[torch.autograd.Function]] = {"successive": _Successive, "threshold": _Threshold}


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
