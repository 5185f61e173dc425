"""The experiments' configs: each expands and builds, starts as its first line says, and runs for two steps."""

import gzip
import json
import shlex
import string
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from kheads import cli
from kheads.lab.sweep import Here, drive, expand

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
LABELS = ["entailment", "neutral", "contradiction"]

every_config = pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


@every_config
def test_the_command_of_the_first_line_shows_its_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --dry-run and without the machines it asks for."""
    runs = len(expand(load(path)).runs)
    command = shlex.split(path.read_text().splitlines()[0].removeprefix("#"))
    assert command[:2] == ["kheads", "sweep"] and command[2] == f"experiments/{path.name}"
    monkeypatch.chdir(path.parents[1])
    monkeypatch.setattr(sys, "argv", [*command, "--dry-run"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = " ".join(capsys.readouterr().out.split())  # lines may be broken anywhere
    assert not stop.value.code and f"{runs} runs into experiments/{path.stem}" in said


@every_config
def test_two_steps_of_every_series_run(path: Path, tmp_path: Path, fresh: Callable[[str], Any]) -> None:
    """The experiment with its methods and options on a tiny model and tiny data, at its smallest K."""
    config = small(load(path), tmp_path, fresh)
    status = drive(expand(config), tmp_path / "results", Here())
    methods = {method for grid in config["grid"] for method in grid["methods"]}
    assert status.reasons == {} and status.count("done") == len(status.runs) >= len(methods)


def small(config: dict[str, Any], place: Path, fresh: Callable[[str], Any]) -> dict[str, Any]:
    """One K, one seed and one value of every axis; two steps; made-up data."""
    grids = [{name: first(name, values) for name, values in grid.items()} for grid in config["grid"]]
    steps = {"max_steps": 2, "gate_steps": 2, "batch_size": 4, "estimate_examples": 8, "max_length": 32}
    data = DATA[config["job"].get("task")](config["job"], place, fresh)
    return {**config, "job": {**config["job"], **steps, **data}, "grid": grids}


def first(name: str, values: Any) -> Any:
    if isinstance(values, dict):
        return {key: inner[:1] for key, inner in values.items()}
    return values if name == "methods" else [min(values)] if name == "k" else values[:1]


def classified(job: dict[str, Any], place: Path, fresh: Callable[[str], Any]) -> dict[str, Any]:
    rows = [{"premise": WORDS[5 + i % 5], "hypothesis": WORDS[5 + i % 4], "label": LABELS[i % 3]} for i in range(12)]
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    file = str(place / "rows.jsonl")
    names = job.get("data", {}).get("eval", {"matched": file})
    return {"model": tiny_bert(place, fresh), "task": None, "data": {"train": file, "eval": dict.fromkeys(names, file)}}


def made(job: dict[str, Any], place: Path, fresh: Callable[[str], Any]) -> dict[str, Any]:
    return {"model": tiny_bert(place, fresh), "data": {"train_rows": 12, "eval_rows": 6}}


def translated(job: dict[str, Any], place: Path, fresh: Callable[[str], Any]) -> dict[str, Any]:
    """Every file is replaced by a small one of the same kind."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(inner) for name, inner in value.items()}
        if not isinstance(value, str) or "/" not in value:
            return value
        file = place / Path(value).name
        lines = "".join(f"{word} a b c d\n" for word in WORDS[5:] * 4)
        file.write_bytes(gzip.compress(lines.encode()) if file.suffix == ".gz" else lines.encode())
        return str(file)

    return {"model": "tiny", "data": {**replaced(job["data"]), "batch_tokens": 64, "beams": 2}}


def tiny_bert(place: Path, fresh: Callable[[str], Any]) -> str:
    letters = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
    (place / "vocab.txt").write_text("\n".join([*WORDS[:5], *letters]))
    fresh("bert").save_pretrained(place / "bert")
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place / "bert")
    return str(place / "bert")


DATA = {None: classified, "mnli": classified, "made-nli": made, "translation": translated}
