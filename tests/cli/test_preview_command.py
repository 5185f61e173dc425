"""kheads preview: what users type, what they see, and what is refused before minutes of work."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from command import call, place
from kheads.lab import preview as previews

__all__ = ["place"]

DATA = ("--train", "train.jsonl", "--eval", "matched=dev.jsonl", "--eval", "other=dev.jsonl", "--batch-size", "4")


def test_everything_at_once_and_the_command_runs(
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


def test_a_table_a_figure_and_the_command_last(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "preview", "tiny", *DATA, "--no-speed", "-k", "6", "--max-eval", "6") == 0
    told = capsys.readouterr().out
    assert "12 (all)" in told and "0 (limit)" in told and "●" in told and "╌" in told
    assert "accuracy on matched (6 examples)" in told and "1 point" in told
    assert told.strip().splitlines()[-1].startswith("kheads prune tiny -k 6 --train train.jsonl --eval matched=")


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
    ],
)
def test_refusals_come_before_the_work(
    words: tuple[str, ...],
    message: str,
    place: Path,
    fresh: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fresh("bert").base_model.save_pretrained(place / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (place / "bare" / name).write_bytes((place / "tiny" / name).read_bytes())
    monkeypatch.setattr(previews.Bench, "evaluate", None)
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
    monkeypatch.setattr(previews, "ready", sys.exit)
    assert call(monkeypatch, "preview", "tiny", *DATA, "-o", "page.html") == 2
    assert "needs plotly; install with: pip install 'kheads[report]'" in capsys.readouterr().err
