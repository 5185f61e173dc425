"""Checkpoints: sealed when they are whole; a run goes on from the newest whole one, to the same end or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kheads import DSP, STE, prune
from kheads.training.asked import OtherRunError
from kheads.training.checkpoints import SEAL, CheckpointsError, fault, newest_checkpoint, rotate
from kheads.training.plan import Plan
from kheads.training.trainer import GatedTrainer
from small_runs import arguments, data

Fresh = Callable[[str], Any]
SAVING: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6, "logging_steps": 1}
FILES = ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]


def run(model: Any, folder: Path, method: Any = None, k: int = 3, resume: bool = True, **changes: Any) -> Any:
    args = arguments(folder, **{**SAVING, **changes})
    return prune(model, k, method or DSP(), data("bert"), data("bert", 4), args, plan=Plan(resume=resume))


def harm(path: Path, way: str) -> None:
    content = bytearray(path.read_bytes())
    if way == "gone":
        path.unlink()
    elif way == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:  # as many bytes as before
        content[len(content) // 2] ^= 255
        path.write_bytes(content)


@pytest.fixture
def whole(fresh: Fresh, tmp_path: Path) -> Any:
    return run(fresh("bert"), tmp_path / "whole", resume=False)


@pytest.mark.parametrize("way", ["gone", "cut", "garbled"])
@pytest.mark.parametrize("name", FILES)
def test_whatever_happens_to_a_checkpoint_is_noticed(name: str, way: str, whole: Any, tmp_path: Path) -> None:
    folder = tmp_path / "whole" / "gates"
    assert newest_checkpoint(folder) == str(folder / "checkpoint-6")
    harm(folder / "checkpoint-6" / name, way)
    assert fault(folder / "checkpoint-6") == f"{name} is {'missing' if way == 'gone' else 'damaged'}"
    assert newest_checkpoint(folder) == str(folder / "checkpoint-4")


@pytest.mark.parametrize(
    "damage", [("optimizer.pt", "gone"), ("model.safetensors", "garbled"), (SEAL, "gone")], ids=str
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    damage: tuple[str, str], fresh: Fresh, whole: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "whole"
    harm(folder / "gates" / "checkpoint-6" / damage[0], damage[1])
    again = run(fresh("bert"), folder)
    assert torch.equal(again.scores, whole.scores) and again.metrics == whole.metrics
    assert again.history == whole.history and again.report["remarks"] == whole.report["remarks"]
    assert "cannot be used, because" in capsys.readouterr().err
    assert (folder / "gates" / "damaged-6").is_dir() and fault(folder / "gates" / "checkpoint-6") is None


def test_with_no_whole_checkpoint_left_it_is_an_error(fresh: Fresh, whole: Any, tmp_path: Path) -> None:
    folder = tmp_path / "whole" / "gates"
    for checkpoint in folder.glob("checkpoint-*"):
        (checkpoint / "rng_state.pth").unlink()
    with pytest.raises(CheckpointsError, match=r"No checkpoint in .* can be used: in checkpoint-6 rng_state.pth"):
        run(fresh("bert"), tmp_path / "whole")
    assert len(list(folder.glob("checkpoint-*"))) == 3


def test_a_checkpoint_without_its_states_is_an_error(fresh: Fresh, tmp_path: Path) -> None:
    """Also one that another Trainer wrote, and that has no seal."""
    args = arguments(tmp_path, **SAVING)
    trainer: Any = GatedTrainer(model=fresh("bert"), args=args, train_dataset=data("bert"))
    trainer.train()
    checkpoint = tmp_path / "checkpoint-4"
    (checkpoint / SEAL).unlink()
    (checkpoint / "optimizer.pt").unlink()
    trainer = GatedTrainer(model=fresh("bert"), args=args, train_dataset=data("bert"))
    with pytest.raises(CheckpointsError, match=r"checkpoint-4 has no optimizer.pt, without which"):
        trainer.train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"learning_rate": 1e-2}, "`learning_rate` was 0.001 and is 0.01"),
        ({"seed": 1}, "`seed` was 0 and is 1"),
        ({"max_steps": 8}, "`max_steps` was 6 and is 8"),
        ({"k": 4}, "`k` was 3 and is 4"),
        ({"method": STE()}, "`method` was "),
        ({"model": 0}, "`model` is BertForSequenceClassification, whose content has changed"),
    ],
    ids=str,
)
def test_no_other_run_goes_on_from_a_checkpoint(
    changes: dict[str, Any], told: str, fresh: Fresh, whole: Any, tmp_path: Path
) -> None:
    model = fresh("bert")
    if "model" in changes:
        model.classifier.weight.data.zero_()
    with pytest.raises(OtherRunError, match=told):
        run(model, tmp_path / "whole", **{name: value for name, value in changes.items() if name != "model"})


def test_old_checkpoints_go_when_a_new_one_is_sealed(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        (tmp_path / f"checkpoint-{step}").mkdir()
    rotate(tmp_path, 2, (tmp_path / "checkpoint-4", str(tmp_path / "checkpoint-1")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "checkpoint-4"]
