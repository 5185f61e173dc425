"""Nothing is lost: by another run, by --overwrite, by --resume with other settings, by a process that dies anywhere."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from command import call, place
from forked import Forked, forked
from kheads.storage import fingerprints
from kheads.training import trainer

__all__ = ["forked", "place"]

FILES = ("--train", "train.jsonl", "--eval", "matched=dev.jsonl", "--batch-size", "4")
SHORT = ("--max-steps", "6", "--set", "save_steps=2", "--set", "logging_steps=1")
RUN = ("prune", "tiny", "-k", "5", *FILES, "--fresh", *SHORT)
OUT = ("-o", "out")


@pytest.fixture
def cut(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run that was interrupted at its sixth step."""
    with monkeypatch.context() as patched:
        stop_at(5, lambda: signal.raise_signal(signal.SIGINT), patched)
        assert call(patched, *RUN, *OUT) == 130
    capsys.readouterr()
    return place


def stop_at(step: int, action: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    usual = trainer._BeforeStep.on_pre_optimizer_step

    def instead(self: Any, *args: Any, **kwargs: Any) -> None:
        usual(self, *args, **kwargs)
        if self.trainer.state.global_step == step:
            action()

    monkeypatch.setattr(trainer._BeforeStep, "on_pre_optimizer_step", instead)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def record(folder: Path) -> Any:
    """The record of a run without its durations."""
    return timeless(json.loads((folder / "out" / "result.json").read_text()))


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(found) for key, found in value.items() if not is_duration(key)}
    return [timeless(found) for found in value] if isinstance(value, list) else value


def is_duration(key: str) -> bool:
    return key == "seconds" or key.endswith(("_runtime", "_per_second"))


def test_a_working_folder_of_somebody_else_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "out.run").mkdir()
    (place / "out.run" / "thesis.txt").write_text("x")
    for words in ((), ("--resume",), ("--overwrite",)):
        assert call(monkeypatch, *RUN, *OUT, *words) == 2
        assert "out.run was not made by kheads, which keeps checkpoints there" in capsys.readouterr().err
    assert (place / "out.run" / "thesis.txt").exists()


def test_where_checkpoints_lie_the_user_decides(
    cut: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(cut)
    assert call(monkeypatch, *RUN, *OUT) == 2
    assert "give --resume to go on, or give --overwrite to start again" in capsys.readouterr().err
    assert snapshot(cut) == before
    assert call(monkeypatch, *RUN, *OUT, "--overwrite", "--seed", "1") == 0
    assert record(cut)["settings"]["seed"] == 1 and not (cut / "out.run").exists()


CHANGES = {
    ("-k", "4"): "`-k` was 5 and is 4",
    ("--seed", "3"): "`--seed` was 0 and is 3",
    ("--lr", "0.01"): "`--lr` was not given and is 0.01",
    ("--method", "ste"): "`--method` was dsp and is ste",
    ("--batch-size", "8"): "`--batch-size` was 4 and is 8",
    ("--max-steps", "8"): "`--max-steps` was 6 and is 8",
    ("--max-length", "16"): "`--max-length` was 128 and is 16",
    ("--max-train", "20"): "`--max-train` was not given and is 20",
    ("--recover-steps", "2"): "`--recover-steps` was 0 and is 2",
    ("--set", "noise=0.5"): "`noise` was not given and is 0.5",
    ("--set", "logging_steps=2"): "`--set logging_steps=...` was 1 and is 2",
    ("--min-per-site", "1"): "`--min-per-site` was not given and is 1",
    ("--eval", "other=train.jsonl"): "`--eval` (other) was not given and is train.jsonl",
}


def test_no_other_settings_go_on_from_checkpoints(
    cut: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each difference is named with both values; what cannot change the result may differ, and so may a path."""
    before = snapshot(cut)
    for words, told in CHANGES.items():
        assert call(monkeypatch, *RUN, *OUT, *words, "--resume") == 2
        assert told in capsys.readouterr().err
    lines = (cut / "train.jsonl").read_text().splitlines()
    (cut / "train.jsonl").write_text("\n".join(reversed(lines)))
    assert call(monkeypatch, *RUN, *OUT, "--resume") == 2
    assert "`--train` is train.jsonl, whose content has changed" in capsys.readouterr().err
    (cut / "train.jsonl").write_text("\n".join(lines) + "\n")
    assert snapshot(cut) == before
    shutil.copy("train.jsonl", "copy.jsonl")
    free = ("--train", "copy.jsonl", "--set", "save_steps=3", "--resume")
    assert call(monkeypatch, *RUN, *OUT, *free) == 0


def test_another_model_does_not_go_on_from_checkpoints(
    cut: Path, fresh: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fresh("bert")
    model.classifier.bias.data += 1
    model.save_pretrained("tiny")
    assert call(monkeypatch, *RUN, *OUT, "--resume") == 2
    assert "`MODEL` is tiny, whose content has changed" in capsys.readouterr().err


def test_a_complete_run_is_resumed_by_saying_so(
    cut: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *RUN, *OUT, "--resume") == 0
    before = snapshot(cut)
    capsys.readouterr()
    assert call(monkeypatch, *RUN, *OUT, "--resume") == 0
    said = capsys.readouterr()
    assert "out is complete already; nothing was left to do." in said.err and "5 of 12 heads" in said.out
    assert call(monkeypatch, *RUN, *OUT, "--resume", "--lr", "0.1") == 2
    assert "out belongs to another run: `--lr` was not given and is 0.1" in capsys.readouterr().err
    assert snapshot(cut) == before


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_request_to_end_works_like_ctrl_c(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = getattr(signal, name)
    usual = signal.getsignal(number)
    stop_at(1, lambda: os.kill(os.getpid(), number), monkeypatch)
    assert call(monkeypatch, *RUN, *OUT) == 128 + number
    assert f"Ended by {name}. Run the same command again, `kheads prune` with --resume" in capsys.readouterr().err
    assert signal.getsignal(number) == usual and not (place / "out").exists()


def test_what_is_read_is_never_the_output(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Model, data and config, also in a folder that kheads made, through a link, and with --overwrite."""
    assert call(monkeypatch, *RUN, *OUT) == 0
    (place / "link").symlink_to("out")
    (place / "out" / "run.toml").write_text("seed = 1\n")
    before = snapshot(place)
    model = ("prune", "out", "-k", "2", *FILES)
    for words in (
        (*model, "-o", "out"),
        (*model, "-o", "link"),
        (*RUN, "-o", "tiny"),
        (*RUN, "-o", "."),
        (*RUN, "-o", "out", "--config", "out/run.toml"),
        ("export", "out", "-o", "out"),
        ("export", "out", "-o", "tiny"),
    ):
        assert call(monkeypatch, *words, "--overwrite") == 2, words
        assert capsys.readouterr().err.strip().splitlines()[-1].startswith("kheads: ")
    assert snapshot(place) == before


def test_fingerprints_see_every_change(fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("one")
    first, alone = fingerprints.of_path(tmp_path), fingerprints.of_path(tmp_path / "a")
    (tmp_path / "a").write_text("two")
    assert fingerprints.of_path(tmp_path) != first and fingerprints.of_path(tmp_path / "a") != alone
    (tmp_path / "a").write_text("one")
    assert fingerprints.of_path(tmp_path) == first
    monkeypatch.setattr(fingerprints, "LARGE", 0)  # then by name, size and time
    large = fingerprints.of_path(tmp_path)
    os.utime(tmp_path / "a", ns=(1, 1))
    assert large not in (first, fingerprints.of_path(tmp_path))
    model = fresh("bert").to(torch.bfloat16)
    before = fingerprints.of_model(model)
    model.classifier.bias.data[0] += 1
    assert fingerprints.of_model(model) != before == fingerprints.of_model(fresh("bert").to(torch.bfloat16))


KINDS = {
    "joint": RUN,
    "pipelined": (*RUN, "--pipelined", "--set", "gate_steps=4"),
    "retrain": (*RUN, "--method", "retrain"),
    "recovery": (*RUN, "--recover-steps", "4", "--baseline"),
    "translation": (
        *("prune", "small", "-k", "8", "--task", "translation", "--set", "dataset=numbers", "--max-train", "60"),
        *("--max-eval", "4", "--max-steps", "6", "--set", "save_steps=2", "--set", "batch_tokens=256"),
        *("--set", "vocab_size=300", "--set", "beams=2", "--set", "logging_steps=1"),
    ),
}


def kill_and_resume(kind: str, count: int, last: int, place: Path, forked: Forked) -> None:
    """Kills a run before some of its changes to files, and compares what it then resumes to."""
    base = place.with_name(f"{place.name}-base")
    place.rename(base)
    shutil.copytree(base, place)
    whole = forked.run(place, *KINDS[kind], *OUT)
    assert whole["code"] == 0, whole["err"]
    expected, left = record(place), sorted(path.name for path in place.iterdir())
    changes = whole["changes"]
    points = random.Random(kind).sample(range(1, changes + 1), count)
    for number in sorted({*points, *range(changes + 1 - last, changes + 1)}):
        shutil.rmtree(place)
        shutil.copytree(base, place)
        assert forked.run(place, *KINDS[kind], *OUT, kill_at=number)["code"] == -signal.SIGKILL
        resumed = forked.run(place, *KINDS[kind], *OUT, "--resume")
        assert resumed["code"] == 0, (number, resumed["err"])
        assert record(place) == expected, number
        assert sorted(path.name for path in place.iterdir()) == left, number


@pytest.mark.parametrize("kind", ["joint", "recovery"])
def test_a_killed_run_ends_as_if_nothing_had_happened(kind: str, place: Path, forked: Forked) -> None:
    kill_and_resume(kind, 3, 1, place, forked)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_killed_anywhere_ends_as_if_nothing_had_happened(kind: str, place: Path, forked: Forked) -> None:
    """At 30 of its changes to files, and at each of the last 12: the last save, and the clean-up."""
    kill_and_resume(kind, 30, 12, place, forked)


def test_pages_and_packed_files_replace_only_their_like(
    place: Path, sweep: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (place / "train.jsonl").read_bytes()
    assert call(monkeypatch, "pack", str(sweep.folder), "-o", "train.jsonl", "--overwrite") == 2
    assert "was not packed by kheads and is not replaced" in capsys.readouterr().err
    pytest.importorskip("plotly")
    assert call(monkeypatch, "report", str(sweep.folder), "-o", "train.jsonl") == 2
    assert "exists and is no page of kheads; give another file" in capsys.readouterr().err
    assert (place / "train.jsonl").read_bytes() == before
    for _ in range(2):
        assert call(monkeypatch, "report", str(sweep.folder), "-o", "page.html") == 0
