"""Token classification: words with tags, in files."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import DataCollatorForTokenClassification, PreTrainedModel

from kheads.lab.jobs.catalogue import TaggedFiles, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.rates import fine_tuning_rate
from kheads.storage import processors, sources
from kheads.tasks.outputs import NEW_PART, needs_labels
from kheads.tasks.special_tokens import check_fast
from kheads.tasks.tagging import TagTask, from_tag_files
from kheads.training.set_trainer import SetTrainer


def prepare(job: Job) -> Prepared:
    """Loads data, model and tokenizer; a model that knows the tags keeps their order."""
    task = load(job, sources.labels(job.model)).sample(job.max_train, job.max_eval, job.seed)
    model, trained = sources.token_classifier(job.model, **task.model_kwargs)
    return prepared(job, task, model, trained)


def prepare_evaluation(job: Job) -> Prepared:
    """Loads evaluation data and any model with a trained head, pruned or not; its tags count."""
    model = sources.trained_token_classifier(job.model)
    task = load(job, sources.labels_of(model.config, job.model)).sample(None, job.max_eval)
    if not task.meaning.able:
        raise ValueError(task.meaning.note)
    return prepared(job, task, model, trained=True)


def load(job: Job, named: Sequence[str]) -> TagTask:
    """Reads the files; `named` is what the model calls its outputs, in their order."""
    data: TaggedFiles = data_of(job.task, job.data)
    if not data.eval:
        raise ValueError("Give files of words and tags to train on and to evaluate (--train, --eval).")
    return from_tag_files(data.train, data.eval, data.columns, data.labels, named)


def prepared(job: Job, task: TagTask, model: PreTrainedModel, trained: bool) -> Prepared:
    """Puts a task, its data in tokens and a model together; `trained` if it has a trained head."""
    able = trained and task.meaning.able
    if not able and not task.labelled:
        raise needs_labels(job.data["train"], NEW_PART)
    words = processors.fitting_tokenizer(job.model, model)
    check_fast(words, job.model)
    encoded, cut = task.tokenize(words, job.max_length)
    remark = task.meaning.note
    return Prepared(
        model=model,
        processor=words,
        train=encoded.pop("train", None),
        evals=encoded,
        metric=task.metric,
        able=able,
        labelled=task.labelled,
        trainer_options={
            "data_collator": DataCollatorForTokenClassification(words),
            "compute_metrics": task.compute_metrics,
        },
        arguments={"learning_rate": fine_tuning_rate(model)},
        trainer_class=SetTrainer,
        notes=((remark,) if trained and remark else ()) + task.notes + cut,
        token_columns=("input_ids",),
    )
