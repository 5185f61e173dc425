"""Voita's search for lambda: short runs on copies, and the one whose own number of heads comes nearest to K."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from command import TRAIN, call, place
from kheads import Plan, Voita, prune
from kheads.training.run import Run
from small_runs import arguments, data

__all__ = ["place"]

Fresh = Callable[[str], Any]
WEIGHT = 0.3
PHASES = ["search-0", "search-1", "search-2", "gates"]


def searched(model: Any, k: int, folder: Path, plan: Plan | None = None, **options: Any) -> Any:
    method = Voita(weight=WEIGHT, gate_lr=0.5, gate_start=1.0, search=3, **options)
    return prune(model, k, method, data("bert"), data("bert", 4), arguments(folder, max_steps=10), plan=plan)


@pytest.mark.parametrize("k", [3, 8])
@pytest.mark.slow
def test_the_nearest_of_those_tried_is_taken(k: int, fresh: Fresh, tmp_path: Path) -> None:
    """Every trial is reported, the search goes towards K, and the run uses the lambda that came nearest."""
    report = searched(fresh("bert"), k, tmp_path, search_steps=1.0).report
    tried = report["search"]
    assert [entry.keys() for entry in tried] == [{"weight", "natural_heads"}] * 3
    assert tried[0]["weight"] == pytest.approx(WEIGHT)
    for number, entry in enumerate(tried[:-1]):
        more = entry["natural_heads"] > k
        assert all((later["weight"] > entry["weight"]) == more for later in tried[number + 1 :])
    misses = [abs(entry["natural_heads"] - k) for entry in tried]
    assert report["method"]["weight"] == tried[misses.index(min(misses))]["weight"]
    assert min(misses) <= misses[0] and len({entry["natural_heads"] for entry in tried}) > 1
    # A trial as long as the run itself is the run itself: the search left the model and the seed alone.
    assert report["method"]["natural_heads"] == tried[misses.index(min(misses))]["natural_heads"]
    assert report["method"]["adjusted_heads"] == k - report["method"]["natural_heads"]


@pytest.mark.parametrize(
    ("plan", "steps"), [(Plan(), 2), (Plan(pipelined=True, trained=True, gate_steps=20), 4)], ids=["joint", "frozen"]
)
def test_trials_are_short_and_leave_the_model_alone(
    plan: Plan, steps: int, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial takes `search_steps` of the phase in which the gates learn, on a copy of the model."""
    model = fresh("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    starts: list[bool] = []
    gates = Run.train_gates

    def watched(self: Any, *args: Any, **changes: Any) -> Any:
        starts.append(all(torch.equal(before[name], tensor) for name, tensor in self.bench.model.state_dict().items()))
        return gates(self, *args, **changes)

    monkeypatch.setattr(Run, "train_gates", watched)
    result = searched(model, 4, tmp_path, plan)
    assert list(result.history) == PHASES and starts == [True] * 4
    lengths = [result.history[phase][-1]["step"] for phase in PHASES]
    assert lengths == [steps] * 3 + [5 * steps]
    assert len(result.kept) == 4


def test_a_search_needs_a_lambda_to_begin_with() -> None:
    with pytest.raises(ValueError, match=r"`search` looks around `weight`, which must be positive then; got 0\."):
        Voita(weight=0, search=3)


def test_the_command_line_searches(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--method", "voita", "--set", "search=2", "--set", "weight=0.1", "--set", "gate_lr=0.5")
    assert call(monkeypatch, "prune", "tiny", "-k", "4", *words, *TRAIN, "-o", "out", "--json") == 0
    report = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["report"]
    assert len(report["search"]) == 2 and report["search"][0]["weight"] == pytest.approx(0.1)
    assert report["method"]["weight"] in [entry["weight"] for entry in report["search"]]
    assert json.loads((place / "out" / "result.json").read_text())["after"]["heads"] == 4
