"""The efficiency experiment: its masks are what they are called, and it goes on where it was stopped."""

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kheads

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_efficiency.py"


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_efficiency", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("k", [1, 6, 12, 50, 143])
def test_heads_are_concentrated_or_spread(k: int, bench: Any) -> None:
    sites = tuple(kheads.Site(f"layer{index}", "encoder", 12, 64) for index in range(12))
    per_site = {
        placement: Counter(name for name, _ in kheads.select(bench.scores(placement, sites, 3), k, sites))
        for placement in ("random", "concentrated", "spread")
    }
    assert all(found.total() == k for found in per_site.values())
    assert len(per_site["concentrated"]) == -(-k // 12)
    assert max(per_site["spread"].values()) - (min(per_site["spread"].values()) if k >= 12 else 0) <= 1


def test_it_goes_on_with_what_is_missing(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--geometry", "2", "3", "12", "--batch", "2", "--length", "4", "--repeats", "2", "-o", str(tmp_path)]

    def run(placements: dict[str, int]) -> dict[str, Any]:
        monkeypatch.setattr(bench, "PLACEMENTS", placements)
        monkeypatch.setattr(sys, "argv", ["bench", *tiny, "-k", "4", "2"])
        bench.main()
        return json.loads((tmp_path / "efficiency.json").read_text())

    first, second = run({"random": 1}), run({"random": 2, "spread": 1})
    assert second["rows"][:2] == first["rows"]
    measured = [(row["placement"], row["mask"], row["k"]) for row in second["rows"]]
    assert measured == [(*order, k) for order in (("random", 0), ("random", 1), ("spread", 0)) for k in (4, 2)]
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["heads"] == 6
    for row in second["rows"]:
        assert row["low"] <= row["speedup"] <= row["high"] and 0 < row["shrinkage"] < 1 and row["ms"] > 0
        s = row["no_attention"]
        assert row["limit"] == pytest.approx(1 / (row["k"] / 6 + (1 - row["k"] / 6) / s))
    assert {"model", "batch", "length", "no_attention", "versions", "machine"} <= second.keys()
    monkeypatch.setattr(sys, "argv", ["bench", *tiny[:-2], "--length", "8", "-o", str(tmp_path)])
    with pytest.raises(SystemExit):
        bench.main()
    assert "measured with other settings" in capsys.readouterr().err
