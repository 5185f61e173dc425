"""The embedded task: inference by rule, made when it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kheads.lab.jobs import classification
from kheads.lab.jobs.base import Job, Prepared
from kheads.storage import sources
from kheads.tasks import ClassificationTask, from_rows
from kheads.tasks.made_nli import LABELS, generate

NAME = "made-nli"
EVALUATION = "unseen words"

# What `job.data` may hold, and what is taken where it does not.
OPTIONS = {"train_rows": 8000, "eval_rows": 1000, "seed": 0}

# What a small model learns in a few hundred steps; the generator knows more.
PHENOMENA = ("negation", "quantifiers", "frequency", "passive", "roles", "while")

# For the embedded model: a few hundred steps on fresh sentences are far from fitting them too well.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def prepare(job: Job) -> Prepared:
    """Makes the data. `job.data`: `train_rows`, `eval_rows`, and the `seed` of the data, which is not the run's."""
    options = _options(job.data)
    task = made_task(options["train_rows"], options["eval_rows"], options["seed"]).sample(
        job.max_train, job.max_eval, job.seed
    )
    calm = NO_DROPOUT if job.model == sources.EMBEDDED else {}
    return classification.prepared(job, task, sources.classifier(job.model, **task.model_kwargs, **calm))


def made_task(
    train_rows: int, eval_rows: int, seed: int, phenomena: Sequence[str] | None = PHENOMENA
) -> ClassificationTask:
    """The embedded task, from the generator."""
    rows = {
        split: [
            {"premise": example.premise, "hypothesis": example.hypothesis, "label": example.label}
            for example in generate(split, count, seed, phenomena)
        ]
        for split, count in (("train", train_rows), ("eval", eval_rows))
    }
    return from_rows(NAME, rows["train"], {EVALUATION: rows["eval"]}, labels=LABELS)


def _options(data: Mapping[str, Any]) -> dict[str, int]:
    given = {name: value for name, value in data.items() if value}  # the command line gives empty files
    for name, value in given.items():
        if name not in OPTIONS:
            raise ValueError(f"--task {NAME} has no data option {name!r}; it has {', '.join(OPTIONS)}.")
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"The data option `{name}` of --task {NAME} must be a whole number; got {value!r}.")
    return {**OPTIONS, **given}
