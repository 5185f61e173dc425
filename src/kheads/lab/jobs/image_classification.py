"""Image classification on folders of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel

from kheads import tasks
from kheads.lab.jobs.catalogue import ImageFolders, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.storage import processors, sources
from kheads.tasks import image_classification

LEARNING_RATE = 5e-5


def prepare(job: Job) -> Prepared:
    """Finds images, loads model and processor; a model that knows the classes keeps their order."""
    task = load(job, sources.labels(job.model)).sample(job.max_train, job.max_eval, job.seed)
    model, trained = sources.image_classifier(job.model, **task.model_kwargs)
    return prepared(job, task, model, trained)


def prepare_evaluation(job: Job) -> Prepared:
    """Finds images and loads a model with a trained head, pruned or not; its classes count."""
    model = sources.trained_image_classifier(job.model)
    task = load(job, sources.labels_of(model.config, job.model)).sample(None, job.max_eval)
    if not task.able:
        raise ValueError(task.remark)
    return prepared(job, task, model, trained=True)


def load(job: Job, named: Sequence[str]) -> tasks.ImageTask:
    """Finds the images; `named` is what the model calls its outputs, in their order."""
    data: ImageFolders = data_of(job.task, job.data)
    if not data.eval:
        raise ValueError("Give folders of images to train on and to evaluate (--train, --eval).")
    return tasks.image_folders(data.train, data.eval, data.labels, named)


def prepared(job: Job, task: tasks.ImageTask, model: PreTrainedModel, trained: bool) -> Prepared:
    """Puts a task, its images as the model sees them and a model together; `trained` if it has a trained head."""
    processor = processors.image_processor(job.model)
    task.check_images()
    mode = "L" if getattr(model.config, "num_channels", 3) == 1 else "RGB"

    def seen(images: Any) -> Any:
        return image_classification.ProcessedImages(images, processor, mode)

    return Prepared(
        model=model,
        processor=processor,
        train=None if task.train is None else seen(task.train),
        evals={name: seen(images) for name, images in task.evals.items()},
        metric=image_classification.METRIC,
        able=trained and task.able,
        trainer_options={"compute_metrics": image_classification.compute_metrics},
        arguments={"learning_rate": LEARNING_RATE, "train_sampling_strategy": "random"},
        notes=((task.remark,) if trained and task.remark else ()) + task.notes,
    )
