"""Image classification: folders of images, one subfolder for each class; the metric is accuracy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

from kheads.tasks.files import DataError, gist, listed
from kheads.tasks.outputs import Meaning, classes
from kheads.tasks.sampling import check_limits, draw
from kheads.training.progress import progress

if TYPE_CHECKING:
    from transformers import EvalPrediction

METRIC = "accuracy"
# A model sees a few hundred pixels a side, but an image is read whole before it is made smaller, and that takes about
# 17 bytes a pixel. A small file can claim any size.
MOST_PIXELS = 50_000_000

# Turns an image into the model's inputs, each with a batch axis of one.
Processor = Callable[..., Mapping[str, Tensor]]


@dataclass(frozen=True)
class ImageSet:
    """Images with their classes, as paths."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, chosen: Sequence[int] | np.ndarray) -> ImageSet:
        """The images at these places."""
        return ImageSet(tuple(self.paths[index] for index in chosen), tuple(self.labels[index] for index in chosen))


class ProcessedImages(Dataset[dict[str, Tensor]]):
    """An image set as a model sees it; images are read when they are asked for."""

    def __init__(self, images: ImageSet, processor: Processor, mode: str = "RGB"):
        self.images, self.processor, self.mode = images, processor, mode

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        image = read_image(self.images.paths[index], self.mode)
        inputs = self.processor(images=image, return_tensors="pt")
        return {**{name: value[0] for name, value in inputs.items()}, "labels": torch.tensor(self.images.labels[index])}


@dataclass(frozen=True)
class ImageTask:
    """Images to train and evaluate on.

    Attributes:
        labels: the classes; a class's number is its place here.
        train: training images; None to evaluate only.
        evals: evaluation sets by name.
        totals: how many images each set had before `sample`.
        seed: what `sample` drew with; None if it was not called.
        able: whether a model's outputs, as it was said what they are called, are the classes already.
        remark: what was taken for granted of those outputs, or why they are not the classes; may be empty.
    """

    labels: tuple[str, ...]
    train: ImageSet | None
    evals: dict[str, ImageSet]
    totals: dict[str, int] = field(default_factory=dict)
    seed: int | None = None
    able: bool = False
    remark: str = ""

    @property
    def model_kwargs(self) -> dict[str, Any]:
        """What `AutoModelForImageClassification.from_pretrained` needs to know of the task."""
        return {
            "num_labels": len(self.labels),
            "id2label": dict(enumerate(self.labels)),
            "label2id": {word: index for index, word in enumerate(self.labels)},
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data, in sentences for the user."""
        sets = {"train": self.train, **self.evals}
        return tuple(
            f"{name}: {len(sets[name] or ())} of {total} images, drawn at random with seed {self.seed}."
            for name, total in self.totals.items()
            if len(sets[name] or ()) < total
        )

    def sample(self, max_train: int | None = None, max_eval: int | None = None, seed: int = 0) -> ImageTask:
        """Returns the task with random subsets of its images; the same seed gives the same images."""
        check_limits(max_train, max_eval)
        evals = {name: images.select(draw(len(images), max_eval, seed)) for name, images in self.evals.items()}
        train = None if self.train is None else self.train.select(draw(len(self.train), max_train, seed))
        return replace(self, train=train, evals=evals, seed=seed)

    def check_images(self, quiet: bool = False) -> None:
        """Reads every image once, so that a broken one is named before training and not in the middle of it."""
        sets = [images for images in (self.train, *self.evals.values()) if images is not None]
        paths = [path for images in sets for path in images.paths]
        with ThreadPoolExecutor() as pool:
            for _ in progress(pool.map(_check_image, paths), "checking images", len(paths), quiet):
                pass


def image_folders(
    train: str | Path | None,
    evals: Mapping[str, str | Path],
    labels: Sequence[str] | None = None,
    outputs: Sequence[str] = (),
) -> ImageTask:
    """Finds the images of a task: folders with one subfolder for each class.

    Hidden files are skipped; every other file must be an image.

    Args:
        train: the folder of the training images; None to evaluate only.
        evals: the folders of the evaluation images, by name.
        labels: the classes in the order of the model's outputs; by default those of the training folder, sorted.
        outputs: what a trained model calls its outputs, in their order. Where they are the classes, in any case, their
            order counts; where they have no names (LABEL_0, ...), they are taken for the classes, sorted.
    """
    if "train" in evals:
        raise ValueError("An evaluation set cannot be called 'train'; give it another name.")
    found = _meaning(train, evals, labels, outputs)
    sets = {name: _image_set(Path(path), found) for name, path in evals.items()}
    trained = None if train is None else _image_set(Path(train), found)
    totals = {} if trained is None else {"train": len(trained)}
    totals |= {name: len(images) for name, images in sets.items()}
    return ImageTask(found.labels, trained, sets, totals, able=found.able, remark=found.note)


def _meaning(
    train: str | Path | None,
    evals: Mapping[str, str | Path],
    labels: Sequence[str] | None,
    outputs: Sequence[str],
) -> Meaning:
    """The classes in the order of the model's outputs; training shows every class, evaluation need not."""
    folders = evals.values() if train is None else (train,)
    words = list(dict.fromkeys(place.name for folder in folders for place in _class_folders(Path(folder))))
    if train is not None and labels is None and len(words) < 2:
        raise DataError(f"{train} must have a subfolder for each of two or more classes; got {listed(words)}.")
    return classes(words, outputs, labels, every=train is not None)


def read_image(path: Path, mode: str = "RGB") -> Image.Image:
    """Reads an image upright, as a camera's note in the file says, in the model's colours."""
    with _opened(path) as image:
        return ImageOps.exif_transpose(image).convert(mode)


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy, as the Trainer's `compute_metrics`; NaN for a model that has diverged."""
    outputs = prediction.predictions
    logits = np.asarray(outputs[0] if isinstance(outputs, tuple) else outputs)
    if np.isnan(logits).any():
        return {METRIC: float("nan")}
    return {METRIC: float((logits.argmax(axis=1) == prediction.label_ids).mean())}


def _class_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}; give a folder with a subfolder of images for each class.")
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in entries:
        if not path.is_dir():
            raise DataError(f"{path} lies outside the subfolders of the classes; move it into one or remove it.")
    if not entries:
        raise DataError(f"{folder} is empty; give a folder with a subfolder of images for each class.")
    return entries


def _image_set(folder: Path, known: Meaning) -> ImageSet:
    found: list[tuple[Path, int]] = []
    for place in _class_folders(folder):
        number = known.place(place.name)
        if number is None:
            raise DataError(f"{place} is not one of the classes {listed(known.labels)}; rename it or remove it.")
        paths = sorted(path for path in place.rglob("*") if path.is_file() and not path.name.startswith("."))
        if not paths:
            raise DataError(f"{place} has no images; add some or remove it.")
        found += [(path, number) for path in paths]
    return ImageSet(tuple(path for path, _ in found), tuple(label for _, label in found))


def _check_image(path: Path) -> None:
    with _opened(path) as image:
        image.draft("RGB", (1, 1))  # a JPEG is then read whole, but decoded small
        image.load()


def _check_pixels(path: Path, size: tuple[int, int]) -> None:
    """Refuses an image by what its header says, before anything is decoded."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise DataError(
            f"{path} has {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are read, so make it smaller or remove "
            "it."
        )


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is stricter
            opened = Image.open(path)
        with opened as image:
            _check_pixels(path, image.size)
            yield image
    except DataError:
        raise
    except Exception as error:  # damaged files end in errors of many kinds
        raise DataError(f"{path} cannot be read as an image ({gist(error)}); replace it or remove it.") from error
