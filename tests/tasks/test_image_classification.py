"""Image classification: folders of images in, every method end to end, accuracy out; a stopped run goes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTImageProcessorPil

import kheads
from command import call
from kheads import METHODS, tasks
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs.job import Job
from kheads.storage import processors, sources
from kheads.tasks import image_classification
from kheads.training.trainer import GatedTrainer

Fresh = Callable[[str], Any]
CLASSES = ("bird", "cat", "dog")
DATA = ("--task", "image", "--train", "train", "--eval", "held=held")
STEPS = ("--max-steps", "2", "--batch-size", "4")


def make_images(folder: Path, classes: tuple[str, ...] = CLASSES, count: int = 4) -> None:
    generator = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = generator.integers(0, 255, (10, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.{'png' if index % 2 else 'jpg'}")


def save_vit(model: Any, folder: Path, labels: tuple[str, ...] | None = None) -> None:
    if labels:
        model.config.id2label = dict(enumerate(labels))
        model.config.label2id = {word: index for index, word in enumerate(labels)}
    model.save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 8, "width": 8}).save_pretrained(folder)


@pytest.fixture
def place(fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny ViT, its processor and images, as working directory."""
    save_vit(fresh("vit"), tmp_path / "vit")
    make_images(tmp_path / "train")
    make_images(tmp_path / "held", count=2)
    (tmp_path / "train" / "cat" / ".hidden").write_text("no image")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("method", METHODS)
def test_every_method_prunes_a_vision_model(
    method: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "prune", "vit", "-k", "5", "--method", method, *DATA, *STEPS, "-o", "out", "--json") == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    model: Any = kheads.load("out")
    assert told["after"]["heads"] == 5 == sum(site.count for site in kheads.discover(model))
    assert [model.config.id2label[index] for index in range(3)] == list(CLASSES)
    assert call(monkeypatch, "eval", "out", "--task", "image", "--eval", "held=held", "--json") == 0
    reached = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert reached == {"held": {"accuracy": told["metrics"]["pruned"]["held"]["accuracy"]}}


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ViT's checkpoints have the model's own parameter names, so that Trainer finds them again."""
    data = {"train": "train", "eval": {"held": "held"}}
    job = Job("vit", 5, method="dsp", task="image", data=data, max_steps=6, batch_size=4, save_steps=2)
    whole = jobs.run(job, place / "whole", quiet=True)
    step, calls = GatedTrainer.training_step, []

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(self.state.global_step)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    monkeypatch.setattr(GatedTrainer, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.run(job, place / "again", quiet=True)
    resumed = jobs.run(job, place / "again", resume=True, quiet=True)
    assert calls == [0, 1, 2, 3, 4, 4, 5]
    assert resumed.record["scores"] == whole.record["scores"] and resumed.kept == whole.kept
    one, other = (kheads.load(place / name).state_dict() for name in ("whole", "again"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_model_keeps_the_order_of_its_classes(place: Path, fresh: Fresh) -> None:
    """A trained model's outputs mean what its config says, whatever order the folders have."""
    save_vit(fresh("vit"), place / "known", ("dog", "bird", "cat"))
    task = tasks.image_folders("train", {"held": "held"}, outputs=sources.labels("known"))
    assert task.labels == ("dog", "bird", "cat") and task.train and task.able and not task.remark
    assert [path.parent.name for path in task.train.paths] == [task.labels[label] for label in task.train.labels]
    assert tasks.image_folders("train", {"held": "held"}, outputs=sources.labels("vit")).labels == CLASSES
    said = tasks.image_folders("train", {"held": "held"}, labels=("cat", "dog", "bird"), outputs=sources.labels("vit"))
    assert said.labels == ("cat", "dog", "bird") and said.able and not said.remark


def test_a_model_for_other_classes_gets_a_new_last_layer(place: Path, fresh: Fresh) -> None:
    make_images(place / "two", ("yes", "no"))
    prepared = jobs.prepare(Job("vit", task="image", data={"train": "two", "eval": {"held": "two"}}))
    assert prepared.model.config.num_labels == 2 and not prepared.able
    assert "its outputs are 'LABEL_0', 'LABEL_1', 'LABEL_2', and the data has 'no', 'yes'" in prepared.notes[0]
    before, after = fresh("vit").state_dict(), prepared.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("classifier"))


def test_images_of_every_kind_reach_the_model_alike(place: Path) -> None:
    """Grey, transparent and palette images become RGB, and a camera's rotation is undone."""
    folder = place / "train" / "cat"
    picture = Image.open(folder / "1.png")
    for mode in ("L", "P", "RGBA", "LA", "1"):
        picture.convert(mode).save(folder / f"{mode}.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    picture.rotate(90, expand=True).save(folder / "side.png", exif=exif)
    images = image_classification.ImageSet(tuple(sorted(folder.glob("*.png"))), (0,) * 8)
    seen = image_classification.ProcessedImages(images, processors.image_processor("vit"))
    assert {tuple(seen[index]["pixel_values"].shape) for index in range(len(images.paths))} == {(3, 8, 8)}
    assert image_classification.read_image(folder / "side.png").tobytes() == picture.tobytes()


def test_sampled_images_depend_on_the_seed_alone(place: Path) -> None:
    task = tasks.image_folders("train", {"held": "held"})
    few, same, other = (task.sample(5, 3, seed) for seed in (0, 0, 1))
    assert few.train == same.train != other.train and few.train and len(few.train) == 5
    assert few.notes[0] == "train: 5 of 12 images, drawn at random with seed 0."
    assert task.notes == ()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda place: (place / "train/cat/0.jpg").write_bytes(b"no"), "train/cat/0.jpg cannot be read as an image"),
        (lambda place: _cut(place / "train/dog/0.jpg"), "train/dog/0.jpg cannot be read as an image"),
        (lambda place: _cut(place / "held/bird/1.png"), "held/bird/1.png cannot be read as an image"),
        (lambda place: (place / "train/notes.txt").write_text("x"), "train/notes.txt lies outside the subfolders"),
        (lambda place: (place / "train/cow").mkdir(), "train/cow has no images; add some or remove it."),
        (lambda place: make_images(place / "held", ("cow",)), "held/cow is not one of the classes 'bird', 'cat'"),
        (lambda place: (place / "train").rename(place / "away"), "train does not exist; give a folder"),
        (lambda place: (place / "vit/preprocessor_config.json").unlink(), "vit has no image processor"),
    ],
)
def test_bad_folders_end_in_one_sentence(
    harm: Callable[[Path], Any],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    harm(place)
    assert call(monkeypatch, "prune", "vit", "-k", "5", *DATA, *STEPS, "-o", "x") == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1] and not (place / "x").exists()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-length", "9"), "`--max-length` does not belong to the task image; leave it out."),
        (("--column", "label=a"), "`--column` does not belong to the task image; it has train, eval, labels."),
    ],
)
def test_options_of_other_tasks_are_refused(
    words: tuple[str, ...],
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in (("prune", "vit", "-k", "5", "-o", "x", *DATA), ("eval", "vit", "--task", "image")):
        assert call(monkeypatch, *command, *words) == 2
        assert message in capsys.readouterr().err


def test_an_unpruned_model_can_be_evaluated_too(
    place: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_vit(fresh("vit"), place / "known", CLASSES)
    assert call(monkeypatch, "eval", "known", "--task", "image", "--eval", "held") == 0
    assert "accuracy" in capsys.readouterr().out
    assert call(monkeypatch, "eval", "vit", "--task", "image", "--eval", "held") == 0
    assert "kheads takes LABEL_0 as 'bird', LABEL_1 as 'cat', LABEL_2 as 'dog'" in capsys.readouterr().err
    save_vit(fresh("vit"), place / "other", ("a", "b", "c"))
    assert call(monkeypatch, "eval", "other", "--task", "image", "--eval", "held") == 2
    assert "held/bird is not one of the classes 'a', 'b', 'c'" in capsys.readouterr().err
