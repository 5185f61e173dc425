"""The benchmark scripts run: small models, commands that do nothing."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
    for name, value in {"SMALL": 3, "LARGE": 6, "HEADS": 20}.items():
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
