"""Nobody waits in silence: a bar on a terminal, a line now and then without one, nothing where quiet is asked for."""

import io
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from kheads.training import progress as showing
from kheads.training.callbacks import few_steps, is_guessing
from kheads.training.progress import Lines, clock_time, length, progress
from kheads.training.trainer import GatedTrainer
from small_runs import arguments, data

Fresh = Callable[[str], Any]


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(Lines.__init__, "__defaults__", (None, 0, clock))
    return clock


def slowly(items: Any, clock: Clock, seconds: float) -> Iterator[Any]:
    for item in items:
        yield item
        clock.now += seconds


def test_a_line_at_most_every_ten_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(slowly(range(30), clock, 4.0), "estimating", total=30)) == list(range(30))
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.splitlines()[:2] == [
        "estimating: 4 of 30, 1:18 left",
        "estimating: 7 of 30, 1:19 left",
    ]
    assert len(printed.err.splitlines()) == 9


def test_what_is_quick_or_quiet_says_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(slowly("abc", clock, 3.0), "reading")) == ["a", "b", "c"]
    assert list(progress(slowly("abc", clock, 300.0), "reading", quiet=True)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_without_a_known_end_it_counts(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    list(progress(slowly(range(1200), clock, 0.01), "reading"))
    assert capsys.readouterr().err.startswith("reading: 1,00")


def test_a_terminal_gets_a_bar(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert list(progress(slowly(range(3), clock, 60.0), "reading", total=3)) == [0, 1, 2]
    assert "reading:   0%|" in screen.getvalue() and "left" not in screen.getvalue()


def test_times_and_lengths() -> None:
    assert [clock_time(seconds) for seconds in (0.4, 7, 72, 7390)] == ["0:00", "0:07", "1:12", "2:03:10"]

    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    assert length(DataLoader(Endless())) is None and length([1, 2]) == 2 and length(iter(range(2))) == 2


class Slow(TrainerCallback):
    """Every step and every batch takes its time."""

    def __init__(self, clock: Clock, seconds: float):
        self.clock, self.seconds = clock, seconds

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.clock.now += self.seconds

    def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
        self.clock.now += self.seconds


def trainer(fresh: Fresh, folder: Path, **changes: Any) -> Any:
    settings = {"max_steps": 6, "logging_steps": 1, "per_device_eval_batch_size": 2, "disable_tqdm": False}
    args = arguments(folder, **{**settings, **changes})
    return GatedTrainer(model=fresh("bert"), args=args, train_dataset=data("bert"), quiet=True)


def test_training_without_a_terminal(
    fresh: Fresh, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = trainer(fresh, tmp_path)
    slow.callback_handler.callbacks.insert(0, Slow(clock, 6.0))
    slow.train()
    slow.predict(data("bert"))
    slow.evaluate(data("bert"))
    told = capsys.readouterr()
    lines = told.err.splitlines()
    loss = slow.state.log_history[0]["loss"]
    assert lines[0] == f"train: step 2 of 6, loss {loss:.3g}, 0:24 left"
    assert [line.partition(",")[0] for line in lines[1:3]] == ["train: step 4 of 6", "train: step 6 of 6"]
    assert lines[3:] == [f"evaluate: batch {batch} of 6, {left} left" for batch, left in ((3, "0:18"), (5, "0:06"))] * 2
    assert told.out == ""


def test_quiet_training_prints_nothing(
    fresh: Fresh, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = trainer(fresh, tmp_path, disable_tqdm=True)
    silent.callback_handler.callbacks.insert(0, Slow(clock, 60.0))
    silent.train()
    silent.predict(data("bert"))
    assert capsys.readouterr() == ("", "")


def test_a_terminal_keeps_trainers_bar(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kinds(folder: Path) -> list[type]:
        return [type(callback) for callback in trainer(fresh, folder).callback_handler.callbacks]

    assert ProgressCallback not in kinds(tmp_path)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert ProgressCallback in kinds(tmp_path) and PrinterCallback not in kinds(tmp_path)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "ipykernel", showing)  # a notebook draws bars of its own
    assert ProgressCallback in kinds(tmp_path)


# ------------------------------------------------------------------------------------------------ what cannot work


def doubted(fresh: Fresh, folder: Path, rate: float, steps: int = 60, **options: Any) -> GatedTrainer:
    """Trains a model that guesses at first on rows whose class is in plain sight."""
    model = fresh("bert")
    torch.nn.init.zeros_(model.classifier.weight)
    rows = data("bert", 48)
    for index, row in enumerate(rows):
        row["input_ids"][:] = 10 + 10 * (index % 3)
    args = arguments(folder, max_steps=steps, learning_rate=rate, lr_scheduler_type="constant")
    watched = GatedTrainer(model=model, args=args, train_dataset=rows, **options)
    watched.train()
    return watched


def test_few_steps_are_said_before_they_are_taken(
    fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doubted(fresh, tmp_path, 1e-3, steps=3).remarks == [few_steps(3)]
    told = capsys.readouterr().err
    assert told == few_steps(3) + "\n" and "only 3 steps" in told and "--max-steps" in told
    assert doubted(fresh, tmp_path, 1e-3, steps=3, quiet=True).remarks == [few_steps(3)]
    assert capsys.readouterr().err == ""


def test_a_loss_that_stays_that_of_guessing_is_said(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kheads.training.callbacks.FEWEST_STEPS", 0)
    (remark,) = doubted(fresh, tmp_path, 1e-8).remarks
    assert capsys.readouterr().err == remark + "\n"
    assert remark.startswith("After 20 of 60 steps the loss is 1.") and "guessing among 3 classes" in remark
    assert "raise the learning rate (now 1e-08)" in remark
    assert doubted(fresh, tmp_path, 1e-3).remarks == []


def test_what_counts_as_guessing() -> None:
    for classes in (2, 3, 77):
        assert is_guessing(math.log(classes), classes) and is_guessing(1.02 * math.log(classes), classes)
        assert not is_guessing(0.95 * math.log(classes), classes)
    assert not is_guessing(0.0, 1)


def test_nothing_is_said_of_losses_that_are_not_of_classes(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores and tokens: the logarithm of a number of classes means nothing there."""
    monkeypatch.setattr("kheads.training.callbacks.FEWEST_STEPS", 0)
    monkeypatch.setattr("kheads.training.callbacks.is_guessing", lambda loss, classes: True)
    scores = [{**row, "labels": row["labels"].float()} for row in data("bert")]
    scorer = fresh("bert")
    scorer.config.problem_type, scorer.config.num_labels, scorer.num_labels = "regression", 1, 1
    scorer.classifier = torch.nn.Linear(scorer.config.hidden_size, 1)
    for model, rows in ((scorer, scores), (fresh("gpt2"), data("gpt2"))):
        args = arguments(tmp_path, max_steps=30)
        if model is not scorer:
            rows = [{**row, "labels": row["input_ids"]} for row in rows]
        watched = GatedTrainer(model=model, args=args, train_dataset=rows)
        watched.train()
        assert watched.remarks == []
