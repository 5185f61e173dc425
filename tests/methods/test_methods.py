"""Every method, on an encoder and on an encoder-decoder: exactly K heads, finite scores, reproducible."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import documents
import kheads
from kheads import DSP, METHODS, STE, Michel, Retrain, Voita, discover, prune
from kheads.blocks.budget import Budget
from kheads.blocks.costs import Costs, parameters
from kheads.blocks.site import Site, Sites
from kheads.methods.base import Evidence, Goal, Learned, Moment
from kheads.methods.michel import gradient_scores
from kheads.training.labels_counted import items_per_example
from kheads.training.plan import Plan
from small_runs import arguments, data

Fresh = Callable[[str], Any]
SITES = (Site("a", "encoder", 6, 4), Site("b", "encoder", 6, 4))
GOAL = Goal(3, SITES)


def run(fresh: Fresh, family: str, name: str, k: int, folder: Path, seed: int = 0) -> Any:
    method = Michel(per_round=5) if name == "michel" else METHODS[name]()
    rows = data(family)
    plan = Plan(trained=True)
    return prune(fresh(family), k, method, rows, rows[:4], arguments(folder, seed), plan=plan)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("family", ["bert", "marian"])
def test_exactly_k_heads_finite_scores(name: str, family: str, fresh: Fresh, tmp_path: Path) -> None:
    total = sum(site.count for site in discover(fresh(family)))
    for k in (1, total // 2, total - 1, total):
        result = run(fresh, family, name, k, tmp_path)
        assert len(result.kept) == k == sum(site.count for site in discover(result.model))
        assert torch.isfinite(result.scores).all() and len(result.scores) == (total if k < total else 0)
        if k < total:
            assert result.metrics["pruned"].keys() == result.metrics["masked"].keys() == {"eval"}


@pytest.mark.parametrize("name", METHODS)
def test_a_seed_decides(name: str, fresh: Fresh, tmp_path: Path) -> None:
    """The same seed gives the same scores; another seed others (gradients are of the same data in any order)."""
    first, again, other = (run(fresh, "bert", name, 4, tmp_path, seed).scores for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert torch.allclose(first, other) == (name in ("michel", "retrain", "surgeon"))


def test_methods_state_their_source_and_stand_in_the_documents() -> None:
    """The README and the page of methods have a row for each, and the page a section."""
    readme, page = (documents.ROOT / "README.md").read_text(), (documents.DOCS / "methods.md").read_text()
    table = documents.generator().methods()
    assert '--8<-- "methods.md"' in page
    for key, method in METHODS.items():
        assert method.reference and method.idea and method.__doc__
        assert method.__module__ == f"kheads.methods.{key}" and method.__name__.lower() == key
        assert f"| `{key}` |" in readme and f"| `{key}` |" in table
        assert f"\n## {method.__name__}\n" in page
        assert getattr(kheads, method.__name__) is method
        with pytest.raises(dataclasses.FrozenInstanceError):
            method().anything = 1


@pytest.mark.parametrize("method", [DSP(), DSP.preset("short"), STE(), Voita()])
def test_gates_depend_on_the_moment_alone(method: Learned) -> None:
    """The noise of a step is the same after a resume and on every process, and another at another step."""
    w = torch.linspace(-1, 1, 12, dtype=torch.float64)
    early, same, later = (method.gates(w, GOAL, Moment(step, 100, 7)) for step in (50, 50, 51))
    assert torch.equal(early, same)
    assert torch.equal(early, later) == isinstance(method, STE)


def test_dsp_follows_the_paper() -> None:
    """Defaults: tau 1000 -> 1e-8 log-linearly over 68 %, gates that sum to K, then the hard subset of noisy weights."""
    dsp, w = DSP(), torch.linspace(-1, 1, 12, dtype=torch.float64)
    assert dsp.temperature(Moment(0, 100)) == pytest.approx(1000)
    assert dsp.temperature(Moment(34, 100)) == pytest.approx((1000 * 1e-8) ** 0.5)
    assert dsp.temperature(Moment(68, 100)) == dsp.temperature(Moment(100, 100)) == 1e-8
    assert dsp.gates(w, GOAL, Moment(0, 100)) == pytest.approx([3 / 12] * 12, abs=1e-2)
    for step in (0, 30, 60, 99):
        assert float(dsp.gates(w, GOAL, Moment(step, 100)).sum()) == pytest.approx(3)
    assert sorted(dsp.gates(w, GOAL, Moment(99, 100)).tolist()) == pytest.approx([0] * 9 + [1] * 3)
    assert DSP(annealed=False).temperature(Moment(99, 100)) == 1000
    assert DSP(cooldown=50).temperature(Moment(50, 100)) == 1e-8


def test_an_annealed_budget_goes_from_all_heads_to_k() -> None:
    short, w = DSP.preset("short", warmup=0.1, budget_cooldown=0.6), torch.linspace(-1, 1, 12, dtype=torch.float64)
    sums = [float(short.gates(w, GOAL, Moment(step, 100)).sum()) for step in range(0, 100, 5)]
    assert sums[:2] == [12, 12] and sums[2] == pytest.approx(12) and sums == sorted(sums, reverse=True)
    assert sums[8] == pytest.approx(3 + 9 * (1 - 30 / 60) ** 3) and sums[-1] == 3
    assert torch.equal(short.gates(w, GOAL, Moment(70, 100)), GOAL.mask(w))


@pytest.mark.parametrize("preset", ["paper", "short"])
def test_a_gate_is_closed_before_it_makes_denormal_numbers(preset: str) -> None:
    dsp, w = DSP.preset(preset), torch.linspace(-3, 3, 12, dtype=torch.float64)
    drawn = torch.stack([dsp.gates(w, GOAL, Moment(step, 100)) for step in range(100)])
    open_gates = drawn[drawn != 0]
    assert open_gates.min() > 1e-8 and open_gates.min() < 1e-2 < 1 - 1e-2 < drawn.max()


def test_ste_opens_exactly_k_heads_with_ties_and_passes_the_gradient_on() -> None:
    for k in (1, 3, 12):
        w = torch.zeros(12, dtype=torch.float64, requires_grad=True)
        gates = STE().gates(w, Goal(k, SITES), Moment(0, 1))
        assert gates.sum() == k and set(gates.tolist()) <= {0.0, 1.0}
        (gradient,) = torch.autograd.grad((gates * torch.arange(12.0)).sum(), w)
        assert gradient.tolist() == list(range(12))


def test_voita_pays_for_open_heads_and_reports_the_adjustment() -> None:
    voita = Voita(weight=0.5)
    w = torch.tensor([-100.0, 100.0, 100.0] + [-100.0] * 9, dtype=torch.float64)
    assert float(voita.penalty(w)) == pytest.approx(1.0)
    assert voita.report(w, GOAL) == {"weight": 0.5, "natural_heads": 2, "adjusted_heads": 1}
    assert Voita(gate_start=2.0).initial(12, 0).tolist() == [2.0] * 12
    assert voita.initial(1000, 0).abs().max() <= 0.68


def test_michel_does_not_depend_on_the_batch_size(fresh: Fresh, tmp_path: Path) -> None:
    """One backward with a gate per example: batch 12 equals batch 1 within 1e-6, unequal lengths included."""
    for family in ("bert", "marian"):
        model = fresh(family)
        goal = Goal(3, discover(model))
        rows = data(family)
        if family == "marian":
            for index, row in enumerate(rows):
                row["labels"][5 - index % 4 :] = -100
        scores = []
        for size in (1, 12):
            batches = [
                {key: torch.stack([row[key] for row in rows[start : start + size]]) for key in rows[0]}
                for start in range(0, 12, size)
            ]
            scores.append(
                gradient_scores(
                    model,
                    goal,
                    torch.ones(goal.total, dtype=torch.float64),
                    batches,
                    lambda model, batch: (model(**batch).loss, items_per_example(batch)),
                )
            )
        assert scores[0].min() > 1e-4
        assert torch.allclose(scores[0], scores[1], atol=1e-6)


def test_michel_removes_in_rounds(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are computed again on what is left, removed heads stay removed, the last round takes the remainder."""
    masks: list[Tensor] = []

    def importance(self: Michel, model: Any, goal: Goal, mask: Tensor, *rest: Any) -> Tensor:
        masks.append(mask)
        return torch.arange(12.0).double() if len(masks) % 2 else -torch.arange(12.0).double()

    monkeypatch.setattr(Michel, "_importance", importance)
    nothing = Evidence(lambda label: [], lambda model, batch: (torch.zeros(()), torch.ones(1)), 0)
    scores = Michel(per_round=4).estimate(torch.nn.Linear(1, 1), GOAL, nothing)
    assert [int(mask.sum()) for mask in masks] == [12, 8, 4, 3]
    assert all((later <= earlier).all() for earlier, later in pairwise(masks))
    assert torch.equal(masks[1], torch.tensor([0.0] * 4 + [1.0] * 8, dtype=torch.float64))
    assert torch.equal(masks[2], torch.tensor([0.0] * 4 + [1.0] * 4 + [0.0] * 4, dtype=torch.float64))
    assert GOAL.kept(scores).to_dict() == {"a": [5], "b": [0, 1]}


class Drawn(Michel):
    """Michel, with gradients by chance."""

    def _importance(self, model: Any, goal: Goal, mask: Tensor, *rest: Any) -> Tensor:
        generator = torch.Generator().manual_seed(int(mask.sum()))
        return goal.per_price(torch.rand(goal.total, generator=generator, dtype=torch.float64))


NOTHING = Evidence(lambda label: [], lambda model, batch: (torch.zeros(()), torch.ones(1)), 0)


def test_michel_goes_down_to_the_last_unit_of_a_budget() -> None:
    """70 % of 1,310 parameters are 917, and a hair less as a floating-point number."""
    sites = Sites((Site("a", "ffn", 410, 1, "neuron", parameters=1),), 1310, 900)
    costs = parameters(sites)
    goal = Goal(Budget(params=0.7), sites, costs=costs)
    assert costs.of(goal.kept(Drawn().estimate(torch.nn.Linear(1, 1), goal, NOTHING)), sites) == 917


@pytest.mark.parametrize("free", [slice(0, 4), slice(4, 44)])
def test_a_block_that_costs_nothing_is_no_division_by_zero(free: slice) -> None:
    """A module that does not run takes no time, nor does one that is as fast with few blocks as with all."""
    sites = (Site("a", "encoder", 4, 8), Site("a.ffn", "ffn", 40, 1, "neuron"))
    each = torch.tensor([100.0] * 4 + [10.0] * 40, dtype=torch.float64)
    each[free] = 0
    goal = Goal(Budget(params=int(each.sum()) // 2 + 500), sites, costs=Costs("params", each, float(each.sum()), 500.0))
    assert goal.price_of_a_head > 0
    scores = Drawn(per_round=2).estimate(torch.nn.Linear(1, 1), goal, NOTHING)
    kept = goal.mask(scores)
    assert goal.per_price(torch.rand(44)).isfinite().all() and kept[free].all() and not kept.all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DSP(relaxation="soft"), "`relaxation` must be one of 'successive', 'threshold'; got 'soft'."),
        (lambda: DSP(tau_start=0), "`tau_start` must be a number above 0; got 0."),
        (lambda: DSP(cooldown=1.5), "`cooldown` must be a whole number from 0 up or a number from 0 to 1; got 1.5."),
        (
            lambda: DSP(budget_cooldown=0.5),
            '`budget_cooldown` and `few` make k fractional, which needs relaxation="threshold".',
        ),
        (
            lambda: DSP.preset("long"),
            "`preset` must be one of 'paper', 'short', 'frozen', 'trained', 'translation'; got 'long'.",
        ),
        (lambda: DSP(noise=-1), "`noise` must be a number from 0 up; got -1."),
        (lambda: STE(gate_lr_schedule="step"), "`gate_lr_schedule` must be one of 'linear', 'constant'; got 'step'."),
        (lambda: Voita(weight=-1), "`weight` must be a number from 0 up; got -1."),
        (lambda: Voita(search=-1), "`search` must be a whole number from 0 up; got -1."),
        (lambda: Michel(per_round=0), "`per_round` must be a whole number from 1 up; got 0."),
        (
            lambda: Retrain(before_cut=-1),
            "`before_cut` must be a whole number from 0 up or a number from 0 to 1; got -1.",
        ),
    ],
)
def test_bad_hyperparameters_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == message
