"""A method that is not ours works like one of ours: the example of the docs, in a file outside the package."""

import json
import shutil
from pathlib import Path

import pytest

from command import TRAIN, call, place

__all__ = ["place"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"
MINE = "own_method:Magnitude"


@pytest.fixture
def toy(place: Path) -> Path:
    shutil.copy(EXAMPLE, place / "own_method.py")
    return place


def test_it_goes_through_prune_with_its_hyperparameter(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--method", MINE, "--set", "power=1", "--trained")
    assert call(monkeypatch, "prune", "tiny", "-k", "5", *words, *TRAIN, "-o", "out") == 0
    assert "5 of 12 heads" in capsys.readouterr().out
    record = json.loads((toy / "out" / "result.json").read_text())
    assert record["method"] == {"name": MINE, "power": 1.0} and record["look"]["label"] == "Magnitude"
    assert len(set(record["scores"])) == 12 and record["report"]["extra_gradients"] == 0
    assert call(monkeypatch, "prune", "tiny", "-k", "5", "--method", MINE, "--set", "powr=1", *TRAIN, "-o", "x") == 2
    assert "There is no option `powr`. Did you mean 'power'?" in capsys.readouterr().err
    assert call(monkeypatch, "methods", MINE) == 0
    assert "Which norm" in capsys.readouterr().out


def test_it_goes_through_sweep_and_report(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (toy / "few.toml").write_text(
        "[job]\nmodel = 'tiny'\nmax_steps = 2\nbatch_size = 4\n"
        "data = {train = 'train.jsonl', eval = {dev = 'dev.jsonl'}}\n"
        f"[methods.'{MINE}']\npower = 1\n"
        f"[grid]\nmethods = ['{MINE}', 'ste']\nk = [3, 5]\nseeds = [0]\n"
    )
    assert call(monkeypatch, "sweep", "few.toml") == 0
    names = sorted(path.stem for path in (toy / "few" / "runs").glob("*.json"))
    assert names == ["none-s0", "own_method_Magnitude-k3-s0", "own_method_Magnitude-k5-s0", "ste-k3-s0", "ste-k5-s0"]
    assert call(monkeypatch, "report", "few", "-o", "page.html") == 0
    page = (toy / "page.html").read_text()
    assert "Magnitude" in page and "#7570b3" in page
    capsys.readouterr()
