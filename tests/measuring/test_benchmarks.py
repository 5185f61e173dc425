"""The benchmark scripts run: small models, commands that do nothing."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import kheads
from kheads.blocks.costs import Costs
from kheads.blocks.site import total
from zoo.cases import build

FOLDER = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """What the script printed last, as data."""
    monkeypatch.setattr(sys, "argv", [bench.__name__, *options])
    bench.main()
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_blocks_are_timed_for_both_sizes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bench: Any = script("bench_blocks")
    for name, value in {"SMALL": 3, "LARGE": 3, "HEADS": 20}.items():
        monkeypatch.setattr(bench, name, value)
    found = run(bench, monkeypatch, capsys, "--repeats", "1")
    assert found["results"].keys() == bench.CASES.keys()
    for rows in found["results"].values():
        assert {"discover", "select", "select, uniform", "mask", "from_mask", "remove", "together"} <= {
            row["operation"] for row in rows
        }
        assert all(row["small"] > 0 and row["large"] > 0 and row["growth"] > 0 for row in rows)


def test_starts_are_compared_with_their_base(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench: Any = script("bench_start")
    bare = bench.Start((sys.executable, "-S", "-c", "pass"))
    busy = bench.Start((sys.executable, "-S", "-c", "sum(range(3 * 10**6)); raise SystemExit(3)"), "bare", 1.01)
    monkeypatch.setattr(bench, "STARTS", {"bare": bare, "busy": busy})
    first, second = run(bench, monkeypatch, capsys, "--rounds", "2")["rows"]
    assert first["seconds"] > 0 and "ratio" not in first
    assert second["ratio"] > 1.01 and second["base"] == "bare" and (first["exit_code"], second["exit_code"]) == (0, 3)
    assert "(missed)" in bench.show(second) and "(missed)" not in bench.show(second | {"target": 1e6})


def test_training_steps_are_measured_and_compared() -> None:
    bench: Any = script("bench_allocation")
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    found = bench.train(4, 8, 2, tiny)
    assert all(len(found[name]) == 2 for name in ("clock", "user", "system", "faults")) and found["peak"] > 0
    assert min(found["clock"]) > 0

    def process(system: float) -> dict[str, float]:
        return {"clock": 2.0, "user": 1.0, "system": system, "processor": 1 + system, "faults": 9.0, "peak": 10.0}

    row = bench.row("made up", [{"as it is": process(0.25), "kept": process(0.0)}] * 3)
    assert row["processor"] == [1.25] * 3 and row["clock"] == [1.0] * 3
    assert (row["as it is"]["share"], row["kept"]["share"]) == (0.2, 0.0)
    assert "20.0 % to 0.0 %" in bench.show(row) and "1.250 (1.250 to 1.250)" in bench.show(row)


def test_predicted_and_measured_speed_ups_stand_side_by_side(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench: Any = script("bench_latency")
    size = total(kheads.discover(build("bert"), parts="all"))
    costs = Costs("ms", torch.full((size,), 80 / size, dtype=torch.float64), 100.0, 20.0)
    monkeypatch.setattr(bench.sources, "model", lambda _: build("bert"))
    monkeypatch.setattr(bench, "price", lambda *_: costs)
    found = run(bench, monkeypatch, capsys, "--at", "2", "6", "--speedup", "2", "--repeats", "6")
    assert [row["multiple_of"] for row in found["rows"]] == list(bench.MULTIPLES)
    for row in found["rows"]:
        assert row["predicted"] >= 2 and row["flops"] > 1 and row["blocks"] < size
        assert all(row[name]["low"] <= row[name]["ratio"] <= row[name]["high"] for name in ("clock", "processor"))


def test_memory_beside_a_large_model_is_watched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--layers", "2", "--width", "512", "--inner", "64", "--tokens", "1024", "--keep", "0.99")
    found = run(script("bench_large"), monkeypatch, capsys, *options)
    assert found["parameters"][1] <= 0.99 * found["parameters"][0] and found["tokens"]["repaired"] > 0
    assert found["peak"]["Anon"] > 0 and found["minutes"].keys() == {"estimate", "meet", "repair", "all"}


@pytest.mark.slow
def test_one_kind_goes_through_every_target(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench: Any = script("bench_exports")
    monkeypatch.setattr(sys, "argv", ["bench_exports", "--kinds", "llama", "--rounds", "2"])
    bench.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| llama |")]
    assert len(rows) == 4 and not any("refused" in row for row in rows)
