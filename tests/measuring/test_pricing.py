"""Prices: FLOPs are those of the cut model, milliseconds are curves that never fall, and tables are not trusted."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kheads
from kheads import Kept, Site, UnsupportedModelError
from kheads.blocks.budget import Budget
from kheads.blocks.site import Sites, spans, total
from kheads.measuring import latency, latency_tables
from kheads.measuring.measurement import cut_copy, flops, known_parts, size
from kheads.measuring.pricing import inputs_for, price
from zoo import ZOO
from zoo.cases import build

SPEED = Budget(speedup=2, at=(2, 6), threads=1)
ABOUT = {"device": "made up", "threads": 1}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KHEADS_CACHE", str(tmp_path))


def half(sites: Sites) -> Kept:
    """About half of the blocks, other ones in each site; one where a site is never empty."""
    mask = torch.rand(total(sites), generator=torch.Generator().manual_seed(0)) < 0.5
    for site, place in spans(sites):
        mask[place.start : place.start + int(site.never_empty)] = True
    return Kept.from_mask(mask, sites)


# --------------------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize("name", ZOO)
def test_flops_are_those_of_the_cut_model(name: str) -> None:
    """Exactly, in every supported type: shared layers, groups of heads, layers that hold their attention."""
    model, given = build(name), ZOO[name].inputs()
    sites = kheads.discover(model, parts=known_parts(model))
    torch.manual_seed(0)  # some embeddings choose patches at random
    costs = price(model, Budget(flops=0.5), sites, given)
    torch.manual_seed(0)
    assert costs.whole == flops(model, given) and costs.currency == "flops"
    assert torch.equal(costs.each, costs.each.round()) and (costs.each >= 0).all() and not costs.curves
    kept = half(sites)
    torch.manual_seed(0)
    assert costs.of(kept, sites) == flops(cut_copy(model, kept), given)


def test_parameters_and_heads_are_in_the_sites() -> None:
    model = build("bert")
    sites = kheads.discover(model, parts="all")
    kept = half(sites)
    assert price(model, Budget(params=0.5)).of(kept, sites) == size(cut_copy(model, kept))["parameters"]
    assert price(model, Budget(heads=2)).of(kept, sites) == sum(
        len(kept.to_dict()[site.name]) for site in sites if site.kind != "ffn"
    )


def test_neurons_that_are_not_known_stay_out() -> None:
    model = build("mixtral")
    with pytest.raises(UnsupportedModelError):
        kheads.discover(model, parts="all")
    assert len(price(model, Budget(flops=0.5, at=(2, 6))).each) == total(kheads.discover(model))


def test_counting_leaves_the_model_as_it_was() -> None:
    model = build("yolos")
    before = [parameter.requires_grad for parameter in model.parameters()]
    price(model, Budget(flops=0.5), inputs=ZOO["yolos"].inputs())
    assert [parameter.requires_grad for parameter in model.parameters()] == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_has_no_price_is_refused() -> None:
    model = build("llama")
    with pytest.raises(
        ValueError, match=r"What a query head of 'model.layers.0.self_attn' costs depends on the others"
    ):
        price(model, SPEED, kheads.discover(model, unit="query"))
    with pytest.raises(ValueError, match=r"The model has no site 'encoder.layer.0"):
        price(model, SPEED, kheads.discover(build("bert-generation")))
    with pytest.raises(ValueError, match=r"about 5000 tokens, and \w+ has positions for \d+; give .* `at=\(8, \d+\)`"):
        price(model, Budget(flops=0.5, at=(8, 5000)))
    with pytest.raises(ValueError, match="cannot make up inputs for Linear, which is no model of transformers"):
        inputs_for(torch.nn.Linear(2, 2), SPEED)


# ----------------------------------------------------------------------------------------------------------------- time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every block takes 2 ms, a site 1 ms more; the whole model 100 ms, and 40 without blocks. Gives what was timed."""
    seen: list[int] = []

    def milliseconds(alike: Any, counts: list[int], tables: Any) -> list[float]:
        seen.append(counts[-1])
        latency._cut(alike, counts[-1] // 2, tables)(*alike.args, **alike.kwargs)
        return [1.0 + 2 * count for count in counts]

    monkeypatch.setattr(latency, "_milliseconds", milliseconds)
    monkeypatch.setattr(latency, "timed", lambda *_: torch.tensor([[0.1] * 3, [0.04] * 3], dtype=torch.float64))
    return seen


@pytest.mark.parametrize("name", ["bert", "albert", "mobilebert", "t5", "llama", "gpt2", "bloom", "swin", "deberta-v2"])
def test_blocks_take_together_what_the_model_gains_without_them(name: str, clock: list[int]) -> None:
    model, threads = build(name), torch.get_num_threads()
    told: list[str] = []
    costs = price(model, SPEED, inputs=ZOO[name].inputs(), tell=told.append)
    sites = kheads.discover(model, parts="all")
    assert torch.get_num_threads() == threads and told
    assert (costs.currency, costs.whole, costs.outside) == ("ms", 100.0, pytest.approx(40.0))
    assert costs.of(Kept.everything(sites), sites) == pytest.approx(100)
    assert float(costs.each.sum()) == pytest.approx(60) and len(costs.each) == total(sites)
    for site in sites:
        curve = costs.curves[site.name]
        assert curve.shape == (site.count + 1,) and curve[0] == 0 and (curve.diff() >= 0).all()
    assert len(clock) <= len(sites) and not any(module._forward_pre_hooks for module in model.modules())


def test_a_table_of_disturbed_times_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would serve every later run; so it is measured again."""
    order = [1.0, 9.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]
    monkeypatch.setattr(latency, "_milliseconds", lambda alike, counts, tables: order[: len(counts)])
    monkeypatch.setattr(latency, "timed", lambda *_: torch.tensor([[0.1] * 3, [0.04] * 3], dtype=torch.float64))
    told: list[str] = []
    costs = price(build("bert"), SPEED, tell=told.append)
    assert not list(tmp_path.rglob("*.json")) and any("its table is not kept" in text for text in told)
    assert all((curve.diff() >= 0).all() for curve in costs.curves.values())
    assert latency.disorder([1.0, 2.0], [1.0, 2.0]) == 0 and latency.disorder([2.0, 1.0, 3.0], [1.5, 1.5, 3.0]) > 0.3


def test_alike_sites_are_timed_once_and_read_from_the_table_later(clock: list[int], tmp_path: Path) -> None:
    model, sites = build("bert"), kheads.discover(build("bert"), parts="all")
    first = price(model, SPEED)
    assert sorted(clock) == sorted({site.count for site in sites}) and len(list(tmp_path.rglob("*.json"))) == 2
    again = price(model, SPEED)
    assert len(clock) == 2 and torch.equal(first.each, again.each)
    price(model, Budget(speedup=2, at=(1, 6), threads=1))
    price(model, Budget(ms=2, at=(2, 6), threads=2))
    assert len(clock) == 6  # another batch, and other threads


def test_a_site_that_runs_twice_costs_twice(clock: list[int]) -> None:
    """ALBERT's layers are one; its kinds are weighed by what one call takes."""
    model = build("albert")
    with torch.inference_mode():
        seen = latency.one_pass(model, kheads.discover(model), ZOO["albert"].inputs(), 1)
    assert set(seen.calls.values()) == {model.config.num_hidden_layers} and len(seen.kinds) == 1


def test_a_model_that_gains_nothing_has_blocks_that_cost_nothing() -> None:
    line = torch.tensor([0.0, 1, 2], dtype=torch.float64)
    costs = latency.calibrated({"a": line}, 10.0, 12.0)
    assert costs.each.tolist() == [0, 0] and costs.outside == costs.whole == 10
    flat = latency.calibrated({"a": 0 * line, "b": line[:1]}, 10.0, 8.0)
    assert flat.outside == 10 and len(flat.each) == 2


def test_a_curve_never_falls_and_passes_through_what_was_timed() -> None:
    assert latency.isotonic([1, 3, 2, 4]) == [1, 2.5, 2.5, 4]
    assert latency.isotonic([3, 2, 1]) == [2, 2, 2] and latency.isotonic([]) == []
    curve = latency.interpolated([0, 2, 6], [0.0, 1.0, 2.0])
    assert curve.tolist() == [0, 0.5, 1, 1.25, 1.5, 1.75, 2] and latency.interpolated([0], [0.0]).tolist() == [0]


@pytest.mark.parametrize("count", [1, 12, 16, 17, 40])
def test_few_heads_are_all_timed(count: int) -> None:
    counts = latency.measured_counts(Site("a", "encoder", count, 4))
    assert counts[0] == 0 and counts[-1] == count and counts == sorted(set(counts)) and len(counts) <= 17
    assert len(counts) == count + 1 or count > 16
    neurons = latency.measured_counts(Site("a", "ffn", 64 * count, 1, "neuron"))
    assert neurons[0] == 0 and neurons[-1] == 64 * count and len(neurons) <= 12


def test_rounds_fit_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def interleaved(calls: Any, repeats: int, *_: Any, warmup: int, clock: Any) -> Tensor:
        now[0] += 0.05 * len(calls) * (repeats + warmup)
        return torch.full((len(calls), repeats), 0.05, dtype=torch.float64)

    monkeypatch.setattr(latency, "interleaved", interleaved)
    monkeypatch.setattr(latency.time, "perf_counter", lambda: now[0])
    cpu = torch.device("cpu")
    assert latency.timed([print] * 2, cpu, 1.0).shape == (2, 10)
    assert latency.timed([print] * 2, cpu, 0.1).shape == (2, latency.FEWEST)
    assert latency.timed([print] * 2, cpu, 1e9).shape == (2, latency.MOST)


def test_the_clock_is_real() -> None:
    """Nothing is asserted about times but that they are some."""
    model = build("bert")
    costs = price(model, SPEED, kheads.discover(model))
    assert costs.whole > 0 and costs.outside <= costs.whole and costs.each.isfinite().all()


# --------------------------------------------------------------------------------------------------------------- tables


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table on disk."""
    latency_tables.write(ABOUT, [0, 1, 2], [0.5, 1.0, 1.5])
    (path,) = tmp_path.rglob("*.json")
    return path


def test_a_table_comes_back(table: Path) -> None:
    assert latency_tables.read(ABOUT, [0, 1, 2]) == [0.5, 1.0, 1.5]
    assert latency_tables.read(ABOUT, [0, 2]) is None
    assert latency_tables.read({**ABOUT, "threads": 2}, [0, 1, 2]) is None


@pytest.mark.parametrize(
    "ms",
    [
        [0.5, 1.0],
        [0.5, 1.5, 1.0],
        [-1, 0, 1],
        [0, 1, None],
        [0, 1, "2"],
        [0, 1, True],
        [0, 1, 10**400],
        "abc",
        None,
        {},
    ],
)
def test_a_table_that_is_no_curve_is_measured_anew(ms: Any, table: Path) -> None:
    table.write_text(json.dumps({**json.loads(table.read_text()), "ms": ms}))
    assert latency_tables.read(ABOUT, [0, 1, 2]) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "[" * 100_000, '{"format": 1, "ms": [NaN, 1, 2]}'])
def test_a_damaged_table_is_measured_anew(text: str, table: Path) -> None:
    table.write_text(text)
    assert latency_tables.read(ABOUT, [0, 1, 2]) is None


def test_numbers_that_are_none_are_not_taken(table: Path) -> None:
    for word in ("NaN", "Infinity"):
        table.write_text(table.read_text().replace("1.5", word))
        assert latency_tables.read(ABOUT, [0, 1, 2]) is None


def test_a_foreign_table_is_not_taken(table: Path) -> None:
    table.write_text(table.read_text().replace("made up", "another"))
    assert latency_tables.read(ABOUT, [0, 1, 2]) is None
    table.write_bytes(b"\xff\xfe\x00")
    assert latency_tables.read(ABOUT, [0, 1, 2]) is None


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KHEADS_CACHE", str(tmp_path / "file"))
    latency_tables.write(ABOUT, [0], [0.0])
    assert latency_tables.read(ABOUT, [0]) is None


def test_nothing_half_written_is_left(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    before = table.read_text()
    monkeypatch.setattr(Path, "replace", full)
    latency_tables.write(ABOUT, [0, 1, 2], [1.0, 2.0, 3.0])
    assert list(table.parent.iterdir()) == [table] and table.read_text() == before


def test_where_tables_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KHEADS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert latency_tables.folder() == tmp_path / "kheads" / "latency"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert latency_tables.folder() == Path.home() / ".cache" / "kheads" / "latency"
    found = latency_tables.surroundings(torch.device("cpu"), 3)
    assert found["threads"] == 3 and found["torch"] and found["transformers"] and "cores" in found["device"]
