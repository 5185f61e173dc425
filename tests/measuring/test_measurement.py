"""Measuring: counts are exact, comparisons are paired, and nothing about the model changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import kheads
from families import inputs, logits
from kheads.measuring import measurement
from kheads.measuring.live_memory import LiveMemory
from kheads.measuring.measurement import flops, peak_memory, without_heads
from kheads.measuring.timing import interleaved, speedup
from zoo import ZOO
from zoo.cases import build

Fresh = Callable[[str], Any]
CPU = torch.device("cpu")


def bert_flops(model: Any, batch: int, length: int) -> int:
    """The closed form: projections and feed-forward by token, attention by pair of tokens, and the classifier."""
    config, total = model.config, 0
    for site in kheads.discover(model):
        width = site.count * site.width
        total += batch * length * 4 * config.hidden_size * width + 2 * batch * length**2 * width
        total += batch * length * 2 * config.hidden_size * config.intermediate_size
    return 2 * (total + batch * (config.hidden_size**2 + config.hidden_size * config.num_labels))


@pytest.mark.parametrize("kept", [12, 5, 1, 0])
def test_flops_are_the_closed_form(kept: int, fresh: Fresh) -> None:
    """Also where sites are uneven or empty; and sdpa, which the counter does not see, is back afterwards."""
    model = fresh("bert")
    sites = kheads.discover(model)
    if kept:
        kheads.remove(model, kheads.select(torch.rand(12, generator=torch.Generator().manual_seed(0)), kept, sites))
    else:
        model = without_heads(model)
    implementation = model.config._attn_implementation
    batch = {"input_ids": torch.ones(3, 7, dtype=torch.long)}
    assert flops(model, batch) == bert_flops(model, 3, 7)
    assert implementation == model.config._attn_implementation == "sdpa"


def test_no_attention_is_the_model_with_every_head_closed(family: str, fresh: Fresh) -> None:
    """It shares its weights with the model, which stays whole."""
    model, given = fresh(family), inputs(family)
    total = sum(site.count for site in kheads.discover(model))
    with torch.no_grad():
        before = logits(model, given)
        with kheads.gated(model, torch.zeros(total)):
            closed = logits(model, given)
        empty = without_heads(model)
        assert torch.allclose(logits(empty, given), closed, atol=1e-5)
        assert torch.equal(logits(model, given), before)
    shared = {parameter.data_ptr() for parameter in model.parameters()}
    own = [parameter for parameter in empty.parameters() if parameter.numel() and parameter.data_ptr() not in shared]
    assert sum(site.count for site in kheads.discover(empty)) == 0
    assert sum(map(torch.numel, own)) < 0.2 * sum(map(torch.numel, model.parameters()))


@pytest.mark.parametrize("name", ["bert", "bart", "t5", "gpt2"])
def test_bytes_are_those_of_the_file(name: str, fresh: Fresh, tmp_path: Path) -> None:
    """Tied weights count once; what the file has besides is its header."""
    model = fresh(name)
    folder = kheads.save(model, tmp_path / "saved")
    (file,) = folder.glob("*.safetensors")
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    assert measurement.size(model)["bytes"] == file.stat().st_size - header
    with safe_open(file, framework="pt") as tensors:
        assert measurement.size(model)["parameters"] <= sum(tensors.get_tensor(key).numel() for key in tensors.keys())  # noqa: SIM118


def test_live_memory_counts_what_is_alive_at_once() -> None:
    """Three results of 4,000 bytes, of which at most two live at once beside the input; views are free."""
    x = torch.ones(1000)
    with LiveMemory([x]) as memory:
        y = x + 1
        z = y.view(10, 100) * 2
        del y
        z = z.t() + 1
        assert memory.peak == 3 * 4000
        del z
        x.exp()
    assert memory.peak == 3 * 4000


def test_fewer_heads_need_less_memory(fresh: Fresh) -> None:
    model, batch = fresh("bert"), {"input_ids": torch.ones(4, 16, dtype=torch.long)}
    assert peak_memory(without_heads(model), batch) < peak_memory(model, batch)


def test_every_round_runs_each_once_and_turns_around() -> None:
    order: list[str] = []
    times = interleaved([lambda: order.append("a"), lambda: order.append("b")], 4, CPU, warmup=1)
    assert "".join(order) == "abbaabbaab"
    assert times.shape == (2, 4) and (times > 0).all()


def test_a_ratio_is_the_median_of_pairs() -> None:
    """A machine that becomes ten times slower in some rounds does not move it."""
    load = torch.tensor([1.0, 10, 1, 1, 10, 1, 1, 3, 1], dtype=torch.float64)
    found = speedup(1.4 * load, load)
    assert (found.ratio, found.low, found.high) == pytest.approx((1.4, 1.4, 1.4))
    assert not found.undecided and str(found) == "1.40x (1.40 to 1.40)"
    noise = torch.tensor([0.9, 1.1, 1.05, 0.95, 1.0, 0.97, 1.03], dtype=torch.float64)
    unsure = speedup(noise, torch.ones(7, dtype=torch.float64))
    assert unsure.undecided and "no difference measured: the interval includes 1" in str(unsure)


def test_measure_compares_a_grid_and_leaves_the_models_alone(fresh: Fresh) -> None:
    model, pruned = fresh("bert").train(), fresh("bert")
    kheads.remove(pruned, kheads.select(torch.arange(12.0), 3, kheads.discover(pruned)))
    grid = [{"input_ids": torch.ones(rows, 5, dtype=torch.long)} for rows in (1, 4)]
    before = torch.get_num_threads()
    found = kheads.measure(pruned, grid, against=model, repeats=3, threads=1)
    assert model.training and not pruned.training and torch.get_num_threads() == before
    assert found.settings["threads"] == 1 and found.against is not None
    assert found.no_attention.parameters < found.model.parameters < found.against.parameters
    assert found.no_attention.flops < found.model.flops < found.against.flops
    assert found.no_blocks is not None and found.no_blocks.flops < found.no_attention.flops
    assert found.no_blocks.parameters < found.no_attention.parameters
    plain = json.loads(json.dumps(found.to_dict()))
    assert [(entry["batch"], entry["length"]) for entry in plain["grid"]] == [(1, 5), (4, 5)]
    for entry in (*plain["grid"], *plain["no_attention"]["grid"], *plain["no_blocks"]["grid"]):
        assert entry["low"] <= entry["ratio"] <= entry["high"] and entry["against_ms"] > 0
        assert entry["tokens_per_second"] == pytest.approx(entry["batch"] * 5 / entry["ms"] * 1e3)
    assert plain["flops"] == bert_flops(pruned, 4, 5) and plain["generation"] is None
    assert plain["against"]["grid"][0]["ratio"] is None


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_generation_is_measured_for_decoders(name: str, fresh: Fresh) -> None:
    """Alone, a model has times but no ratio; its limit is relative to itself."""
    model = fresh(name)
    found = kheads.measure(model, inputs(name), repeats=2, new_tokens=3)
    assert found.against is None and found.model.grid[0].speedup is None
    assert found.model.generation is not None and found.model.generation.speedup is None
    assert found.model.generation.tokens_per_second == pytest.approx(3 * 3e3 / found.model.generation.ms)
    assert found.no_attention.generation is not None and found.no_attention.generation.speedup is not None


def test_the_limit_of_a_model_whose_neurons_are_not_known_is_that_of_its_heads() -> None:
    found = kheads.measure(build("mixtral"), ZOO["mixtral"].inputs(), repeats=1)
    assert found.no_blocks is None and found.to_dict()["no_blocks"] is None


def test_flops_are_counted_where_parameters_are_handed_to_modules() -> None:
    """torch's counter looks for the graph of what asks for gradients, and there is none."""
    for name in ("yolos", "wav2vec2", "deberta-v2"):
        assert flops(build(name), ZOO[name].inputs()) > 0


def test_what_cannot_be_measured_is_refused(fresh: Fresh) -> None:
    with pytest.raises(ValueError, match="`inputs` must hold at least one batch; got none"):
        kheads.measure(fresh("bert"), [])
    with pytest.raises(ValueError, match="Both models must be on one device; got cpu and meta"):
        kheads.measure(fresh("bert"), inputs("bert"), against=fresh("bert").to("meta"))
