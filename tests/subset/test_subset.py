"""The paper's equations: exact sums, exact limits, exact gradients, and no NaN anywhere."""

import itertools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from kheads.subset import (
    anneal,
    gumbel,
    hard_concrete,
    hard_concrete_penalty,
    hard_top_k,
    logistic,
    soft_top_k,
    straight_through,
    successive,
)

RELAXATIONS = ("successive", "threshold")
F64 = torch.float64

thorough = settings(derandomize=True, deadline=None, max_examples=150)
temperatures = st.floats(-8, 4).map(lambda exponent: 10.0**exponent)


@st.composite
def vectors(draw: st.DrawFn, max_size: int = 24) -> Tensor:
    """Logits in [-10, 10]: arbitrary, on a coarse grid with many ties, or all equal."""
    size = draw(st.integers(1, max_size))
    values = draw(
        st.one_of(
            st.lists(st.floats(-10, 10), min_size=size, max_size=size),
            st.lists(st.integers(-2, 2).map(float), min_size=size, max_size=size),
            st.floats(-10, 10).map(lambda value: [value] * size),
        )
    )
    return torch.tensor(values, dtype=F64)


@st.composite
def vectors_with_k(draw: st.DrawFn) -> tuple[Tensor, int]:
    logits = draw(vectors())
    return logits, draw(st.integers(1, len(logits)))


def draw_logits(size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(size, dtype=F64, generator=generator) - 0.5 + gumbel(size, generator)


def value_and_gradient(logits: Tensor, weights: Tensor, function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    logits = logits.detach().requires_grad_()
    value = function(logits)
    (gradient,) = torch.autograd.grad(value, logits, weights.to(value))
    return value.detach(), gradient


def relaxed(k: float, tau: float, relaxation: str = "successive") -> Callable[[Tensor], Tensor]:
    return lambda logits: soft_top_k(logits, k, tau, relaxation)


def plain_successive(logits: Tensor, k: int, tau: float) -> Tensor:
    """Eqs. 14-19 as a loop of autograd operations; right where no probability comes close to 1."""
    x, gates = logits / tau, torch.zeros_like(logits)
    for _ in range(k):
        p = torch.softmax(x, 0)
        gates = gates + p
        x = x + torch.log1p(-p) / tau
    return gates


def finite_differences(function: Callable[[Tensor], Tensor], logits: Tensor, weights: Tensor, step: float) -> Tensor:
    slopes = []
    for shift in torch.eye(len(logits), dtype=F64) * step:
        slopes.append(torch.dot(weights, function(logits + shift) - function(logits - shift)) / (2 * step))
    return torch.stack(slopes)


# ------------------------------------------------------------------------------------------------------ both at once


@thorough
@given(case=vectors_with_k(), tau=temperatures, relaxation=st.sampled_from(RELAXATIONS))
def test_gates_sum_to_k_and_everything_is_finite(case: tuple[Tensor, int], tau: float, relaxation: str) -> None:
    """The gates sum to k; gates and gradients are finite, whatever the temperature and the ties."""
    logits, k = case
    weights = torch.linspace(-1, 2, len(logits), dtype=F64)
    gates, gradient = value_and_gradient(logits, weights, relaxed(k, tau, relaxation))
    assert abs(gates.sum().item() - k) < 1e-6
    assert gates.min() >= 0
    assert torch.isfinite(gates).all() and torch.isfinite(gradient).all()


@pytest.mark.parametrize("relaxation", RELAXATIONS)
@pytest.mark.parametrize("tau", [1e-8, 1e-4, 0.01, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("k", [1, 12, 72, 132, 144])
def test_sum_and_finiteness_at_the_size_of_bert(relaxation: str, tau: float, k: int) -> None:
    """The same for 144 heads, with Gumbel noise and with many ties."""
    for logits in (draw_logits(144), draw_logits(144).round(), torch.zeros(144, dtype=F64)):
        weights = torch.linspace(-1, 2, 144, dtype=F64)
        gates, gradient = value_and_gradient(logits, weights, relaxed(k, tau, relaxation))
        assert abs(gates.sum().item() - k) < 1e-6
        assert torch.isfinite(gradient).all()


@thorough
@given(
    order=st.permutations(range(12)),
    gaps=st.lists(st.floats(1, 3), min_size=12, max_size=12),
    k=st.integers(0, 12),
    tau=st.floats(-12, -1.8).map(lambda exponent: 10.0**exponent),
    relaxation=st.sampled_from(RELAXATIONS),
)
def test_low_temperature_gives_the_hard_gates(
    order: list[int], gaps: list[float], k: int, tau: float, relaxation: str
) -> None:
    """Where neighbouring logits differ by more than 50 tau, the gates are those of hard_top_k."""
    logits = torch.tensor(gaps, dtype=F64).cumsum(0)[torch.tensor(order)]
    gates = soft_top_k(logits, k, tau, relaxation)
    torch.testing.assert_close(gates, hard_top_k(logits, k), rtol=0, atol=1e-9)


def test_threshold_is_hard_when_the_boundary_is_clear() -> None:
    """Ties away from the boundary do not matter to the threshold, only the k-th logit and the next."""
    logits = torch.tensor([3.0, 3.0, 3.0, 1.0, 0.0, 0.0], dtype=F64)
    assert torch.equal(soft_top_k(logits, 4, 1e-8, "threshold"), hard_top_k(logits, 4))


@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_high_temperature_gives_equal_gates(relaxation: str) -> None:
    """As tau grows the gates tend to k / H."""
    for k in (1, 5, 19):
        gates = soft_top_k(draw_logits(20), k, 1e7, relaxation)
        torch.testing.assert_close(gates, torch.full((20,), k / 20, dtype=F64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("relaxation", RELAXATIONS)
@pytest.mark.parametrize("tau", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("k", [1, 3, 7, 8])
def test_gradient_agrees_with_finite_differences(relaxation: str, tau: float, k: int) -> None:
    """The hand-derived backward is the derivative of the forward."""
    logits, weights = draw_logits(8, seed=k), torch.linspace(-1, 2, 8, dtype=F64)
    function = relaxed(k, tau, relaxation)
    _, gradient = value_and_gradient(logits, weights, function)
    torch.testing.assert_close(gradient, finite_differences(function, logits, weights, 1e-5), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("logits", [(1.0, 0.92, 0.85), (0.5, 0.495, 0.3, 0.293), (0.0, -0.3, -0.31, -0.6)])
def test_gradient_agrees_where_a_probability_is_nearly_one(logits: tuple[float, ...]) -> None:
    """Also where 1 - p has lost all its digits: the log of what is left comes from the other heads."""
    r, weights = torch.tensor(logits, dtype=F64), torch.arange(1.0, len(logits) + 1, dtype=F64)
    for k in range(1, len(logits) + 1):
        function = relaxed(k, 0.01)
        _, gradient = value_and_gradient(r, weights, function)
        torch.testing.assert_close(gradient, finite_differences(function, r, weights, 1e-7), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_the_graph_has_one_node(relaxation: str) -> None:
    """The whole relaxation is one step of the graph, from the logits to the gates."""
    logits = draw_logits(6).requires_grad_()
    node = soft_top_k(logits, 3, 1.0, relaxation).grad_fn
    assert node is not None and relaxation.title() in node.name()
    assert getattr(node.next_functions[0][0], "variable", None) is logits


@pytest.mark.parametrize("relaxation", RELAXATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_other_dtypes_are_computed_in_float64(relaxation: str, dtype: torch.dtype, autocast: bool) -> None:
    """Gates and gradients have the dtype of the logits and the precision of float64, also under autocast."""
    logits, weights = draw_logits(30).to(dtype), torch.linspace(-1, 2, 30).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        gates, gradient = value_and_gradient(logits, weights, relaxed(10, 0.3, relaxation))
    exact = value_and_gradient(logits.double(), weights.double(), relaxed(10, 0.3, relaxation))
    assert gates.dtype == gradient.dtype == dtype
    assert torch.equal(gates, exact[0].to(dtype))
    assert torch.equal(gradient, exact[1].to(dtype))


@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_backward_may_run_twice(relaxation: str) -> None:
    """A retained graph gives the same gradient again."""
    logits = draw_logits(10).requires_grad_()
    loss = soft_top_k(logits, 4, 0.05, relaxation).square().sum()
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("relaxation", RELAXATIONS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_incoming_gradient_is_not_hidden(relaxation: str, bad: float) -> None:
    """A loss scaler must see the overflow of the model's own gradient."""
    weights = torch.zeros(10, dtype=F64)
    weights[3] = bad
    _, gradient = value_and_gradient(draw_logits(10), weights, relaxed(4, 1.0, relaxation))
    assert not torch.isfinite(gradient).all()


@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_extreme_numbers_stay_finite(relaxation: str) -> None:
    """Temperatures and logits at the ends of float64 do no harm."""
    ends = torch.tensor([1e308, -1e308, 0.0, 1e-308, 1.0, 1.0], dtype=F64)
    for k, tau in itertools.product(range(7), (1e-308, 1e-100, 1e-30, 1.0, 1e30, 1e308)):
        gates, gradient = value_and_gradient(ends, ends.sign(), relaxed(k, tau, relaxation))
        assert abs(gates.sum().item() - k) < 1e-6
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_smallest_sizes(relaxation: str) -> None:
    """No heads, one head and k = 0 have the only gates they can have, and a gradient of 0."""
    for logits, k in ((torch.empty(0, dtype=F64), 0), (torch.ones(1, dtype=F64), 1), (draw_logits(5), 0)):
        gates, gradient = value_and_gradient(logits, torch.ones_like(logits), relaxed(k, 0.1, relaxation))
        assert torch.equal(gates, torch.full_like(logits, float(k > 0)))
        assert torch.equal(gradient, torch.zeros_like(logits))


# -------------------------------------------------------------------------------------------------------- successive


@thorough
@given(logits=vectors(), tau=temperatures)
def test_one_head_is_a_softmax(logits: Tensor, tau: float) -> None:
    """With k = 1 the relaxation is the Gumbel softmax with temperature (eq. 8)."""
    torch.testing.assert_close(soft_top_k(logits, 1, tau), torch.softmax(logits / tau, 0), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("tau", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("k", [2, 12, 72, 132, 144])
def test_successive_is_the_recursion_of_the_paper(tau: float, k: int) -> None:
    """Gates and gradients equal those of a loop of autograd operations where that loop is precise."""
    logits, weights = draw_logits(144), torch.linspace(-1, 2, 144, dtype=F64)
    gates, gradient = value_and_gradient(logits, weights, relaxed(k, tau))
    expected = value_and_gradient(logits, weights, lambda r: plain_successive(r, k, tau))
    torch.testing.assert_close(gates, expected[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradient, expected[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tau", [0.3, 0.05, 0.02, 0.005])
def test_successive_is_exact_at_low_temperature(tau: float) -> None:
    """It equals the recursion in decimal arithmetic of 400 digits, where 1 - p has none left in float64."""
    logits = (0.31, 0.11, 0.3, -0.2, 0.29)
    with localcontext(prec=400):
        x = [Decimal(value) / Decimal(tau) for value in logits]
        expected = [Decimal(0)] * len(x)
        for _ in range(4):
            total = sum(value.exp() for value in x)
            p = [value.exp() / total for value in x]
            expected = [gate + share for gate, share in zip(expected, p, strict=True)]
            x = [value + (1 - share).ln() / Decimal(tau) for value, share in zip(x, p, strict=True)]
    gates = soft_top_k(torch.tensor(logits, dtype=F64), 4, tau)
    torch.testing.assert_close(
        gates, torch.tensor([float(gate) for gate in expected], dtype=F64), rtol=1e-9, atol=1e-12
    )


@thorough
@given(case=vectors_with_k(), tau=temperatures, seed=st.integers(0, 99))
def test_the_gradient_is_bounded(case: tuple[Tensor, int], tau: float, seed: int) -> None:
    """Its norm is at most MAX_GAIN times the norm of the gradient that comes in."""
    logits, k = case
    weights = torch.randn(len(logits), dtype=F64, generator=torch.Generator().manual_seed(seed))
    _, gradient = value_and_gradient(logits, weights, relaxed(k, tau))
    assert gradient.norm() <= successive.MAX_GAIN * weights.norm() * (1 + 1e-9)


def test_the_bound_keeps_the_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    """At tau = 0.01 the gradient explodes; bounded, it is the same vector made shorter."""
    logits, weights = draw_logits(144), torch.linspace(-1, 2, 144, dtype=F64)
    _, bounded = value_and_gradient(logits, weights, relaxed(72, 0.01))
    monkeypatch.setattr(successive, "MAX_GAIN", math.inf)
    _, free = value_and_gradient(logits, weights, relaxed(72, 0.01))
    assert free.norm() > 1e4 * weights.norm()
    torch.testing.assert_close(bounded.norm(), 1e3 * weights.norm())
    torch.testing.assert_close(bounded / bounded.norm(), free / free.norm())


def test_what_the_docstring_says_of_successive() -> None:
    """Gates above 1, ties that stay soft, k = H without ones, and a gradient that vanishes exactly."""
    assert soft_top_k(draw_logits(144), 132, 1.0).max() > 3
    ties = torch.tensor([0.0, 0.0, -5.0], dtype=F64)
    torch.testing.assert_close(soft_top_k(ties, 3, 1e-8), torch.tensor([1.5, 1.5, 0.0], dtype=F64))
    assert soft_top_k(draw_logits(144), 144, 1.0).min() < 0.3
    _, gradient = value_and_gradient(draw_logits(144), torch.ones(144), relaxed(132, 1e-8))
    assert torch.equal(gradient, torch.zeros(144, dtype=F64))


# --------------------------------------------------------------------------------------------------------- threshold


@thorough
@given(logits=vectors(), share=st.floats(0, 1), tau=temperatures)
def test_threshold_takes_a_fractional_k(logits: Tensor, share: float, tau: float) -> None:
    """Any real k between 0 and H is met, with gates in [0, 1] that follow the order of the logits."""
    k = share * len(logits)
    gates = soft_top_k(logits, k, tau, "threshold")
    assert abs(gates.sum().item() - k) < 1e-6
    assert gates.min() >= 0 and gates.max() <= 1
    assert (gates[logits.argsort()].diff() >= -1e-12).all()


def test_threshold_at_the_ends_of_k() -> None:
    """k = H opens every gate exactly; k next to 0 and to H is met too."""
    logits = draw_logits(9)
    assert torch.equal(soft_top_k(logits, 9, 0.1, "threshold"), torch.ones(9, dtype=F64))
    for k in (1e-300, 1e-9, 9 - 1e-9):
        assert abs(soft_top_k(logits, k, 0.1, "threshold").sum().item() - k) < 1e-12


def test_threshold_shares_a_tie_at_the_boundary() -> None:
    """Equal logits at the boundary share what is left, at every temperature."""
    logits = torch.tensor([1.0, 0.0, 0.0, 0.0, -1.0], dtype=F64)
    gates = soft_top_k(logits, 2, 1e-8, "threshold")
    torch.testing.assert_close(gates, torch.tensor([1, 1 / 3, 1 / 3, 1 / 3, 0], dtype=F64))


# ------------------------------------------------------------------------------------------------ hard gates, noise


def test_hard_top_k_is_stable() -> None:
    """Exactly k gates are 1 for every k, and of equal logits the lower index wins."""
    logits = torch.tensor([1.0, 2.0, 1.0, 2.0, 1.0], dtype=F64)
    expected = [[], [1], [1, 3], [0, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    for k, kept in enumerate(expected):
        assert hard_top_k(logits, k).nonzero().flatten().tolist() == kept


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_hard_top_k_keeps_the_dtype_and_has_no_gradient(dtype: torch.dtype) -> None:
    """The gates have the dtype of the logits; infinite logits are ordered like any other."""
    logits = torch.tensor([-math.inf, 0.0, math.inf], dtype=dtype, requires_grad=True)
    gates = hard_top_k(logits, 2)
    assert gates.dtype == dtype and not gates.requires_grad
    assert gates.tolist() == [0, 1, 1]


def test_straight_through() -> None:
    """The value is exactly the hard gates, the gradient exactly that of the soft ones."""
    logits = (draw_logits(20) * 1e3).requires_grad_()
    hard = hard_top_k(logits, 7)
    gates = straight_through(hard, logits)
    weights = torch.randn(20, dtype=F64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gates, hard)
    assert torch.equal(torch.autograd.grad(gates, logits, weights)[0], weights)


def test_gumbel_top_k_samples_sets_in_proportion_to_importance() -> None:
    """The frequencies of the sets of two heads out of five follow eq. 13."""
    generator = torch.Generator().manual_seed(0)
    w = torch.tensor([0.5, -0.5, 0.0, 1.0, -1.0], dtype=F64)
    importance = w.exp().tolist()
    draws = 4000
    counts = dict.fromkeys(itertools.combinations(range(5), 2), 0)
    for _ in range(draws):
        counts[tuple(hard_top_k(w + gumbel(5, generator), 2).nonzero().flatten().tolist())] += 1
    total = sum(importance)
    probabilities = [
        sum(importance[i] / total * importance[j] / (total - importance[i]) for i, j in ((a, b), (b, a)))
        for a, b in counts
    ]
    assert math.isclose(sum(probabilities), 1)
    assert chisquare(list(counts.values()), [draws * p for p in probabilities]).pvalue > 0.01


@pytest.mark.parametrize(
    ("noise", "mean", "variance"), [(gumbel, 0.5772, math.pi**2 / 6), (logistic, 0.0, math.pi**2 / 3)]
)
def test_noise(noise: Callable[..., Tensor], mean: float, variance: float) -> None:
    """The noise has the moments of its distribution, is float64, and its generator makes it repeatable."""
    sample = noise((1000, 200), torch.Generator().manual_seed(0))
    assert sample.shape == (1000, 200) and sample.dtype == F64
    assert abs(sample.mean().item() - mean) < 0.02
    assert abs(sample.var().item() / variance - 1) < 0.02
    assert torch.equal(sample, noise((1000, 200), torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("noise", [gumbel, logistic])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-53])
def test_noise_is_never_infinite(noise: Callable[..., Tensor], uniform: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even at the two ends of what torch.rand may return."""
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.full(size, uniform, dtype=F64))
    assert torch.isfinite(noise(3)).all()


# ----------------------------------------------------------------------------------------------------- hard concrete


@pytest.mark.parametrize("value", [-3.0, -0.5, 0.0, 1.0, 3.0])
def test_hard_concrete_opens_as_often_as_the_penalty_says(value: float) -> None:
    """The penalty is the probability that a sampled gate is not 0."""
    log_alpha = torch.full((50_000,), value, dtype=F64)
    gates = hard_concrete(log_alpha, logistic(50_000, torch.Generator().manual_seed(0)))
    assert gates.min() >= 0 and gates.max() <= 1
    expected = hard_concrete_penalty(log_alpha[:1]).item()
    assert abs((gates != 0).double().mean().item() - expected) < 0.01


def test_hard_concrete_without_noise() -> None:
    """The deterministic gate is exactly 0 and 1 at the ends, 1/2 in the middle, and has a gradient in between."""
    log_alpha = torch.tensor([-9.0, 0.0, 9.0], dtype=F64, requires_grad=True)
    gates = hard_concrete(log_alpha)
    torch.testing.assert_close(gates.detach(), torch.tensor([0.0, 0.5, 1.0], dtype=F64))
    assert gates[0] == 0 and gates[2] == 1
    (gradient,) = torch.autograd.grad(gates.sum(), log_alpha)
    torch.testing.assert_close(gradient, torch.tensor([0.0, 1.2 / 4, 0.0], dtype=F64))


def test_hard_concrete_gradients() -> None:
    """Samples and penalty are differentiable in log_alpha."""
    log_alpha = torch.linspace(-1, 1, 7, dtype=F64, requires_grad=True)
    noise = torch.linspace(-0.3, 0.3, 7, dtype=F64)
    assert torch.autograd.gradcheck(lambda a: hard_concrete(a, noise), log_alpha)
    assert torch.autograd.gradcheck(hard_concrete_penalty, log_alpha)


# --------------------------------------------------------------------------------------------------------- annealing


def test_anneal() -> None:
    """The temperature starts at `start`, ends at `end` and stays there; its logarithm is linear in between."""
    assert anneal(0, 1000.0, 1e-8, 25_000) == 1000.0
    assert anneal(25_000, 1000.0, 1e-8, 25_000) == anneal(10**9, 1000.0, 1e-8, 25_000) == 1e-8
    assert anneal(0, 1000.0, 1e-8, 0) == 1e-8
    logs = [math.log(anneal(step, 1000.0, 1e-8, 100)) for step in range(101)]
    steps = [b - a for a, b in itertools.pairwise(logs)]
    assert all(math.isclose(step, math.log(1e-11) / 100, rel_tol=1e-9) for step in steps)


# ------------------------------------------------------------------------------------------------------------ errors

THREE = torch.zeros(3, dtype=F64)
text: Any = "2"
numbers: Any = [1.0, 2.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: soft_top_k(THREE, 4, 1.0), ValueError, "`k` must be between 0 and 3 (the number of logits); got 4."),
        (lambda: soft_top_k(THREE, -1, 1.0, "threshold"), ValueError, "`k` must be between 0 and 3"),
        (lambda: soft_top_k(THREE, math.nan, 1.0, "threshold"), ValueError, "`k` must be between 0 and 3"),
        (lambda: soft_top_k(THREE, 1.5, 1.0), ValueError, "`k` must be an integer; got 1.5. A fractional `k` needs"),
        (lambda: soft_top_k(THREE, text, 1.0), TypeError, "`k` must be a number; got str."),
        (lambda: soft_top_k(THREE, 2, 0.0), ValueError, "`tau` must be positive and finite; got 0.0."),
        (lambda: soft_top_k(THREE, 2, math.inf), ValueError, "`tau` must be positive and finite; got inf."),
        (
            lambda: soft_top_k(THREE, 2, 1.0, "soft"),
            ValueError,
            "`relaxation` must be one of 'successive', 'threshold'",
        ),
        (lambda: soft_top_k(THREE / 0, 2, 1.0), ValueError, "`logits` must be finite; got NaN or infinity."),
        (lambda: soft_top_k(THREE + math.inf, 2, 1.0, "threshold"), ValueError, "`logits` must be finite"),
        (
            lambda: soft_top_k(THREE.int(), 2, 1.0),
            TypeError,
            "`logits` must be a tensor of floating point numbers; got",
        ),
        (
            lambda: soft_top_k(numbers, 2, 1.0),
            TypeError,
            "`logits` must be a tensor of floating point numbers; got list",
        ),
        (
            lambda: soft_top_k(THREE[None], 2, 1.0),
            ValueError,
            "`logits` must have one dimension, one value per head; got",
        ),
        (lambda: hard_top_k(THREE, 4), ValueError, "`k` must be between 0 and 3 (the number of logits); got 4."),
        (lambda: hard_top_k(THREE, text), TypeError, "`k` must be a number; got str."),
        (lambda: hard_top_k(THREE, numbers[0]), ValueError, "`k` must be an integer; got 1.0."),
        (lambda: hard_top_k(THREE * math.nan, 1), ValueError, "`logits` must not contain NaN."),
        (lambda: hard_top_k(THREE[None], 1), ValueError, "`logits` must have one dimension, one value per head; got"),
        (lambda: anneal(0, 0.0, 1.0, 5), ValueError, "`start` must be positive and finite; got 0.0."),
        (lambda: anneal(0, 1.0, -1.0, 5), ValueError, "`end` must be positive and finite; got -1.0."),
        (lambda: anneal(-1, 1.0, 1.0, 5), ValueError, "`step` must not be negative; got -1."),
        (lambda: anneal(0, 1.0, 1.0, -5), ValueError, "`cooldown` must not be negative; got -5."),
        (lambda: hard_concrete(THREE, beta=0.0), ValueError, "`beta` must be positive and finite; got 0.0."),
        (
            lambda: hard_concrete_penalty(THREE, stretch=(0, 1)),
            ValueError,
            "`stretch` must start below 0 and end above",
        ),
    ],
)
def test_errors_say_what_is_allowed(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    """Each names the argument, what it must be and what it was."""
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value).startswith(message)
