"""Image classification on folders of images."""

from __future__ import annotations

from typing import Any

from kheads import tasks
from kheads.lab.jobs.base import Job, Prepared
from kheads.storage import sources
from kheads.tasks import image_classification

LEARNING_RATE = 5e-5


def prepare(job: Job) -> Prepared:
    """Finds images, loads model and processor.

    `job.data`: `train` (a folder; None to evaluate only), `eval` (folders by name).
    """
    if not job.data.get("eval"):
        raise ValueError("Give folders of images: --train FOLDER and --eval FOLDER.")
    task = tasks.image_folders(job.data.get("train"), job.data["eval"], sources.labels(job.model))
    task = task.sample(job.max_train, job.max_eval, job.seed)
    processor = sources.image_processor(job.model)
    model, remark = sources.image_classifier(job.model, **task.model_kwargs)
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
        trainer_options={"compute_metrics": image_classification.compute_metrics},
        arguments={"learning_rate": LEARNING_RATE, "train_sampling_strategy": "random"},
        notes=((remark,) if remark else ()) + task.notes,
    )
