"""The surgeon: what a block costs is what the best refit of the others leaves, and nobody is told of it twice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kheads import Goal, Surgeon, discover
from kheads.blocks.site import Site
from kheads.measuring.live_memory import LiveMemory
from kheads.methods import seen as seen_so_far
from kheads.methods import surgeon
from kheads.methods.base import Evidence
from kheads.methods.seen import RowsOnDisk, Sums
from kheads.methods.surgeon import _Patient
from small_runs import data

Fresh = Callable[[str], Any]
ROWS, BLOCKS, WIDTH, OUTPUTS = 60, 4, 3, 5


def operated(x: Tensor, gradient: Tensor, weight: Tensor) -> _Patient:
    seen = Sums()
    seen.add(x, gradient)
    return _Patient(Site("a", "encoder", x.shape[1] // WIDTH, WIDTH), seen, 1e-12, weight)


def best_refit(x: Tensor, gradient: Tensor, weight: Tensor, kept: list[int]) -> float:
    """What the best weights and bias of the kept blocks leave, by the mean of g g'."""
    wanted = x @ weight.flatten(1).T
    places = [block * WIDTH + index for block in kept for index in range(WIDTH)]
    inputs = torch.cat([x[:, places], torch.ones(len(x), 1, dtype=x.dtype)], 1)
    left = wanted - inputs @ torch.linalg.lstsq(inputs, wanted).solution
    return float(((left @ gradient.T) ** 2).sum() / len(x) ** 2)


@pytest.fixture
def seen() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, gradient, weight = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((ROWS, BLOCKS * WIDTH), (ROWS, OUTPUTS), (OUTPUTS, BLOCKS, WIDTH))
    )
    x[:, WIDTH : 2 * WIDTH] += 0.7 * x[:, :WIDTH]  # blocks that know of each other
    return x + 1.0, gradient, weight


def test_a_cost_is_what_the_best_refit_of_the_others_leaves(seen: tuple[Tensor, Tensor, Tensor]) -> None:
    everything = list(range(BLOCKS))
    costs = operated(*seen).costs
    for block in everything:
        assert costs[block] == pytest.approx(best_refit(*seen, [one for one in everything if one != block]))


def test_costs_after_removals_add_up_to_that_of_the_best_refit(seen: tuple[Tensor, Tensor, Tensor]) -> None:
    """Each removal knows of those before it, so the sum of what they cost is what is lost in all."""
    patient, spent, gone = operated(*seen), 0.0, []
    for _ in range(BLOCKS):
        spent += patient.least
        gone.append(patient.remove()[0][0])
        left = [block for block in range(BLOCKS) if block not in gone]
        assert spent == pytest.approx(best_refit(*seen, left)) and patient.left == left
    assert patient.least == float("inf")


def test_rows_and_columns_are_taken_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surgeon, "TOGETHER", 3)
    matrix = torch.randn(11, 11, dtype=torch.float64)
    rows, columns = torch.tensor([0, 2, 3, 4, 7, 9, 10]), torch.tensor([1, 2, 5, 10])
    for chosen in (columns, rows, torch.arange(11)):
        own = matrix.clone()
        taken = surgeon._taken(own, rows, chosen)
        assert torch.equal(taken, matrix[rows][:, chosen])
        assert taken.is_contiguous() and taken.data_ptr() == own.data_ptr()


def test_a_wide_site_takes_little_more_than_its_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the sums to the last neuron: the inverse, once, and what it is worked on with."""
    inputs, outputs, rows = 256, 16, 64
    for module in (surgeon, seen_so_far):
        monkeypatch.setattr(module, "TOGETHER", 16)
    generator = torch.Generator().manual_seed(0)
    x, gradient, weight = (
        torch.randn(shape, generator=generator) for shape in ((rows, inputs), (rows, outputs), (outputs, inputs, 1))
    )
    found = RowsOnDisk()
    found.add(x, gradient)
    with LiveMemory([]) as live:
        patient = _Patient(Site("a", "ffn", inputs, 1, "neuron"), found, 1e-2, weight)
        while patient.there.any():
            patient.remove(2)
    assert live.peak < 1.5 * 8 * inputs**2


def twins(model: Any) -> Any:
    """The second head of the first layer becomes a copy of the first one, up to its output."""
    attention = model.bert.encoder.layer[0].attention.self
    width = attention.attention_head_size
    with torch.no_grad():
        for part in (attention.query, attention.key, attention.value):
            part.weight[width : 2 * width] = part.weight[:width]
            part.bias[width : 2 * width] = part.bias[:width]
    return model


def evidence(model: Any) -> Evidence:
    rows = data("bert", 12)
    batches = [{name: torch.stack([row[name] for row in rows[i : i + 4]]) for name in rows[0]} for i in (0, 4, 8)]

    def loss(built: Any, batch: Any) -> tuple[Tensor, Tensor]:
        return built(**batch).loss, torch.ones(len(batch["labels"]))

    return Evidence(lambda label: batches, loss, seed=0)


def test_a_head_with_a_twin_goes_first_and_the_model_stays_as_it_was(fresh: Fresh) -> None:
    model = twins(fresh("bert"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    goal = Goal(3, discover(model))
    scores = Surgeon(ridge=1e-9).estimate(model, goal, evidence(model))
    assert int(scores.argmin()) in (0, 1) and sorted(scores.tolist()) == list(range(goal.total))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_batches_do_not_matter_nor_do_frozen_weights(fresh: Fresh) -> None:
    model = fresh("bert")
    goal, given = Goal(3, discover(model)), evidence(model)
    scores = Surgeon().estimate(model, goal, given)
    one = {name: torch.cat([batch[name] for batch in given.batches("")]) for name in ("input_ids", "labels")}
    model.requires_grad_(False)
    again = Surgeon().estimate(model, goal, Evidence(lambda label: [one], given.loss, seed=0))
    assert torch.equal(scores, again)


def test_no_examples_are_refused(fresh: Fresh) -> None:
    model = fresh("bert")
    nothing = Evidence(lambda label: [], evidence(model).loss, seed=0)
    with pytest.raises(ValueError, match="There are no examples to score heads with"):
        Surgeon().estimate(model, Goal(3, discover(model)), nothing)


def test_rows_on_disk_say_what_sums_say(seen: tuple[Tensor, Tensor, Tensor]) -> None:
    """Also of what comes in several batches, and where there are more rows than are kept."""
    x, gradient, _ = seen
    sums, rows = Sums(), RowsOnDisk()
    for part in (slice(0, 10), slice(10, 20)):
        for each in (sums, rows):
            each.add(x[part], gradient[part])
    assert torch.allclose(rows.minded(), sums.minded(), rtol=1e-4, atol=1e-6)
    assert torch.allclose(rows.spread(), sums.spread(), rtol=1e-4, atol=1e-4)
    kept = RowsOnDisk()
    for _ in range(5):
        kept.add(x, gradient)
    assert kept.rows == 300 and kept._x.count < 120 and kept._gradients.count < 120
    # The same rows again and again: what is left out would say the same.
    once = Sums()
    once.add(x, gradient)
    assert torch.allclose(kept.spread(), 5 * once.spread(), rtol=1e-4, atol=1e-3)
    assert torch.allclose(kept.minded(), once.minded() / 5, rtol=1e-4, atol=1e-6)


def test_a_model_whose_sums_are_too_large_gets_the_same_order(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("bert")
    goal = Goal(3, discover(model))
    in_memory = Surgeon().estimate(model, goal, evidence(model))
    monkeypatch.setattr(seen_so_far, "IN_MEMORY", 0)
    assert torch.equal(Surgeon().estimate(model, goal, evidence(model)), in_memory)
