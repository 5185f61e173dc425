"""The embedded task: inference by rule, made when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kheads.lab.jobs import classification
from kheads.lab.jobs.catalogue import MadeNli, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.storage import sources
from kheads.tasks import ClassificationTask, from_rows, outputs
from kheads.tasks.made_nli import LABELS, generate

NAME = "made-nli"
EVALUATION = "unseen words"

# What a small model learns in a few hundred steps; the generator knows more.
PHENOMENA = ("negation", "quantifiers", "frequency", "passive", "roles", "while")

# For the embedded model: a few hundred steps on fresh sentences are far from fitting them too well.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def prepare(job: Job) -> Prepared:
    """Makes the data and loads the model; one that knows the labels keeps their order."""
    task = _task(job, sources.labels(job.model)).sample(job.max_train, job.max_eval, job.seed)
    calm = NO_DROPOUT if job.model == sources.EMBEDDED else {}
    model, trained = sources.classifier(job.model, **task.model_kwargs, **calm)
    return classification.prepared(job, task, model, trained)


def prepare_evaluation(job: Job) -> Prepared:
    """Makes the data and loads a model with a trained head, whose labels count."""
    return classification.evaluated(job, _task)


def _task(job: Job, named: Sequence[str]) -> ClassificationTask:
    data: MadeNli = data_of(job.task, job.data)
    found = outputs.classes(LABELS, named, data.labels)
    task = made_task(data.train_rows, data.eval_rows, data.data_seed, labels=found.labels)
    return replace(task, able=found.able, remark=found.note)


def made_task(
    train_rows: int,
    eval_rows: int,
    seed: int,
    phenomena: Sequence[str] | None = PHENOMENA,
    labels: Sequence[str] = LABELS,
) -> ClassificationTask:
    """The embedded task, from the generator."""
    rows = {
        split: [
            {"premise": example.premise, "hypothesis": example.hypothesis, "label": example.label}
            for example in generate(split, count, seed, phenomena)
        ]
        for split, count in (("train", train_rows), ("eval", eval_rows))
    }
    return from_rows(NAME, rows["train"], {EVALUATION: rows["eval"]}, labels=labels)
