"""Constraints and units: every method ends with exactly K heads that honour them, or it is refused by name."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from command import TRAIN, call, place
from kheads import DSP, METHODS, Constraints, Kept, Michel, Site, discover, prune
from kheads.blocks.selection import pools, select
from kheads.methods.base import Evidence, Goal, Learned, Moment
from kheads.training.plan import Plan
from small_runs import arguments, data

__all__ = ["place"]

Fresh = Callable[[str], Any]
SITES = (Site("e", "encoder", 4, 8), Site("d", "decoder", 3, 8), Site("x", "cross", 5, 8), Site("y", "cross", 2, 8))
H = 14
FIRST = "model.encoder.layers.0.self_attn"

# By name: a constraint on a tiny Marian (6 sites of 4 heads), and what it means for the heads that stay.
ASKED: dict[str, tuple[Constraints, Callable[[dict[str, list[int]]], bool]]] = {
    "min-per-site": (Constraints(min_per_site=1), lambda kept: min(map(len, kept.values())) >= 1),
    "uniform": (Constraints(uniform=True), lambda kept: {len(heads) for heads in kept.values()} == {2}),
    "protect": (Constraints(protected={FIRST: [0, 1, 2, 3]}), lambda kept: kept[FIRST] == [0, 1, 2, 3]),
    "quota": (Constraints(quotas={"cross": 7}), lambda kept: _crossed(kept) == 7),
    "together": (
        Constraints(min_per_site=1, protected={FIRST: [3]}, quotas={"cross": 2}),
        lambda kept: _crossed(kept) == 2 and 3 in kept[FIRST] and min(map(len, kept.values())) >= 1,
    ),
}


def _crossed(kept: dict[str, list[int]]) -> int:
    return sum(len(heads) for name, heads in kept.items() if name.endswith("encoder_attn"))


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_honours_every_constraint(name: str, asked: str, fresh: Fresh, tmp_path: Path) -> None:
    constraints, holds = ASKED[asked]
    method = Michel(per_round=5) if name == "michel" else METHODS[name]()
    args, rows = arguments(tmp_path, max_steps=2), data("marian", 4)
    result = prune(fresh("marian"), 12, method, rows, rows, args, plan=Plan(trained=True), constraints=constraints)
    assert len(result.kept) == 12 == sum(site.count for site in discover(result.model))
    assert holds(result.kept.to_dict())


@pytest.mark.parametrize("unit", ["query", "group"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_counts_the_unit_asked_for(name: str, unit: str, fresh: Fresh, tmp_path: Path) -> None:
    """A tiny Llama has 3 layers of 8 query heads in 4 groups: 12 groups or 24 query heads, cut exactly."""
    model = fresh("llama")
    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in data("bert", 4)]
    method = Michel(per_round=8) if name == "michel" else METHODS[name]()
    args, asked = arguments(tmp_path, max_steps=2), Constraints(min_per_site=1)
    result = prune(model, 7, method, rows, rows, args, plan=Plan(trained=True), constraints=asked, unit=unit)
    width = sum(layer.self_attn.o_proj.in_features for layer in result.model.model.layers)
    assert len(result.kept) == 7 and len(result.scores) == {"query": 24, "group": 12}[unit]
    assert width == 7 * 6 * {"query": 1, "group": 2}[unit]
    assert min(map(len, result.kept.to_dict().values())) >= 1


scores_and_demands = st.tuples(
    st.permutations(range(H)), st.integers(1, H), st.integers(0, 2), st.integers(-1, 7), st.integers(-1, H - 1)
)


def _case(case: tuple[list[int], int, int, int, int]) -> tuple[Tensor, int, Constraints]:
    values, k, least, cross, safe = case
    mask = torch.zeros(H)
    mask[safe] = float(safe >= 0)
    protected = Kept.from_mask(mask, SITES).to_dict()
    quotas = {"cross": cross} if cross >= 0 else {}
    return torch.tensor(values, dtype=torch.float64), k, Constraints(least, protected=protected, quotas=quotas)


def _feasible(scores: Tensor, k: int, constraints: Constraints) -> bool:
    try:
        select(scores, k, SITES, constraints)
    except ValueError:
        return False
    return True


@given(scores_and_demands)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_the_best_of_every_pool_are_the_selection(case: Any) -> None:
    scores, k, constraints = _case(case)
    if not _feasible(scores, k, constraints):
        return
    kept = Kept.from_dict(constraints.protected).mask(SITES)
    for heads, count in pools(scores, k, SITES, constraints):
        kept[sorted(heads, key=lambda head: -scores[head])[: int(count)]] += 1
    assert torch.equal(kept, select(scores, k, SITES, constraints).mask(SITES))


@given(scores_and_demands, st.integers(1, 5), st.integers(0, 1000))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_michel_never_takes_a_removed_head_back(case: Any, per_round: int, seed: int) -> None:
    """Whatever the scores of a round: heads that are gone stay gone, and the rest can meet the constraints."""
    _, k, constraints = _case(case)
    if not _feasible(torch.zeros(H), k, constraints):
        return
    generator, masks = torch.Generator().manual_seed(seed), []

    class Drawn(Michel):
        def _importance(self, model: Any, goal: Goal, mask: Tensor, *rest: Any) -> Tensor:
            masks.append(mask)
            return torch.rand(H, generator=generator, dtype=torch.float64)

    goal = Goal(k, SITES, constraints)
    nothing = Evidence(lambda label: [], lambda model, batch: (torch.zeros(()), torch.ones(1)), 0)
    scores = Drawn(per_round).estimate(torch.nn.Linear(1, 1), goal, nothing)
    assert all((later <= earlier).all() for earlier, later in pairwise(masks))
    assert torch.equal(goal.mask(scores), masks[-1]) and int(masks[-1].sum()) == k
    assert [int(mask.sum()) for mask in masks] == [*range(H, k, -per_round), k]


@pytest.mark.parametrize("method", [DSP(), DSP.preset("short", warmup=0, noise_cooldown=0), METHODS["ste"]()])
def test_gates_learn_under_the_constraints(method: Learned) -> None:
    """The gates sum to the budget, protected heads are open, and at the end the gates are the constrained subset."""
    constraints = Constraints(min_per_site=1, protected={"d": [2]}, quotas={"cross": 4})
    goal = Goal(7, SITES, constraints)
    w = torch.linspace(1, -1, H, dtype=torch.float64).requires_grad_()
    for step in (0, 20, 40, 60, 99):
        gates = method.gates(w, goal, Moment(step, 100, 3)).detach()
        budget = method.budget(goal, Moment(step, 100, 3)) if isinstance(method, DSP) else 7
        assert float(gates.sum()) == pytest.approx(budget)
        assert gates[6] == 1
        if budget == 7:
            assert float(gates[7:].sum()) == pytest.approx(4)
    assert torch.allclose(gates, goal.mask(gates))
    middle = method.gates(w, goal, Moment(20, 100, 3))
    (gradient,) = torch.autograd.grad((middle * torch.arange(H)).sum(), w)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize(
    ("k", "constraints", "message"),
    [
        (None, Constraints(uniform=True), "`constraints` are for a choice of heads"),
        (12, Constraints(quotas={"encoder": 3}), "The rest of the model must keep 9 heads, but has only 0."),
        (5, Constraints(uniform=True), "`uniform` needs `k` to be a multiple of the number of sites (3)"),
        (5, Constraints(min_per_site=2), "must keep exactly 5 heads, but 6 are already required"),
    ],
)
def test_what_cannot_be_exact_is_refused_before_training(
    k: int | None, constraints: Constraints, message: str, fresh: Fresh, tmp_path: Path
) -> None:
    with pytest.raises(ValueError) as error:
        prune(fresh("bert"), k, DSP(), data("bert"), None, arguments(tmp_path), constraints=constraints)
    assert message in str(error.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_per_site": -1}, "`min_per_site` must be a whole number from 0 up; got -1."),
        ({"min_per_site": 1.5}, "`min_per_site` must be a whole number from 0 up; got 1.5."),
        ({"quotas": {"cross": -2}}, "`quotas` must be a table of whole numbers from 0 up; got {'cross': -2}."),
    ],
)
def test_malformed_constraints_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Constraints(**given)
    assert str(error.value) == message


def test_an_emptied_site_cannot_keep_a_head() -> None:
    sites = (Site("a", "encoder", 0, 8), Site("b", "encoder", 4, 8))
    with pytest.raises(ValueError, match="Site 'a' must keep 1 heads by `min_per_site`, but has only 0"):
        select(torch.zeros(4), 2, sites, Constraints(min_per_site=1))


def test_the_command_line_takes_them_all(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = "bert.encoder.layer.1.attention"
    words = ("--min-per-site", "1", "--protect", f"{site}:2", "--protect", f"{site}:3", "--quota", "encoder=6")
    assert call(monkeypatch, "prune", "tiny", "-k", "6", *words, "--unit", "query", *TRAIN, "-o", "out") == 0
    record = json.loads((place / "out" / "result.json").read_text())
    assert record["after"]["heads"] == 6 and {2, 3} <= set(record["kept"][site])
    assert all(record["kept"].values()) and record["settings"]["unit"] == "query"
    assert record["settings"]["constraints"]["quotas"] == {"encoder": 6}
    capsys.readouterr()
    assert call(monkeypatch, "prune", "tiny", "-k", "6", "--uniform", *TRAIN, "-o", "even", "--json") == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert [len(heads) for heads in told["kept"].values()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-k", "4", "--uniform"), "The nearest are 3 and 6."),
        (("-k", "4", "--quota", "cross=2"), "`--quota` names the kind 'cross'; this model has 'encoder'."),
        (("-k", "4", "--quota", "cross"), "`--quota` must be KIND=N, such as cross=8; got 'cross'."),
        (("-k", "4", "--quota", "a=1", "--quota", "a=2"), "`--quota` names the kind 'a' twice"),
        (("-k", "4", "--protect", "nowhere:1"), "The model has no site 'nowhere'"),
        (("-k", "4", "--protect", "here"), "`--protect` must be SITE:HEAD"),
        (("-k", "4", "--min-per-site", "-1"), "`--min-per-site` must be a whole number from 0 up; got -1."),
        (("-k", "4", "--unit", "layer"), "`--unit` must be one of 'group', 'query'; got 'layer'."),
        (("--method", "none", "--uniform"), "`constraints` has no effect here: all heads stay"),
        (("--method", "none", "--set", "weight=1"), "`weight` belongs to --method voita, not to none."),
    ],
)
def test_the_command_line_refuses_by_name(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "prune", "tiny", *words, *TRAIN, "-o", "x") == 2
    assert message in capsys.readouterr().err and not (place / "x").exists()
