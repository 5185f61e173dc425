"""Large models: an original on disk, and no more tokens in memory than there is room for."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from families import inputs, logits
from kheads import Budget, Kept, discover, prune, remove, repair
from kheads.storage.mapped import MappedCopy
from kheads.training import memory
from small_runs import arguments, data

Fresh = Callable[[str], Any]


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_a_copy_on_disk_is_the_model_and_stays_so(family: str, fresh: Fresh, tmp_path: Path) -> None:
    """Whatever happens to the model, and when its memory was given back. No file is left to clean up."""
    model = fresh(family)
    before = logits(model, inputs(family))
    mapped = MappedCopy(model, tmp_path)
    assert not list(tmp_path.iterdir())
    assert [type(part) for part in mapped.model.parameters()] == [type(part) for part in model.parameters()]
    remove(model, Kept.from_dict({site.name: [0] for site in discover(model)}))
    for _ in range(2):
        assert torch.allclose(logits(mapped.model, inputs(family)), before, atol=1e-6)
        mapped.forget()


def test_weights_in_low_precision_lie_on_disk_as_they_are(fresh: Fresh, tmp_path: Path) -> None:
    model = fresh("llama").to(torch.bfloat16)
    copied = MappedCopy(model, tmp_path).model
    assert copied.dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copied.parameters(), strict=True))


def test_a_repair_follows_an_original_on_disk(fresh: Fresh, tmp_path: Path) -> None:
    whole = fresh("bert")
    kept = Kept.from_dict({site.name: [0] for site in discover(whole)})
    one, other = (remove(copy.deepcopy(whole), kept) for _ in range(2))
    batches = [inputs("bert", batch=4, seed=seed) for seed in range(4)]
    repair(one, whole, batches)
    repair(other, MappedCopy(whole, tmp_path).model, batches)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_large_model_is_pruned_as_a_small_one_is(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its original lies on disk while it is cut and repaired, and what comes out is the same."""

    def run(folder: str) -> Any:
        args = arguments(tmp_path / folder)
        return prune(fresh("bert"), None, "surgeon", data("bert"), data("bert", 4), args, budget=Budget(params=0.9),
                     trained=True, training=False)  # fmt: skip

    small = run("small")
    made: list[MappedCopy] = []

    def noted(*given: Any) -> MappedCopy:
        made.append(MappedCopy(*given))
        return made[-1]

    monkeypatch.setattr(memory, "LARGE", 0)
    monkeypatch.setattr(memory, "MappedCopy", noted)
    large = run("large")
    assert len(made) == 1 and large.kept == small.kept
    assert large.metrics["repaired"] == small.metrics["repaired"]


def test_as_many_tokens_as_there_is_room_for(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("bert")
    assert memory.in_graph(model) == memory.SMALL_BATCH and memory.waiting(model, 5000) == 5000
    monkeypatch.setattr(memory, "BESIDE", 0)
    monkeypatch.setattr(memory, "SHARE", 0.0)
    assert memory.in_graph(model) == memory.waiting(model, 5000) == memory.FEWEST
    monkeypatch.setattr(memory, "BESIDE", 1 << 20)
    assert memory.FEWEST < memory.in_graph(model) < memory.waiting(model, 5000) < 5000
