"""A preview: what each budget, or each number of heads, gives by choose, cut and repair alone."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import kheads
from command import Fresh, place
from kheads import Budget, Kept
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.running import run
from kheads.lab.preview import looking, reachable
from kheads.lab.preview.found import Point, Preview
from kheads.lab.preview.looking import preview
from kheads.lab.preview.ready import ready
from kheads.lab.preview.request import Request
from kheads.training.bench import Bench
from kheads.training.run import Run
from made_previews import silent

__all__ = ["place"]

DATA: dict[str, Any] = {"train": "train.jsonl", "eval": {"dev": "dev.jsonl"}}


def looked(job: Job, asked: Request) -> Preview:
    return preview(*ready(job), asked, silent)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every evaluation and every scoring."""
    found: list[str] = []

    def note(cls: Any, name: str) -> None:
        inner = getattr(cls, name)

        def call(self: Any) -> Any:
            found.append(name)
            return inner(self)

        monkeypatch.setattr(cls, name, call)

    note(Bench, "evaluate")
    note(Run, "estimate")
    return found


def check_alone(point: Point, job: Job, folder: Path) -> None:
    """A point is what a run of its own without training comes to."""
    alone = run(dataclasses.replace(job, no_training=True), folder, quiet=True).record
    for stage in ("cut", "repaired"):
        assert getattr(point, stage)["dev"] == pytest.approx(alone["metrics"][stage]["dev"])
    assert point.parameters == alone["after"]["parameters"] and point.heads == alone["after"]["heads"]
    assert point.neurons == alone["after"].get("neurons")


def test_each_k_is_what_a_run_of_its_own_without_training_comes_to(place: Path) -> None:
    job = Job("tiny", data=DATA, batch_size=4, seed=3)
    for point in looked(job, Request(ks=(3, 8), timed=False)).points:
        check_alone(point, dataclasses.replace(job, k=point.heads), place / f"k{point.heads}")


def test_each_budget_is_what_a_run_of_its_own_without_training_comes_to(place: Path) -> None:
    job = Job("tiny", data=DATA, batch_size=4, seed=3)
    found = looked(job, Request(timed=False))
    assert found.parts == ("heads", "all") and len(found.budgets) == 10
    for point in (found.points[1], found.points[-1]):
        asked = dataclasses.replace(job, smaller=1 - point.budget.amount, parts=point.parts)
        check_alone(point, asked, place / point.parts)


def test_heads_are_scored_once_and_the_unpruned_model_is_measured_once(place: Path, calls: list[str]) -> None:
    told: list[tuple[int, int]] = []
    job, prepared = ready(Job("tiny", data=DATA))
    before = {name: value.clone() for name, value in prepared.model.state_dict().items()}
    found = preview(job, prepared, Request(ks=(2, 7, 4, 7), timed=False), lambda _, *n: told.append(n))
    assert [point.heads for point in found.points] == [7, 4, 2]
    assert calls.count("estimate") == 1 and calls.count("evaluate") == 1 + 2 * 3
    assert told[0] == (0, 3) and told[-1] == (2, 3) and told == sorted(told)
    after = prepared.model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_scores_are_computed_once_for_each_of_the_parts(
    place: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachable, "WITHIN", 1)
    monkeypatch.setattr(reachable, "BEYOND", 1)
    told: list[tuple[int, int]] = []
    request = Request("flops", timed=False, at=(2, 6))
    found = preview(*ready(Job("tiny", data=DATA)), request, lambda _, *n: told.append(n))
    assert [(budget.name, budget.batch) for budget in found.budgets] == [("flops", (2, 6))] * 2
    places = [(point.parts, found.budgets.index(point.budget)) for point in found.points]
    assert places == [("heads", 0), ("all", 0), ("all", 1)]
    assert calls.count("estimate") == 2 and calls.count("evaluate") == 1 + 2 * 3
    assert told[-1] == (2, 3) and told == sorted(told)


def test_labels_of_the_training_data_are_not_needed(place: Path) -> None:
    rows = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    bare = [{name: row[name] for name in ("premise", "hypothesis")} for row in rows]
    (place / "bare.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in bare))
    found = looked(Job("tiny", data={**DATA, "train": "bare.jsonl"}), Request(ks=(6,), timed=False))
    assert math.isfinite(found.worse(found.points[0]))


def test_speed_is_measured_next_to_the_unpruned_model_and_to_the_limit(place: Path) -> None:
    found = looked(Job("tiny", data=DATA), Request(ks=(9, 3), at=(2, 4)))
    told = found.timing
    assert told and (told["batch"], told["length"], told["repeats"]) == (2, 4, looking.ROUNDS)
    (limit,) = found.limits
    assert all(point.speedup and point.speedup.ratio > 0 for point in found.points) and limit.speedup
    sizes = [found.parameters, *(point.parameters for point in found.points), limit.parameters]
    assert sizes == sorted(sizes, reverse=True)
    plain = found.to_dict()
    assert plain["limit"]["speedup"].keys() == {"ratio", "low", "high"} and json.dumps(plain)
    assert plain["limit"]["parameters"] == plain["least"] == limit.parameters and plain["timing"] == told
    assert [(point["k"], point["budget"]) for point in plain["points"]] == [(9, {"heads": 9}), (3, {"heads": 3})]


def test_speed_and_the_limits_are_measured_where_neurons_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "WITHIN", 1)
    monkeypatch.setattr(reachable, "BEYOND", 0)
    found = looked(Job("tiny", data=DATA), Request(parts="ffn", at=(2, 4)))
    (point,) = found.points
    assert point.speedup and point.heads == found.heads == 12 and (point.neurons or 0) < 120 == found.neurons
    assert found.limits[0].speedup and found.limits[0].parameters < point.parameters < found.parameters
    assert found.timing and (found.timing["batch"], found.timing["length"]) == (2, 4)
    plain = found.to_dict()
    assert json.dumps(plain) and plain["points"][0]["budget"] == {"params": point.budget.amount}
    assert "k" not in plain["points"][0] and plain["timing"] == found.timing


@given(st.lists(st.floats(0.001, 0.99), min_size=1, max_size=2))
def test_the_budgets_rise_and_can_be_met(limits: list[float]) -> None:
    found = reachable.shares(limits)
    assert 1 <= len(found) <= 10 and found == sorted(set(found)) and found[0] > 0 and found[-1] < max(limits)
    few, many = min(limits), max(limits)
    if few > 0.05 and 0.9 * many > few:
        assert len(found) == 10 and sum(share < few for share in found) >= 4


def test_whole_percent_where_they_tell_budgets_apart() -> None:
    assert reachable.shares([0.156, 0.47]) == [0.03, 0.07, 0.11, 0.14, 0.2, 0.25, 0.3, 0.34, 0.39, 0.44]


@pytest.mark.parametrize(("family", "parts"), [("llama", "heads"), ("llama", "all"), ("bert", "heads"), ("t5", "all")])
def test_what_can_go_leaves_what_has_to_stay(family: str, parts: str, fresh: Fresh) -> None:
    goal = reachable.goal_for(Job("any"), fresh(family), Budget(params=0.5), parts)
    most = reachable.removable(goal)
    assert len(reachable.met(goal, [Budget(params=1 - most + 1e-6)])) == 1
    assert reachable.met(goal, [Budget(params=1 - most - 1e-6)]) == ()


def test_a_model_without_heads_has_ten_budgets_of_neurons(place: Path, fresh: Fresh) -> None:
    model = fresh("bert")
    kheads.remove(model, Kept.from_dict({}))
    kheads.save(model, place / "headless", tokenizer=transformers.AutoTokenizer.from_pretrained(place / "tiny"))
    found = looked(Job("headless", data=DATA, batch_size=4), Request(timed=False))
    assert len(found.budgets) == len(found.points) == 10 and {point.parts for point in found.points} == {"all"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "dsp"}, "must score heads once for every K, as .*surgeon.* do; got 'dsp'"),
        ({"method": "none"}, "must score heads once for every K"),
        ({"constraints": {"min_per_site": 1}}, "`min_per_site` has no effect here: a preview has no constraints"),
        ({"fresh": True}, "`fresh` has no effect here"),
        ({"repair": False}, "`repair` has no effect here"),
        ({"distil_weight": 0.1}, "`distil_weight` has no effect here"),
        ({"k": 3}, "with -k"),
    ],
)
def test_what_cannot_be_previewed_is_refused_before_anything_is_loaded(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ready(Job("nowhere", data=DATA, **fields))
