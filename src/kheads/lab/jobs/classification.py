"""Labelled texts: GLUE by name, or files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformers import DataCollatorWithPadding, PreTrainedModel

from kheads import tasks
from kheads.lab.jobs.catalogue import Glue, LabelledFiles, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.own_answers import answered
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.rates import fine_tuning_rate
from kheads.storage import processors, sources
from kheads.tasks import outputs


def prepare(job: Job) -> Prepared:
    """Loads data, model and tokenizer; a model that knows the labels keeps their order."""
    task = load(job, sources.labels(job.model)).sample(job.max_train, job.max_eval, job.seed)
    model, trained = sources.classifier(job.model, **task.model_kwargs)
    return prepared(job, task, model, trained)


def prepare_evaluation(job: Job) -> Prepared:
    """Loads evaluation data and any model with a trained head, pruned or not; its labels count."""
    return evaluated(job, load)


def evaluated(job: Job, find: Callable[[Job, Sequence[str]], tasks.ClassificationTask]) -> Prepared:
    """Puts a trained model together with the task that is found for it and what it calls its outputs."""
    model = sources.trained_classifier(job.model)
    task = find(job, sources.labels_of(model.config, job.model)).sample(None, job.max_eval)
    if not task.able:
        raise ValueError(task.remark)
    return prepared(job, task, model, trained=True)


def prepared(job: Job, task: tasks.ClassificationTask, model: PreTrainedModel, trained: bool) -> Prepared:
    """Puts a task, its data in tokens and a model together.

    Args:
        job: what to do.
        task: the data.
        model: the model.
        trained: whether it has a trained head, maybe for other labels.
    """
    able = trained and task.able
    if not able and not task.labelled:
        raise outputs.needs_labels(job.data["train"], outputs.NEW_PART)
    words = processors.fitting_tokenizer(job.model, model)
    encoded, collator = task.tokenize(words, job.max_length), DataCollatorWithPadding(words)
    evals = encoded.evals
    if task.compares:
        evals = {name: answered(model, rows, collator, task.is_regression) for name, rows in evals.items()}
    return Prepared(
        model=model,
        processor=words,
        train=encoded.train,
        evals=evals,
        metric=task.metric,
        able=able,
        labelled=task.labelled,
        trainer_options={"data_collator": collator, "compute_metrics": task.compute_metrics},
        arguments={"learning_rate": fine_tuning_rate(model)},
        notes=((task.remark,) if trained and task.remark else ()) + task.notes,
    )


def load(job: Job, named: Sequence[str]) -> tasks.ClassificationTask:
    """Finds the data: a GLUE task, or files.

    Args:
        job: what to do.
        named: what the model calls its outputs, in their order.
    """
    given = {key: value for key, value in job.data.items() if value}
    if job.task is not None:
        if given.keys() - {"labels"}:
            raise ValueError("Give a task by name (--task), or files (--train, --eval), not both.")
        return _glue(job.task, data_of(job.task, given), named)
    data: LabelledFiles = data_of(None, given)
    if not data.eval and data.train is None:
        raise ValueError("Give data: a task by name (--task), or files to train on and to evaluate (--train, --eval).")
    return tasks.from_files(data.train, data.eval, data.columns, data.labels, data.metric, named)


def _glue(name: str, data: Glue, named: Sequence[str]) -> tasks.ClassificationTask:
    words = tasks.GLUE[name].labels
    found = outputs.classes(words, named, data.labels) if words else outputs.score(named, data.labels)
    task = tasks.glue(name, labels=found.labels or None)
    return replace(task, able=found.able, remark=found.note)
