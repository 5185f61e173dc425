"""What tests of commands share: a way to call them, and a folder with a tiny model and data to call them in."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from kheads import cli

Fresh = Callable[[str], Any]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]


@pytest.fixture
def place(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny model, its tokenizer and data files, as working directory."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    fresh("bert").save_pretrained(tmp_path / "tiny")
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "tiny")
    labels = ["entailment", "neutral", "contradiction"]
    rows = [
        {"premise": " ".join(WORDS[5 + index % 5 :]), "hypothesis": WORDS[5 + index % 4], "label": labels[index % 3]}
        for index in range(24)
    ]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Runs the command and returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["kheads", *words])
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


TRAIN = ("--train", "train.jsonl", "--eval", "matched=dev.jsonl", "--max-steps", "2", "--batch-size", "4")
