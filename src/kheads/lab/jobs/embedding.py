"""Embeddings: a smaller encoder that gives those of the original, on texts without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import DataCollatorWithPadding

from kheads.lab.jobs.catalogue import Sentences, data_of
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.rates import fine_tuning_rate
from kheads.methods.registry import UNPRUNED
from kheads.storage import processors, sources
from kheads.storage.embedder import Embedder
from kheads.tasks import embedding
from kheads.training.dropout import without_dropout
from kheads.training.embedding import PAIR, SCORE, EmbeddingTrainer, Original

# Exact targets, and no dropout: a rate at which classes would no longer be learned. Measured in experiments/LOG.md.
FASTER = 8


def prepare(job: Job) -> Prepared:
    """Loads texts, model and tokenizer; the model as it is given is the original, unless another one is named."""
    data: Sentences = data_of(job.task, job.data)
    _check(job, data)
    task = embedding.from_files(data.train, data.eval, data.columns).held_out(job.seed)
    model, embedder, words = _loaded(job.model, data)
    original = Original(model, embedder) if data.original is None else _other(data.original, model, embedder, words)
    return _prepared(job, data, task.sample(job.max_train, job.max_eval, job.seed), (model, embedder, words), original)


def prepare_evaluation(job: Job) -> Prepared:
    """Loads evaluation texts and a model, pruned or not; its cosine to the original needs that one to be named."""
    data: Sentences = data_of(job.task, job.data)
    if not data.eval:
        raise ValueError("Give texts to evaluate on (--eval).")
    task = embedding.from_files(None, data.eval, data.columns).sample(None, job.max_eval)
    bare = [name for name, found in task.evals.items() if found.scores is None]
    if bare and data.original is None:
        raise ValueError(
            f"The set {bare[0]!r} has no scored pairs, so its embeddings can only be compared with the original's; "
            "name that one with --set original=FOLDER, or give pairs with a score."
        )
    model, embedder, words = _loaded(job.model, data)
    original = None if data.original is None else _other(data.original, model, embedder, words)
    return _prepared(job, data, task, (model, embedder, words), original)


def _check(job: Job, data: Sentences) -> None:
    if data.train is None:
        raise ValueError("Give texts to learn from (--train): .txt with one a line, or a table; no labels are needed.")
    if job.fresh:
        raise ValueError(
            "`fresh` trains a model anew, and the task embed follows the model as it is; leave it out. In a sweep say "
            "`trained = true`."
        )
    if job.method == UNPRUNED and not job.trained:
        raise ValueError("With all heads there is nothing to learn from the model itself; name a method or a budget.")


def _prepared(
    job: Job,
    data: Sentences,
    task: embedding.EmbeddingTask,
    parts: tuple[Any, Embedder, Any],
    original: Original | None,
) -> Prepared:
    model, embedder, words = parts
    without_dropout(model)
    evals = {
        name: embedding.encoded_evaluation(texts, embedder, words, job.max_length) for name, texts in task.evals.items()
    }
    return Prepared(
        model=model,
        processor=words,
        train=None if task.train is None else embedding.encoded(task.train, embedder, words, job.max_length),
        evals=evals,
        metric=task.metric,
        able=True,
        trainer_options={
            "data_collator": DataCollatorWithPadding(words),
            "compute_metrics": embedding.compute_metrics,
            "embedder": embedder,
            "original": original,
            "distance": data.distance,
        },
        arguments={"learning_rate": FASTER * fine_tuning_rate(model), "label_names": [PAIR, SCORE]},
        trainer_class=EmbeddingTrainer,
        notes=task.notes,
    )


def _loaded(source: str, data: Sentences) -> tuple[Any, Embedder, Any]:
    """The bare encoder, how it gives embeddings, and its tokenizer."""
    found = sources.sentence_folder(source)
    if found is None:
        if data.pooling is None:
            raise ValueError(
                f"{source} has no files of sentence-transformers that say how it gives embeddings; say it with "
                "--pooling mean or --pooling cls."
            )
        embedder = Embedder(data.pooling, bool(data.normalise))
    else:
        embedder = found.embedder
        for name in ("pooling", "normalise"):
            asked, said = getattr(data, name), getattr(embedder, name)
            if asked not in (None, said):
                raise ValueError(f"`{name}` is {said} in the files of {source}; leave it out, or change them.")
    place = source if found is None or not found.place else str(_inside(source, found.place))
    model = sources.encoder(place)
    return model, embedder, processors.fitting_tokenizer(place, model)


def _inside(source: str, place: str) -> Path:
    folder = Path(sources.resolve(source))
    if not folder.is_dir():
        raise ValueError(f"{source} keeps its transformer in {place}; download it, and give the folder.")
    return folder / place


def _other(source: str, model: Any, embedder: Embedder, words: Any) -> Original:
    """Another model as the original: the embeddings of both must be comparable."""
    found, theirs, tokenizer = _loaded(source, Sentences(pooling=embedder.pooling, normalise=embedder.normalise))
    if found.config.hidden_size != model.config.hidden_size:
        widths = f"{found.config.hidden_size} numbers, those of the model {model.config.hidden_size}"
        raise ValueError(f"The embeddings of the original {source} have {widths}; name the model that it came from.")
    if tokenizer.get_vocab() != words.get_vocab():
        raise ValueError(f"The original {source} has another tokenizer; name the model that this one came from.")
    return Original(found, theirs)
