"""Image classification on folders of images."""

from __future__ import annotations

from typing import Any

from kheads import tasks
from kheads.lab.jobs.catalogue import ImageFolders, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.storage import sources
from kheads.tasks import image_classification

LEARNING_RATE = 5e-5


def prepare(job: Job) -> Prepared:
    """Finds images, loads model and processor."""
    data: ImageFolders = data_of(job.task, job.data)
    if not data.eval:
        raise ValueError("Give folders of images to train on and to evaluate (--train, --eval).")
    task = tasks.image_folders(data.train, data.eval, sources.labels(job.model))
    task = task.sample(job.max_train, job.max_eval, job.seed)
    processor = sources.image_processor(job.model)
    model, able, remark = sources.image_classifier(job.model, **task.model_kwargs)
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
        able=able,
        trainer_options={"compute_metrics": image_classification.compute_metrics},
        arguments={"learning_rate": LEARNING_RATE, "train_sampling_strategy": "random"},
        notes=((remark,) if remark else ()) + task.notes,
    )
