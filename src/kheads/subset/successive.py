"""The paper's relaxed top-K, eqs. 14-19: the sum of k softmaxes, each of which lowers the logits it has chosen.

A recursion of hundreds of calls on vectors of H numbers, of which most of the time is the calls themselves: hence numpy
beside torch, on the same memory, and two steps of the backward pass at once.
"""

import math
from math import exp, inf, log, log1p
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kheads.subset.precision import FARTHEST, check_finite, exact

MAX_GAIN = 1e3  # the gradient has at most this many times the norm of the gradient that comes in
FAINTEST = 1e-80  # a smaller probability counts as 0; it cannot move a scaled logit either


class Steps(NamedTuple):
    """The k softmaxes of eqs. 14-16. A head t that is nearly certain is singled out, and p is 0 there."""

    minus_p: Tensor  # (k, H), -p; where q is 0, -FAINTEST times the softmax of the others
    p: Tensor  # (k, H), without what is too faint to count
    top: list[int]  # t, or -1
    rest: list[float]  # q = 1 - p_t
    certain: Tensor  # (H,), the sum of p_t


class Successive(torch.autograd.Function):
    """Eqs. 14-19 as one node of the graph. Inference mode halves the price of its many small operations."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, k: int, tau: float) -> Tensor:
        """Returns the gates and remembers the softmaxes."""
        ctx.tau, ctx.steps = tau, None
        r = exact(logits).detach().numpy()
        order = np.argsort(r)[::-1].tolist()  # NaN would come first
        check_finite(*(r[head] for head in order[:1] + order[-1:]))
        if k == 0 or len(r) == 1:  # no choice to make: the gates are 0, or the only gate is 1
            return torch.full_like(logits, k)
        with torch.inference_mode():
            ctx.steps = _successive_softmax(r, order, k, tau)
        gates: Tensor = ctx.steps.certain + ctx.steps.p.sum(0)
        return gates.to(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Returns the gradient of the logits, at most `MAX_GAIN` times as long as what comes in."""
        if ctx.steps is None:
            return torch.zeros_like(grad), None, None
        with torch.inference_mode():
            g = exact(grad)
            adjoint = _successive_adjoint(ctx.steps, g, ctx.tau)
            norm, size = (torch.linalg.vector_norm(vector).item() for vector in (adjoint, g))
        shrink = norm > MAX_GAIN * ctx.tau * size
        return (adjoint * (MAX_GAIN * size / norm if shrink else 1 / ctx.tau)).to(grad), None, None


def _successive_softmax(r: Any, order: list[int], k: int, tau: float) -> Steps:
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
    np.maximum(scaled, -FARTHEST, out=x_all)
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
            x_at[t] = max(x_t - rate * (u + log1p(exp(-u))), -FARTHEST)
            top[step], rest[step] = t, q
            certain_at[t] += 1 - q
            np.multiply(p_all, q or FAINTEST, p_all)
        np.negative(p_all, minus_p)
        np.log1p(minus_p, p_all)
        np.multiply(p_all, rates, p_all)
        np.add(x_all, p_all, x_all)
        while x_at[after[t]] > x_at[t]:
            t = after[t]
    all_minus_p = torch.from_numpy(record)
    return Steps(all_minus_p, all_minus_p.hardshrink(FAINTEST).neg_(), top, rest, certain)


@np.errstate(all="ignore")  # an infinite gradient is the caller's, and shows in the result
def _successive_adjoint(steps: Steps, g: Tensor, tau: float) -> Tensor:
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
            mean += (1 - q) * qb_t / (q or FAINTEST)
        np.multiply(a, stay[step], a)
        np.add(a, gain[step], a)
        np.multiply(drop[step], mean, change)
        np.add(a, change, a)

    for step, (look, both_stay, move, gained, dropped) in zip(range(k - 2, -1, -2), reversed(pairs), strict=True):
        if step % pause < 2:
            adjoint.clamp_(-FARTHEST, FARTHEST)
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
    return adjoint.clamp_(-FARTHEST, FARTHEST)


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

    Two steps are safe at every temperature: at the lowest they grow it from `FARTHEST` to 1e220 at most.
    """
    return max(2, int(50 / math.log10(2 + 30 * max(size, 100) / tau)))


def _memory(size: int) -> tuple[Any, Any, Tensor]:
    """Return the same zeros as scalars, as an array and as a tensor, each the cheapest at some of the work.

    Reading one value of a tensor costs as much as a softmax. Of the vector operations torch has the faster softmax
    and dot product, numpy the others: with a hundred heads a call costs more than its arithmetic.
    """
    values: Any = np.zeros(size)
    return memoryview(values), values, torch.from_numpy(values)
