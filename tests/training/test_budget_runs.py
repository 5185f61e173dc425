"""Runs within a budget: every method, both kinds of blocks, and what the record says was reached."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

import kheads
from kheads import Budget, prune
from kheads.blocks.costs import Costs
from kheads.blocks.site import Site, total
from kheads.measuring.meeting import Met, Reached
from kheads.methods.registry import BUILT_IN
from kheads.training.aim import aimed
from small_runs import arguments, data
from zoo.cases import build

Fresh = Callable[[str], Any]
SHORT = (2, 6)


def quick(model: Any, folder: Path, **given: Any) -> Any:
    rows = data("bert")
    return prune(model, **{"train_dataset": rows, "eval_dataset": rows[:4], "args": arguments(folder), **given})


def parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_method_keeps_what_fits_of_heads_and_neurons(fresh: Fresh, tmp_path: Path, name: str) -> None:
    model = fresh("bert")
    whole, sites = parameters(model), kheads.discover(model, parts="all")
    limit = sites.outside + (whole - sites.outside) // 2
    result = quick(model, tmp_path / "run", method=name, budget=Budget(params=limit))
    smallest = min(site.parameters for site in sites)
    assert limit - smallest < parameters(result.model) <= limit, "never above, and no further neuron fits"
    budget = result.report["budget"]
    assert budget["asked"] == {"params": limit}
    assert budget["reached"]["value"] == budget["parameters"] == parameters(result.model)
    record = result.record()
    assert record["before"]["heads"] == 12 and record["before"]["neurons"] == sum(
        s.count for s in sites if s.kind == "ffn"
    )
    after = kheads.discover(result.model, parts="all")
    for kind, key in ((False, "heads"), (True, "neurons")):
        assert record["after"][key] == sum(site.count for site in after if (site.kind == "ffn") == kind)
    assert result.report["largest_difference"] < 1e-3
    result.save(tmp_path / "out")
    inputs = {name: torch.stack([row[name] for row in data("bert")[:2]]) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        assert torch.allclose(kheads.load(tmp_path / "out")(**inputs).logits, result.model(**inputs).logits, atol=1e-6)


@pytest.mark.parametrize("parts", ["heads", "ffn"])
def test_a_budget_of_one_part_leaves_the_other_alone(fresh: Fresh, tmp_path: Path, parts: str) -> None:
    model = fresh("bert")
    before = {site.name: site.count for site in kheads.discover(model, parts="all")}
    sites = kheads.discover(model, parts=parts)
    limit = sites.outside + (parameters(model) - sites.outside) // 2
    result = quick(
        model, tmp_path, method="surgeon", trained=True, training=False, budget=Budget(params=limit), parts=parts
    )
    for site in kheads.discover(result.model, parts="all"):
        alone = (site.kind == "ffn") != (parts == "ffn")
        assert site.count == before[site.name] if alone else site.name in result.kept.to_dict()
    shown = repr(result).splitlines()[0]
    assert ("12 of 12 heads" in shown) == (parts == "ffn") and ("neurons" in shown) == (parts == "ffn")
    assert result.metrics.keys() >= {"unpruned", "cut", "repaired", "pruned"}


def test_work_is_counted_on_the_smaller_model(fresh: Fresh, tmp_path: Path) -> None:
    result = quick(
        fresh("bert"), tmp_path, method="random", trained=True, training=False, budget=Budget(flops=0.7, at=SHORT)
    )
    budget = result.report["budget"]
    assert budget["asked"] == {"flops": 0.7, "at": list(SHORT)}
    inputs = kheads.storage.probe.probe_inputs(result.model, *SHORT)
    assert budget["flops"] == budget["reached"]["value"] == kheads.measuring.measurement.flops(result.model, inputs)


def test_a_loop_of_ones_own_takes_a_budget(fresh: Fresh) -> None:
    model = fresh("bert")
    sites = kheads.discover(model, parts="all")
    limit = sites.outside + (parameters(model) - sites.outside) // 3
    pruner = kheads.attach(model, kheads.DSP.preset("short"), budget=Budget(params=limit), steps=3)
    rows = data("bert")
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    optimizer = torch.optim.AdamW(
        [{"params": [p for n, p in model.named_parameters() if "kheads" not in n]}, pruner.param_group()]
    )
    for _ in range(3):
        (model(**batch).loss + pruner.penalty()).backward()
        pruner.step()
        optimizer.step()
        optimizer.zero_grad()
    kept = pruner.finish()
    assert parameters(model) <= limit and {site.name for site in sites} == kept.to_dict().keys()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"k": 3, "budget": Budget(params=0.9)}, TypeError, "`k` and `budget` both say"),
        ({"budget": Budget(params=10)}, ValueError, "`params` 10 cannot be reached: without any head or neuron"),
        ({"budget": Budget(params=10**9)}, ValueError, "has .* parameters already, which is within 1,000,000,000"),
        ({"budget": Budget(ms=1e9, at=SHORT)}, ValueError, r"takes \d+\.\d\d ms already, which is within 1e\+09 ms"),
        ({"k": 3, "parts": "all"}, ValueError, "a number of heads leaves neurons alone"),
        ({"parts": "all"}, ValueError, "`parts` belongs to a budget"),
        ({"budget": 0.5}, TypeError, r"`budget` must be a kheads.Budget, such as Budget\(params=0.7\); got 0.5"),
        (
            {"budget": Budget(params=0.9), "method": kheads.DSP()},
            ValueError,
            r'90 % of the parameters needs relaxation="threshold"',
        ),
        ({"budget": Budget(params=0.9), "unit": "queries"}, ValueError, "`unit` must be"),
    ],
)
def test_what_cannot_be_is_refused_before_training(
    fresh: Fresh, tmp_path: Path, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = fresh("bert")
    before = parameters(model)
    with pytest.raises(error, match=message):
        quick(model, tmp_path / "run", **given)
    assert parameters(model) == before and not (tmp_path / "run").exists()


def test_neurons_are_not_advised_where_they_cannot_go() -> None:
    with pytest.raises(ValueError, match=r"with heads alone: without any attention .* % of what it has now\.$"):
        aimed(build("mixtral"), Budget(params=0.1), "heads", None)
    with pytest.raises(ValueError, match='; add `parts="all"`'):
        aimed(build("bert"), Budget(params=0.1), "heads", None)


def test_what_takes_a_while_before_the_run_is_told(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KHEADS_CACHE", str(tmp_path / "cache"))
    loud = arguments(tmp_path / "run", disable_tqdm=False)
    with pytest.raises(ValueError, match="cannot be reached"):
        quick(fresh("bert"), tmp_path / "run", budget=Budget(speedup=1e6, at=SHORT), args=loud)
    assert "timing the whole model and the model without blocks" in "".join(capsys.readouterr())


class _Killed(TrainerCallback):
    """Ends a run in the middle of a training."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            raise KeyboardInterrupt


def test_a_run_towards_a_time_goes_on_with_the_blocks_it_had_chosen(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times are measured and never the same twice: what a second look would choose does not fit the checkpoints."""
    looks: list[Budget] = []

    def price(model: Any, budget: Budget, sites: Sequence[Site], tell: Any = None) -> Costs:
        each = torch.full((total(sites),), 80 / total(sites), dtype=torch.float64)
        return Costs("ms", each, 100.0, 20.0)

    def meet(model: Any, choose: Any, budget: Budget, costs: Costs, tell: Any = None) -> Met:
        looks.append(budget)
        kept = choose(Budget(speedup=1.3 + 0.2 * len(looks)))
        return Met(kept, budget, Reached(1.5, 1.4, 1.6), None, 1, 1, 1, 100.0)

    monkeypatch.setattr("kheads.training.aim.price", price)
    monkeypatch.setattr("kheads.training.run.meet", meet)
    folder = tmp_path / "run"
    how = {"budget": Budget(speedup=1.5, at=SHORT), "trained": True}
    how["args"] = arguments(folder, save_strategy="steps", save_steps=1)
    with pytest.raises(KeyboardInterrupt):
        quick(fresh("bert"), folder, callbacks=[_Killed()], **how)
    result = quick(fresh("bert"), folder, resume=True, **how)
    sites = kheads.discover(fresh("bert"), parts="all")
    wanted = kheads.select(result.scores, looks[0], sites, costs=price(None, looks[0], sites))
    assert len(looks) == 1 and result.kept == wanted
    assert result.report["budget"]["reached"] == {"value": 1.5, "low": 1.4, "high": 1.6}
    other = {**how, "budget": Budget(speedup=1.4, at=SHORT)}
    with pytest.raises(ValueError, match="belongs to another run: `budget`"):
        quick(fresh("bert"), folder, resume=True, **other)
    (folder / "chosen.json").write_text('{"kept": 3}')
    with pytest.raises(ValueError, match=r"chosen\.json is not what a run has written"):
        quick(fresh("bert"), folder, resume=True, **how)


def test_times_are_measured_by_one_process_alone(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kheads.training.pruning.PartialState", lambda: SimpleNamespace(num_processes=2))
    with pytest.raises(ValueError, match="`speedup` is measured in one process; start it without torchrun"):
        quick(fresh("bert"), tmp_path / "run", budget=Budget(speedup=1.5, at=SHORT))
