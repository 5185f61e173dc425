"""Masked language modelling on text files."""

from __future__ import annotations

from dataclasses import replace

from kheads.lab.jobs.catalogue import MaskedText, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.language_modelling import check_positions
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.rates import fine_tuning_rate
from kheads.storage import processors, sources
from kheads.tasks import masked_modelling
from kheads.tasks.language_modelling import METRIC
from kheads.tasks.masking import MaskingCollator, masking_of


def prepare(job: Job) -> Prepared:
    """Loads text, model and tokenizer."""
    data: MaskedText = data_of(job.task, job.data)
    if not data.eval:
        raise ValueError("Give text files to train on and to evaluate (--train, --eval).")
    words = processors.tokenizer(job.model)
    masking = masking_of(words, data.masked)  # of seed 0: what runs are judged by is not theirs
    task = masked_modelling.masked_blocks(data.train, data.eval, words, job.max_length)
    task = masked_modelling.with_hidden(task.sample(job.max_train, job.max_eval, job.seed), masking)
    model = sources.masked_language_model(job.model)
    processors.check_embeddings(job.model, model, words)
    check_positions(model, task)
    return Prepared(
        model=model,
        processor=words,
        train=task.train,
        evals=task.evals,
        metric=METRIC,
        able=True,
        lower_is_better=True,
        trainer_options={
            "data_collator": MaskingCollator(replace(masking, seed=job.seed)),
            "compute_metrics": masked_modelling.compute_metrics,
            "preprocess_logits_for_metrics": masked_modelling.hidden_log_probabilities,
        },
        arguments={
            "learning_rate": fine_tuning_rate(model),
            "train_sampling_strategy": "random",  # blocks are of equal length
            # The logits of a batch are large, so an evaluation takes no more examples at once than training does.
            "per_device_eval_batch_size": max(1, job.batch_size // job.accumulate),
        },
        notes=task.notes,
    )
