"""Labelled texts: GLUE by name, or files."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import DataCollatorWithPadding, PreTrainedModel

from kheads import tasks
from kheads.lab.jobs.catalogue import LabelledFiles, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.rates import fine_tuning_rate
from kheads.storage import sources


def prepare(job: Job) -> Prepared:
    """Loads data, model and tokenizer; a model that knows the labels keeps their order."""
    task = _in_order_of(job, load(job)).sample(job.max_train, job.max_eval, job.seed)
    model, able = sources.classifier(job.model, **task.model_kwargs)
    return prepared(job, task, model, able)


def prepare_evaluation(job: Job) -> Prepared:
    """Loads evaluation data and any model with a trained head, pruned or not; its labels count."""
    model = sources.trained_classifier(job.model)
    labels = sources.labels_of(model.config, job.model)
    task = load(job, labels if len(labels) > 1 else None)
    return prepared(job, task.sample(None, job.max_eval), model, able=True)


def prepared(job: Job, task: tasks.ClassificationTask, model: PreTrainedModel, able: bool = False) -> Prepared:
    """Puts a task, its data in tokens and a model together."""
    words = sources.fitting_tokenizer(job.model, model)
    encoded = task.tokenize(words, job.max_length)
    return Prepared(
        model=model,
        processor=words,
        train=encoded.train,
        evals=encoded.evals,
        metric=task.metric,
        able=able,
        trainer_options={"data_collator": DataCollatorWithPadding(words), "compute_metrics": task.compute_metrics},
        arguments={"learning_rate": fine_tuning_rate(model)},
        notes=task.notes,
    )


def load(job: Job, labels: Sequence[str] | None = None) -> tasks.ClassificationTask:
    """Finds the data: a GLUE task, or files."""
    given = {key: value for key, value in job.data.items() if value}
    if job.task is not None:
        if given:
            raise ValueError("Give a task by name (--task), or files (--train, --eval), not both.")
        return tasks.glue(job.task, labels=labels)
    data: LabelledFiles = data_of(None, given)
    if not data.eval:
        raise ValueError("Give data: a task by name (--task), or files to train on and to evaluate (--train, --eval).")
    return tasks.from_files(data.train, data.eval, data.columns, labels=labels)


def _in_order_of(job: Job, task: tasks.ClassificationTask) -> tasks.ClassificationTask:
    """The task with its labels in the model's order, where the model has the same ones."""
    known = sources.labels(job.model)
    same = sorted(word.lower() for word in known) == sorted(word.lower() for word in task.labels)
    if not same or [word.lower() for word in known] == [word.lower() for word in task.labels]:
        return task
    return load(job, known)
