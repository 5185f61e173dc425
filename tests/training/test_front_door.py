"""`kheads.prune` as people call it: names, plain keyword arguments, one sentence where something is missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainingArguments

import kheads
from kheads import Plan, prune
from small_runs import arguments, data

Fresh = Callable[[str], Any]


def quick(model: Any, folder: Path, **given: Any) -> Any:
    rows = data("bert")
    return prune(model, **{"k": 3, "train_dataset": rows, "eval_dataset": rows[:4], "args": arguments(folder), **given})


def test_a_method_is_a_key_a_class_or_an_instance(fresh: Fresh, tmp_path: Path) -> None:
    given = ("michel", kheads.Michel, kheads.Michel())
    kept = [quick(fresh("bert"), tmp_path, method=method, trained=True).kept for method in given]
    assert kept[0] == kept[1] == kept[2] and len(kept[0]) == 3


def test_fields_of_the_plan_are_plain_arguments(fresh: Fresh, tmp_path: Path) -> None:
    given: dict[str, Any] = {"trained": True, "recover_steps": 1, "estimate_examples": 4}
    plain = quick(fresh("bert"), tmp_path / "a", method="michel", **given)
    planned = quick(fresh("bert"), tmp_path / "b", method="michel", plan=Plan(**given))
    assert plain.metrics == planned.metrics and plain.report["extra_gradients"] == 4 * 2


def test_the_unpruned_model_stands_beside_the_result(fresh: Fresh, tmp_path: Path) -> None:
    """Measured first where the model can do the task, or trained for as many steps where that is asked for."""
    able = quick(fresh("bert"), tmp_path / "a", measure_first=True)
    assert list(able.metrics) == ["unpruned", "masked", "pruned"]
    trained = quick(fresh("bert"), tmp_path / "b", baseline=True)
    alone = quick(fresh("bert"), tmp_path / "c", k=None)
    assert trained.metrics["unpruned"] == alone.metrics["pruned"] != able.metrics["unpruned"]
    assert trained.history["baseline"][-1]["step"] == 4
    assert trained.metrics["pruned"] == able.metrics["pruned"], "the baseline leaves the run alone"


def test_that_all_heads_stay_is_said_where_training_was_asked_for(fresh: Fresh, tmp_path: Path) -> None:
    result = quick(fresh("bert"), tmp_path, k=12, method="michel", trained=True, recover_steps=2)
    assert result.metrics["pruned"] == result.metrics["unpruned"] and not result.history
    assert "All 12 heads stay, so nothing was removed" in result.report["remarks"][0]
    new = quick(fresh("bert"), tmp_path / "new", k=12).report["remarks"]
    assert not any(remark.startswith("All 12") for remark in new)


def test_a_result_shows_itself_and_saves_itself(fresh: Fresh, tmp_path: Path) -> None:
    result = quick(fresh("bert"), tmp_path / "run", method="random", trained=True)
    lines = repr(result).splitlines()
    assert len(lines) == 5 and lines[0] == "PruneResult: 3 of 12 heads kept, chosen by random"
    assert result.save(tmp_path / "out") == tmp_path / "out" and (tmp_path / "out" / "result.json").is_file()
    rebuilt = kheads.load(tmp_path / "out")
    assert sum(site.count for site in kheads.discover(rebuilt)) == 3
    with pytest.raises(FileExistsError, match="is not empty"):
        result.save(tmp_path / "out")


def test_a_folder_that_nobody_named_is_gone_afterwards(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = data("bert")
    unnamed = TrainingArguments(max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True, save_steps=1)
    prune(fresh("bert"), 3, "ste", rows, rows[:4], unnamed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"train_dataset": None}, ValueError, "`train_dataset` is missing; give the data to train on"),
        (
            {"plan": {"trained": True}},
            TypeError,
            r"a kheads.Plan; got dict.*kheads.prune\(\.\.\., trained=True",
        ),
        ({"plan": Plan(), "trained": True}, TypeError, "`trained` is a field of `plan`; give it there"),
        ({"constraints": {"uniform": True}}, TypeError, "`constraints` must be a kheads.Constraints; got dict"),
        ({"k": 3.0}, TypeError, r"`k` must be an integer between 1 and 12 \(the model's heads\); got 3.0"),
        ({"method": "best"}, ValueError, "The method must be one of dsp, ste, .*, or one of yours as module:Class"),
        ({"method": 3}, TypeError, "`method` must be one of dsp, ste, .*, a class or an instance of a method; got int"),
        ({"method": "nowhere:Mine"}, ValueError, "The method 'nowhere:Mine' cannot be loaded"),
        ({"method": "math:pi"}, ValueError, "must name a class that inherits from kheads.Learned or kheads.Estimated"),
        ({"method": "michel", "pipelined": True}, ValueError, "`pipelined` is for methods that learn gates"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    given: dict[str, Any], error: type[Exception], message: str, fresh: Fresh, tmp_path: Path
) -> None:
    model = fresh("bert")
    before = model.classifier.weight.detach().clone()
    with pytest.raises(error, match=message):
        quick(model, tmp_path, **given)
    assert torch.equal(model.classifier.weight, before) and not any(tmp_path.iterdir())
