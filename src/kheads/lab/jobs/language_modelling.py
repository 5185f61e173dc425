"""Language modelling on text files."""

from __future__ import annotations

from typing import Any

from kheads import tasks
from kheads.lab.jobs.catalogue import TextFiles, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.storage import processors, sources
from kheads.tasks import language_modelling

LEARNING_RATE = 5e-5


def prepare(job: Job) -> Prepared:
    """Loads text, model and tokenizer."""
    data: TextFiles = data_of(job.task, job.data)
    if not data.eval:
        raise ValueError("Give text files to train on and to evaluate (--train, --eval).")
    words = processors.tokenizer(job.model)
    task = tasks.text_blocks(data.train, data.eval, words, job.max_length)
    task = task.sample(job.max_train, job.max_eval, job.seed)
    model = sources.language_model(job.model)
    processors.check_embeddings(job.model, model, words)
    check_positions(model, task)
    return Prepared(
        model=model,
        processor=words,
        train=task.train,
        evals=task.evals,
        metric=language_modelling.METRIC,
        able=True,
        lower_is_better=True,
        trainer_options={
            "data_collator": language_modelling.collate,
            "compute_metrics": language_modelling.compute_metrics,
            "preprocess_logits_for_metrics": language_modelling.label_log_probabilities,
        },
        arguments={
            "learning_rate": LEARNING_RATE,
            "train_sampling_strategy": "random",  # blocks are of equal length
            # The logits of a batch are large, so an evaluation takes no more examples at once than training does.
            "per_device_eval_batch_size": max(1, job.batch_size // job.accumulate),
        },
        notes=task.notes,
    )


def check_positions(model: Any, task: tasks.LanguageTask) -> None:
    """Raises if a block has more tokens than the model has positions."""
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if most is not None and task.length > most:
        raise ValueError(f"`max_length` must be at most {most}, the model's positions; got {task.length}.")
