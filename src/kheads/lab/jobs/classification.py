"""Labelled texts: GLUE by name, or files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import DataCollatorWithPadding, PreTrainedModel

from kheads import tasks
from kheads.lab.jobs.base import Job, Prepared
from kheads.storage import model_folder as checkpoint
from kheads.storage import sources

LEARNING_RATE = 2e-5


def prepare(job: Job) -> Prepared:
    """Loads data, model and tokenizer. `job.data`: `train` (a file), `eval` (files by name), `columns`."""
    task = load(job.task, job.data).sample(job.max_train, job.max_eval, job.seed)
    return prepared(job, task, sources.classifier(job.model, **task.model_kwargs))


def prepare_evaluation(job: Job) -> Prepared:
    """Loads evaluation data and a pruned model, whose labels count."""
    model: Any = checkpoint.load(job.model)
    labels = [model.config.id2label[index] for index in range(model.config.num_labels)]
    return prepared(job, load(job.task, job.data, labels).sample(None, job.max_eval), model)


def prepared(job: Job, task: tasks.ClassificationTask, model: PreTrainedModel) -> Prepared:
    """Puts a task, its data in tokens and a model together."""
    words = sources.tokenizer(job.model)
    encoded = task.tokenize(words, job.max_length)
    return Prepared(
        model=model,
        processor=words,
        train=encoded.train,
        evals=encoded.evals,
        metric=task.metric,
        trainer_options={"data_collator": DataCollatorWithPadding(words), "compute_metrics": task.compute_metrics},
        arguments={"learning_rate": LEARNING_RATE},
        notes=task.notes,
    )


def load(name: str | None, data: Mapping[str, Any], labels: Any = None) -> tasks.ClassificationTask:
    """Finds the data: a GLUE task, or files."""
    files = {key: value for key, value in data.items() if value}
    if name is not None:
        if files:
            raise ValueError("Give --task, or files with --train and --eval, not both.")
        return tasks.glue(name, labels=labels)
    if "eval" not in files:
        raise ValueError("Give data: --task NAME, or --train FILE and --eval FILE.")
    return tasks.from_files(files.get("train"), files["eval"], files.get("columns"), labels=labels)
