"""Extractive question answering: questions and contexts in files."""

from __future__ import annotations

import copy

from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from kheads.lab.jobs.catalogue import Questions, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.rates import fine_tuning_rate
from kheads.storage import processors, sources
from kheads.tasks.outputs import NEW_PART, needs_labels
from kheads.tasks.question_answering import METRIC, QuestionTask, Windows, from_question_files
from kheads.tasks.special_tokens import check_fast
from kheads.training.set_trainer import SetTrainer


def prepare(job: Job) -> Prepared:
    """Loads data, model and tokenizer."""
    task = load(job).sample(job.max_train, job.max_eval, job.seed)
    model, trained = sources.question_answerer(job.model)
    return prepared(job, task, model, trained)


def prepare_evaluation(job: Job) -> Prepared:
    """Loads evaluation data and any model with a trained head, pruned or not."""
    task = load(job).sample(None, job.max_eval)
    return prepared(job, task, sources.trained_question_answerer(job.model), trained=True)


def load(job: Job) -> QuestionTask:
    """Reads the files."""
    data: Questions = data_of(job.task, job.data)
    if not data.eval:
        raise ValueError("Give files of questions to train on and to evaluate (--train, --eval).")
    return from_question_files(data.train, data.eval, data.max_answer)


def prepared(job: Job, task: QuestionTask, model: PreTrainedModel, trained: bool) -> Prepared:
    """Puts a task, its windows in tokens and a model together; `trained` if it has a trained head."""
    data: Questions = data_of(job.task, job.data)
    if not trained and not task.labelled:
        raise needs_labels(job.data["train"], NEW_PART, "add `answers`")
    words = processors.fitting_tokenizer(job.model, model)
    check_fast(words, job.model)
    stride = job.max_length // 3 if data.stride is None else data.stride
    encoded = task.tokenize(Windows(words, job.max_length, stride))
    notes = task.notes(encoded)
    return Prepared(
        model=model,
        processor=words,
        train=encoded.pop("train", None),
        evals=encoded,
        metric=METRIC,
        able=trained,
        labelled=task.labelled,
        trainer_options={
            "data_collator": DataCollatorWithPadding(_padding_behind(words)),
            "compute_metrics": task.compute_metrics,
        },
        arguments={"learning_rate": fine_tuning_rate(model)},
        trainer_class=SetTrainer,
        notes=notes,
    )


def _padding_behind(words: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer with padding behind a window, so that the places of its tokens stay."""
    found = copy.deepcopy(words)
    found.padding_side = "right"
    return found
