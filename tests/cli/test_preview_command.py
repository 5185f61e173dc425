"""kheads preview: what users type, what they see, and what is refused before minutes of work."""

import json
import shlex
import sys
from pathlib import Path

import pytest
import transformers

import kheads
from command import Fresh, call, place
from kheads import Kept
from kheads.lab.preview import reachable
from kheads.lab.preview import ready as readying
from kheads.training.bench import Bench

__all__ = ["place"]

DATA = ("--train", "train.jsonl", "--eval", "matched=dev.jsonl", "--eval", "other=dev.jsonl", "--batch-size", "4")
ONE = ("--train", "train.jsonl", "--eval", "dev=dev.jsonl", "--batch-size", "4")


def test_every_k_at_once_and_the_command_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON, as a page, and the command that it ends with makes the smaller model."""
    words = ("preview", "tiny", *DATA, "-k", "5", "-k", "2", "--set", "repair_examples=8", "--at", "2x4")
    assert call(monkeypatch, *words, "--at-most", "100", "--json", "-o", "page.html") == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["k"] for point in found["points"]] == [5, 2] and found["evaluation"] == "matched"
    assert set(found["unpruned"]) == {"matched", "other"} and found["timing"]["length"] == 4
    assert found["chosen"]["k"] == 2 and found["chosen"]["holds"] and found["page"] == "page.html"
    assert "kheads prune tiny -k 2 --train train.jsonl" in (place / "page.html").read_text()
    command = f"kheads prune tiny -k 2 {' '.join(DATA)} --set repair_examples=8 -o small"
    assert found["chosen"]["command"] == command
    assert call(monkeypatch, *shlex.split(command)[1:], "--max-steps", "2") == 0
    assert "2 of 12 heads" in capsys.readouterr().out and (place / "small" / "result.json").exists()


def test_a_table_of_k_a_figure_and_the_command_last(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "preview", "tiny", *DATA, "--no-speed", "-k", "6", "--max-eval", "6") == 0
    told = capsys.readouterr().out
    assert "12 (all)" in told and "0 (limit)" in told and "●" in told and "╌" in told
    assert "accuracy on matched (6 examples)" in told and "1 point" in told
    assert told.strip().splitlines()[-1].startswith("kheads prune tiny -k 6 --train train.jsonl --eval matched=")


def test_all_budgets_at_once_and_the_command_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("preview", "tiny", *ONE, "--no-speed", "--at-most", "100")
    assert call(monkeypatch, *words, "--json", "-o", "page.html") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["budgets"]) == 10 and {point["parts"] for point in found["points"]} == {"heads", "all"}
    chosen = found["chosen"]
    assert chosen["holds"] and chosen["parts"] == "all" and found["page"] == "page.html"
    assert chosen["command"].startswith("kheads prune tiny --smaller ") and "--parts" not in chosen["command"]
    assert call(monkeypatch, *shlex.split(chosen["command"])[1:], "--max-steps", "2") == 0
    assert " of 120 neurons" in capsys.readouterr().out and (place / "small" / "result.json").exists()


@pytest.mark.parametrize(
    ("words", "shown"),
    [((), ("● heads and neurons", "○ heads only")), (("--parts", "ffn"), ("● repaired", "○ right after the cut"))],
)
def test_a_table_of_budgets_a_figure_and_the_command_last(
    words: tuple[str, ...],
    shown: tuple[str, ...],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reachable, "WITHIN", 1)
    monkeypatch.setattr(reachable, "BEYOND", 2)
    assert call(monkeypatch, "preview", "tiny", *ONE, "--no-speed", *words) == 0
    told = capsys.readouterr().out
    assert all(text in told for text in ("unpruned", "limit", "╌", *shown))
    assert max(len(line) for line in told.splitlines() if line.startswith(("┃", "│"))) <= 80
    assert told.strip().splitlines()[-1].startswith("kheads prune tiny --smaller ")


@pytest.mark.parametrize("words", [(), ("--budgets", "flops"), ("--budgets", "speedup", "--at", "2x4"), ("-k", "1")])
def test_nothing_to_remove_is_said(
    words: tuple[str, ...],
    place: Path,
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = fresh("bert")
    kheads.remove(model, Kept(tuple((site.name, ()) for site in kheads.discover(model, parts="all"))))
    kheads.save(model, place / "hollow", tokenizer=transformers.AutoTokenizer.from_pretrained(place / "tiny"))
    assert call(monkeypatch, "preview", "hollow", *ONE, "--no-speed", *words) == 2
    assert "kheads: There is nothing to " in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("preview", "tiny", *DATA, "-k", "12"), "`-k` must be between 1 and 11, fewer than the model's 12 heads"),
        (("preview", "tiny", *DATA, "--at", "8"), "`--at` must be BATCHxTOKENS, such as 8x128; got '8'"),
        (("preview", "tiny", *DATA, "--at", "8x512"), "`--at` must name at most 40 tokens"),
        (("preview", "tiny", *DATA, "--at-most", "-1"), "`--at-most` must be a number from 0 up"),
        (("preview", "tiny", *DATA, "--method", "dsp"), "must score heads once for every K"),
        (("preview", "bare", *DATA), "bare has to be trained for it first; `kheads prune bare -k K` trains and prunes"),
        (("preview", "tiny", *DATA, "-o", "dev.jsonl"), "dev.jsonl exists and is no page of kheads"),
        (("preview", "tiny", "--eval", "dev.jsonl"), "give `--train` and `--eval`"),
        (("preview", "tiny"), "Give data"),
        (
            ("preview", "tiny", *ONE, "-k", "3", "--parts", "all"),
            "`-k` counts heads, and `--parts` is for budgets; give",
        ),
        (
            ("preview", "tiny", *ONE, "-k", "3", "--budgets", "flops"),
            "`-k` counts heads, and `--budgets` is for budgets",
        ),
        (
            ("preview", "tiny", *ONE, "--budgets", "ms"),
            "`--budgets` must be one of 'params', 'flops', 'speedup'; got 'ms'.",
        ),
        (("preview", "tiny", *ONE, "--parts", "layers"), "`--parts` must be one of 'heads', 'ffn', 'all'"),
        (
            ("preview", "tiny", *ONE, "--set", "smaller=0.3"),
            "`--smaller` has no effect here: a preview is of several budgets",
        ),
    ],
)
def test_refusals_come_before_the_work(
    words: tuple[str, ...],
    message: str,
    place: Path,
    fresh: Fresh,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fresh("bert").base_model.save_pretrained(place / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (place / "bare" / name).write_bytes((place / "tiny" / name).read_bytes())
    monkeypatch.setattr(Bench, "evaluate", None)
    before = {path: path.read_bytes() for path in place.iterdir() if path.is_file()}
    assert call(monkeypatch, *words) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert {path: path.read_bytes() for path in place.iterdir() if path.is_file()} == before


def test_a_page_needs_its_extra_before_any_work(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "plotly" else real(name, *rest)
    )
    monkeypatch.setattr(readying, "ready", sys.exit)
    assert call(monkeypatch, "preview", "tiny", *DATA, "-o", "page.html") == 2
    assert "needs plotly; install with: pip install 'kheads[report]'" in capsys.readouterr().err
