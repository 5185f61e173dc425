"""The relaxed knapsack: it costs the budget, tends to its limits, has an exact and bounded gradient, and no NaN."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kheads.subset import gumbel, soft_knapsack, soft_top_k

F64 = torch.float64
TEMPERATURES = (1e-8, 1e-4, 0.01, 0.1, 1.0, 1e4)

thorough = settings(derandomize=True, deadline=None, max_examples=150)
temperatures = st.floats(-8, 4).map(lambda exponent: 10.0**exponent)
wide_costs = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)


@st.composite
def knapsacks(draw: st.DrawFn, cost: st.SearchStrategy[float] = wide_costs) -> tuple[Tensor, Tensor, float]:
    """Logits with and without ties, costs over six orders of magnitude or few values, and a budget between the ends.

    Budgets are any share of the sum, a tiny part of it, all but a tiny part, or just what some blocks cost.
    """
    size = draw(st.integers(1, 24))
    logit, price = (
        draw(st.sampled_from(kinds))
        for kinds in (
            (st.floats(-10, 10), st.integers(-2, 2).map(float), st.just(draw(st.floats(-10, 10)))),
            (cost, st.integers(1, 3).map(float), st.just(draw(cost))),
        )
    )
    logits, costs = (
        torch.tensor(draw(st.lists(values, min_size=size, max_size=size)), dtype=F64) for values in (logit, price)
    )
    total = costs.sum().item()
    tiny = st.floats(-12, 0).map(lambda exponent: 10.0**exponent)
    spent = st.integers(0, size).map(lambda count: costs[logits.argsort(descending=True)][:count].sum().item())
    shares = st.one_of(st.floats(0, 1), tiny, tiny.map(lambda share: 1 - share)).map(lambda share: share * total)
    return logits, costs, min(draw(st.one_of(shares, spent)), total)


def draw_case(size: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Gumbel logits, costs over six orders of magnitude, and a gradient to send back."""
    generator = torch.Generator().manual_seed(seed)
    logits = gumbel(size, generator)
    costs = 10 ** (6 * torch.rand(size, dtype=F64, generator=generator) - 3)
    return logits, costs, torch.randn(size, dtype=F64, generator=generator)


def value_and_gradient(logits: Tensor, weights: Tensor, function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    logits = logits.detach().requires_grad_()
    value = function(logits)
    (gradient,) = torch.autograd.grad(value, logits, weights.to(value))
    return value.detach(), gradient


def relaxed(costs: Tensor, budget: float, tau: float) -> Callable[[Tensor], Tensor]:
    return lambda logits: soft_knapsack(logits, costs, budget, tau)


def check_cost(gates: Tensor, costs: Tensor, budget: float) -> None:
    flushed = torch.finfo(F64).tiny * costs.sum().item()  # a gate below the smallest normal number is 0
    assert abs(costs.dot(gates).item() - budget) <= 1e-9 * budget + flushed


# ------------------------------------------------------------------------------------------------------------ gates


@thorough
@given(case=knapsacks(), tau=temperatures)
def test_gates_cost_the_budget(case: tuple[Tensor, Tensor, float], tau: float) -> None:
    """To a billionth of the budget, however small it is; gates are in [0, 1] and follow the order of the logits."""
    logits, costs, budget = case
    gates = soft_knapsack(logits, costs, budget, tau)
    check_cost(gates, costs, budget)
    assert gates.min() >= 0 and gates.max() <= 1
    assert (gates[logits.argsort()].diff() >= -1e-12).all()


@thorough
@given(case=knapsacks(), tau=temperatures, free=st.lists(st.floats(-10, 10), min_size=1, max_size=8))
def test_what_is_free_follows_the_threshold(case: tuple[Tensor, Tensor, float], tau: float, free: list[float]) -> None:
    """Blocks that cost nothing change no other gate, and their own are in the order of the logits."""
    logits, costs, budget = case
    if not 0 < budget < costs.sum().item():
        return
    more = torch.cat([logits, torch.tensor(free, dtype=F64)])
    gates = soft_knapsack(more, torch.cat([costs, torch.zeros(len(free), dtype=F64)]), budget, tau)
    torch.testing.assert_close(gates[: len(logits)], soft_knapsack(logits, costs, budget, tau), rtol=1e-9, atol=1e-12)
    assert (gates[more.argsort()].diff() >= -1e-12).all()


@thorough
@given(case=knapsacks(), share=st.floats(0, 1), tau=temperatures)
def test_equal_costs_give_the_threshold(case: tuple[Tensor, Tensor, float], share: float, tau: float) -> None:
    """With costs of 1 gates and gradients are those of the relaxed top-K, with other equal costs too."""
    logits, costs, _ = case
    k = share * len(logits)
    weights = torch.linspace(-1, 2, len(logits), dtype=F64)
    expected = value_and_gradient(logits, weights, lambda r: soft_top_k(r, k, tau, "threshold"))
    for cost in (1.0, costs[0].item()):
        found = value_and_gradient(logits, weights, relaxed(torch.full_like(logits, cost), cost * k, tau))
        torch.testing.assert_close(found[0], expected[0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found[1] * tau, expected[1] * tau, rtol=1e-9, atol=1e-12)


@thorough
@given(
    order=st.permutations(range(12)),
    costs=st.lists(st.integers(1, 10**6), min_size=12, max_size=12),
    share=st.floats(0, 1),
    tau=st.floats(-12, -1.8).map(lambda exponent: 10.0**exponent),
)
def test_low_temperature_spends_the_budget_from_the_largest_logit_down(
    order: list[int], costs: list[int], share: float, tau: float
) -> None:
    """One gate at most is between 0 and 1, that of the block at which the budget is reached."""
    budget, left, expected = share * sum(costs), share * sum(costs), [0.0] * 12
    for block in sorted(range(12), key=lambda block: -order[block]):
        expected[block] = min(left / costs[block], 1.0)
        left = max(left - costs[block], 0.0)
    gates = soft_knapsack(torch.tensor(order, dtype=F64), torch.tensor(costs), budget, tau)
    torch.testing.assert_close(gates, torch.tensor(expected, dtype=F64), rtol=0, atol=1e-9)
    assert ((gates > 1e-9) & (gates < 1 - 1e-9)).sum() <= 1


def test_a_budget_that_whole_blocks_spend_leaves_no_gate_in_between() -> None:
    """Where the blocks of the largest logits cost just the budget, the gates are exactly 0 and 1."""
    logits, costs = torch.tensor([3.0, 1.0, 2.0, 0.0], dtype=F64), torch.tensor([5, 1, 1000, 70])
    for budget, expected in ((5, [1, 0, 0, 0]), (1005, [1, 0, 1, 0]), (1006, [1, 1, 1, 0])):
        gates, gradient = value_and_gradient(logits, torch.arange(4.0), relaxed(costs, budget, 1e-8))
        assert gates.tolist() == expected
        assert not gradient.any()


def test_a_tie_at_the_margin_is_shared() -> None:
    """Equal logits have equal gates, whatever they cost."""
    logits = torch.tensor([1.0, 0.0, 0.0, 0.0, -1.0], dtype=F64)
    gates = soft_knapsack(logits, torch.tensor([10, 1, 2, 3, 4]), 12, 1e-8)
    torch.testing.assert_close(gates, torch.tensor([1, 1 / 3, 1 / 3, 1 / 3, 0], dtype=F64))


def test_high_temperature_gives_equal_gates() -> None:
    """As tau grows the gates tend to the budget's share of all costs."""
    logits, costs, _ = draw_case(20)
    for share in (0.01, 0.5, 0.99):
        gates = soft_knapsack(logits, costs, share * costs.sum().item(), 1e7)
        torch.testing.assert_close(gates, torch.full((20,), share, dtype=F64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("tau", TEMPERATURES)
def test_the_ends_of_the_budget_are_exact(tau: float) -> None:
    """0 closes every gate and the sum of the costs opens it, the free ones too, with a gradient of 0."""
    logits, costs, weights = draw_case(9)
    costs[3] = 0
    for budget, gate in ((0, 0.0), (costs.sum().item(), 1.0), (costs.sum().item() * (1 + 1e-12), 1.0)):
        gates, gradient = value_and_gradient(logits, weights, relaxed(costs, budget, tau))
        assert torch.equal(gates, torch.full_like(gates, gate)) and not gradient.any()


def test_smallest_sizes() -> None:
    """No block, one block, and blocks that are all free: then the budget of 0 is the sum, and all are open."""
    empty = torch.empty(0, dtype=F64)
    assert soft_knapsack(empty, empty, 0, 1.0).shape == (0,)
    one = torch.ones(1, dtype=F64)
    assert soft_knapsack(one, 4 * one, 1, 0.1).tolist() == pytest.approx([0.25], rel=1e-12)
    assert soft_knapsack(one, 0 * one, 0, 0.1).tolist() == [1]


@pytest.mark.parametrize("tau", [0.3, 0.05, 0.005])
@pytest.mark.parametrize("budget", [1e-9, 0.002, 0.5, 12.0, 1000.0, 1012.0020])
def test_gates_are_exact(tau: float, budget: float) -> None:
    """They equal those of a bisection in decimal arithmetic, each to its own precision."""
    logits, costs = (0.31, 0.11, 0.3, -0.2, 0.29), (1e-3, 1e3, 2.0, 10.0, 1e-3)
    with localcontext(prec=60):
        r, c = ([Decimal(value) for value in values] for values in (logits, costs))
        low, high = Decimal(-10), Decimal(10)
        for _ in range(150):
            nu = (low + high) / 2
            gates = [1 / (1 + ((nu - value) / Decimal(tau)).exp()) for value in r]
            over = sum(cost * gate for cost, gate in zip(c, gates, strict=True)) > Decimal(budget)
            low, high = (nu, high) if over else (low, nu)
    found = soft_knapsack(torch.tensor(logits, dtype=F64), torch.tensor(costs, dtype=F64), budget, tau)
    expected = torch.tensor([float(gate) for gate in gates], dtype=F64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


# --------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("tau", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
@pytest.mark.parametrize("free", [0, 2])
def test_gradient_agrees_with_finite_differences(tau: float, share: float, free: int) -> None:
    """The hand-derived backward is the derivative of the forward, also for blocks that cost nothing."""
    logits, costs, _ = draw_case(8)
    costs[:free] = 0
    function = relaxed(costs, share * costs.sum().item(), tau)
    assert torch.autograd.gradcheck(function, logits.requires_grad_(), eps=1e-5, rtol=1e-5, atol=1e-8)


def test_gradient_agrees_at_low_temperature() -> None:
    """Also where few gates are left in between, and a cheap block stands beside dear ones."""
    logits = torch.tensor([0.05, 0.03, 0.01, 0.0, -0.02], dtype=F64, requires_grad=True)
    costs = torch.tensor([1.0, 1e3, 1e-3, 1e3, 1.0], dtype=F64)
    for budget in (0.5, 900.0, 1001.0, 1500.0, 2001.5):
        function = relaxed(costs, budget, 0.01)
        assert torch.autograd.gradcheck(function, logits, eps=1e-7, rtol=1e-5, atol=1e-5)


def test_a_free_block_moves_with_a_threshold_between_hard_gates() -> None:
    """Where no slope of a block that costs something is left in float64, the threshold still lies between them."""
    logits, weights = torch.tensor([800.0, -800.0, 0.0], dtype=F64), torch.tensor([0.0, 0.0, 1.0])
    gates, gradient = value_and_gradient(logits, weights, relaxed(torch.tensor([1, 1, 0]), 1, 1.0))
    torch.testing.assert_close(gates, torch.tensor([1.0, 0.0, 0.5], dtype=F64))
    torch.testing.assert_close(gradient, torch.tensor([-0.125, -0.125, 0.25], dtype=F64))


@thorough
@given(case=knapsacks(cost=st.one_of(st.just(0.0), wide_costs)), tau=temperatures, seed=st.integers(0, 99))
def test_the_gradient_is_bounded(case: tuple[Tensor, Tensor, float], tau: float, seed: int) -> None:
    """Its 1-norm by 1 / (2 tau) whatever the costs, its 2-norm by (q + 1/q) / (8 tau), q the root of their ratio."""
    logits, costs, budget = case
    weights = torch.randn(len(logits), dtype=F64, generator=torch.Generator().manual_seed(seed))
    gates, gradient = value_and_gradient(logits, weights, relaxed(costs, budget, tau))
    assert torch.isfinite(gates).all() and torch.isfinite(gradient).all()
    assert gradient.abs().sum() <= weights.abs().sum() / (2 * tau) * (1 + 1e-9)
    if costs.min() > 0:
        q = math.sqrt(costs.max() / costs.min())
        assert gradient.norm() <= weights.norm() * (q + 1 / q) / (8 * tau) * (1 + 1e-9)


def test_the_bounds_are_reached() -> None:
    """By 400 blocks and one that costs as much as all of them, at the threshold: no smaller bounds hold."""
    costs = torch.tensor([1.0] * 400 + [400.0], dtype=F64)
    logits, function = torch.zeros(401, dtype=F64), relaxed(costs, 400, 0.1)
    jacobian = torch.stack([value_and_gradient(logits, gate, function)[1] for gate in torch.eye(401)])
    q = math.sqrt(400)
    assert 0.99 < torch.linalg.matrix_norm(jacobian, math.inf) * (2 * 0.1) <= 1
    assert 0.99 < torch.linalg.matrix_norm(jacobian, 2) * (8 * 0.1) / (q + 1 / q) <= 1 + 1e-9


@pytest.mark.parametrize("tau", TEMPERATURES)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 1.0])
def test_cost_and_finiteness_at_the_size_of_a_model(tau: float, share: float) -> None:
    """Thousands of blocks, with Gumbel noise, with many ties and with nothing but ties."""
    noisy, costs, weights = draw_case(5000)
    budget = share * costs.sum().item()
    for logits in (noisy, noisy.round(), torch.zeros_like(noisy)):
        gates, gradient = value_and_gradient(logits, weights, relaxed(costs, budget, tau))
        check_cost(gates, costs, budget)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().sum() <= weights.abs().sum() / (2 * tau) * (1 + 1e-9)


# ---------------------------------------------------------------------------------------------- a node of the graph


def test_the_graph_has_one_node() -> None:
    """The relaxation is one step of the graph, and the costs are no part of it."""
    logits, costs, _ = draw_case(6)
    node = soft_knapsack(logits.requires_grad_(), costs.requires_grad_(), 1.0, 1.0).grad_fn
    assert node is not None and "Knapsack" in node.name()
    assert getattr(node.next_functions[0][0], "variable", None) is logits
    assert node.next_functions[1][0] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_other_dtypes_are_computed_in_float64(dtype: torch.dtype, autocast: bool) -> None:
    """Gates and gradients have the dtype of the logits and the precision of float64, also under autocast."""
    logits, costs, weights = draw_case(30)
    logits, weights = logits.to(dtype), weights.to(dtype)
    function = relaxed(costs, 0.3 * costs.sum().item(), 0.3)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        gates, gradient = value_and_gradient(logits, weights, function)
    exact = value_and_gradient(logits.double(), weights.double(), function)
    assert gates.dtype == gradient.dtype == dtype
    assert torch.equal(gates, exact[0].to(dtype))
    assert torch.equal(gradient, exact[1].to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float16])
def test_costs_of_any_dtype(dtype: torch.dtype) -> None:
    """Numbers of parameters are integers; what they are stored as makes no difference."""
    logits, costs = draw_case(7)[0], torch.tensor([1, 2, 3, 500, 5, 6, 7])
    gates = soft_knapsack(logits, costs.to(dtype), 100, 0.5)
    assert torch.equal(gates, soft_knapsack(logits, costs.double(), 100.0, 0.5))


def test_backward_may_run_twice() -> None:
    """A retained graph gives the same gradient again."""
    logits, costs, _ = draw_case(10)
    loss = soft_knapsack(logits.requires_grad_(), costs, 1.0, 0.05).square().sum()
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_incoming_gradient_is_not_hidden(bad: float) -> None:
    """A loss scaler must see the overflow of the model's own gradient."""
    logits, costs, weights = draw_case(10)
    weights[3] = bad
    _, gradient = value_and_gradient(logits, weights, relaxed(costs, costs.sum().item() / 2, 1.0))
    assert not torch.isfinite(gradient).all()


@pytest.mark.parametrize("tau", [1e-308, 1e-100, 1e-30, 1.0, 1e30, 1e308])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_extreme_numbers_stay_finite(tau: float, scale: float) -> None:
    """Temperatures, logits and costs near the ends of float64 do no harm."""
    logits = torch.tensor([1e308, -1e308, 0.0, 1e-308, 1.0, 1.0], dtype=F64)
    costs = torch.tensor([1.0, 1e6, 0.0, 1e-6, 30.0, 1.0], dtype=F64) * scale
    for share in (0.0, 5e-324, 1e-300, 1e-9, 1e-6, 0.3, 1 - 1e-9, 1.0):
        budget = share * costs.sum().item()
        gates, gradient = value_and_gradient(logits, logits.sign(), relaxed(costs, budget, tau))
        check_cost(gates, costs, budget)
        assert torch.isfinite(gradient).all()


# ------------------------------------------------------------------------------------------------------------ errors

THREE = torch.zeros(3, dtype=F64)
ONES = torch.ones(3)
text: Any = "2"
numbers: Any = [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: soft_knapsack(THREE, ONES, 4, 1.0),
            ValueError,
            "`budget` must be between 0 and 3.0 (the sum of the costs); got 4.",
        ),
        (lambda: soft_knapsack(THREE, ONES, -1, 1.0), ValueError, "`budget` must be between 0 and 3.0"),
        (lambda: soft_knapsack(THREE, ONES, math.nan, 1.0), ValueError, "`budget` must be between 0 and 3.0"),
        (lambda: soft_knapsack(THREE, ONES, text, 1.0), TypeError, "`budget` must be a number; got str."),
        (lambda: soft_knapsack(THREE, ONES, 2, 0.0), ValueError, "`tau` must be positive and finite; got 0.0."),
        (lambda: soft_knapsack(THREE, ONES, 2, math.inf), ValueError, "`tau` must be positive and finite; got inf."),
        (
            lambda: soft_knapsack(THREE, ONES[:2], 2, 1.0),
            ValueError,
            "`costs` must have one value per logit; got shape (2,) for logits of shape (3,).",
        ),
        (lambda: soft_knapsack(THREE, -ONES, 2, 1.0), ValueError, "`costs` must be finite, also in sum, and not"),
        (lambda: soft_knapsack(THREE, ONES / 0, 2, 1.0), ValueError, "`costs` must be finite, also in sum, and not"),
        (lambda: soft_knapsack(THREE, ONES * math.nan, 2, 1.0), ValueError, "`costs` must be finite, also in sum"),
        (lambda: soft_knapsack(THREE, ONES.double() * 1e308, 2, 1.0), ValueError, "`costs` must be finite, also in"),
        (
            lambda: soft_knapsack(THREE, numbers, 2, 1.0),
            TypeError,
            "`costs` must be a tensor of real numbers; got list",
        ),
        (
            lambda: soft_knapsack(THREE, ONES.to(torch.complex64), 2, 1.0),
            TypeError,
            "`costs` must be a tensor of real numbers; got torch.complex64.",
        ),
        (lambda: soft_knapsack(THREE / 0, ONES, 2, 1.0), ValueError, "`logits` must be finite; got NaN or infinity."),
        (lambda: soft_knapsack(THREE + math.inf, ONES, 2, 1.0), ValueError, "`logits` must be finite"),
        (lambda: soft_knapsack(THREE.int(), ONES, 2, 1.0), TypeError, "`logits` must be a tensor of floating point"),
        (lambda: soft_knapsack(THREE[None], ONES, 2, 1.0), ValueError, "`logits` must have one dimension"),
    ],
)
def test_errors_say_what_is_allowed(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    """Each names the argument, what it must be and what it was."""
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value).startswith(message)
