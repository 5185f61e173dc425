"""Sentence classification and scoring: GLUE by name, any files, or rows made in memory; data, labels, metric."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
from datasets import Dataset
from transformers import EvalPrediction, PreTrainedTokenizerBase

from kheads.tasks.files import DataError, Table, gist, listed, quoted, read_table, stem, tabulate
from kheads.tasks.sampling import check_limits, draw

# What a headline metric is reported with.
METRICS: dict[str, tuple[str, ...]] = {
    "accuracy": ("accuracy",),
    "f1": ("f1", "accuracy"),
    "matthews": ("matthews",),
    "pearson": ("pearson", "spearman"),
}
REGRESSION = "pearson"

# Labels of rows that have none: GLUE's hidden ones, and where MNLI's annotators did not agree.
UNLABELLED = ("-1", "-")

_DECIMAL = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?")


@dataclass(frozen=True)
class GlueTask:
    """What GLUE calls the parts of one of its tasks.

    Attributes:
        texts: the columns with the texts.
        labels: the label words in GLUE's order; none for scores.
        metric: the headline metric.
        evals: the names of the evaluation sets, and their splits.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    metric: str = "accuracy"
    evals: Mapping[str, str] = field(default_factory=lambda: {"validation": "validation"})


_MNLI_EVALS = {"matched": "validation_matched", "mismatched": "validation_mismatched"}
_ENTAILED = ("entailment", "not_entailment")

GLUE: dict[str, GlueTask] = {
    "mnli": GlueTask(("premise", "hypothesis"), ("entailment", "neutral", "contradiction"), evals=_MNLI_EVALS),
    "sst2": GlueTask(("sentence",), ("negative", "positive")),
    "qnli": GlueTask(("question", "sentence"), _ENTAILED),
    "rte": GlueTask(("sentence1", "sentence2"), _ENTAILED),
    "mrpc": GlueTask(("sentence1", "sentence2"), ("not_equivalent", "equivalent"), "f1"),
    "cola": GlueTask(("sentence",), ("unacceptable", "acceptable"), "matthews"),
    "qqp": GlueTask(("question1", "question2"), ("not_duplicate", "duplicate"), "f1"),
    "stsb": GlueTask(("sentence1", "sentence2"), (), "pearson"),
}


@dataclass(frozen=True)
class Encoded:
    """A task in token ids, for `DataCollatorWithPadding` to pad.

    The columns are what the tokenizer gives (`input_ids`, `attention_mask`, ...), `labels`, and `length`, which the
    Trainer groups by.
    """

    train: Dataset
    evals: dict[str, Dataset]


@dataclass(frozen=True)
class ClassificationTask:
    """Labelled texts to train and evaluate on.

    Attributes:
        name: the GLUE task, or the name of the training file.
        labels: label words; a label's number is its place here. Empty for scores (regression).
        train: columns `text`, `text_pair` where there are two texts, and `label`; no rows if only evaluation was asked.
        evals: evaluation sets by name, with the same columns.
        metric: the headline metric, a key of `METRICS`; higher is better.
        dropped: how many rows had no label and were left out, by set ("train" and the names of `evals`).
        totals: how many rows each set had before `sample`.
        seed: what `sample` drew with; None if it was not called.
    """

    name: str
    labels: tuple[str, ...]
    train: Dataset
    evals: dict[str, Dataset]
    metric: str = "accuracy"
    dropped: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    seed: int | None = None

    @property
    def is_regression(self) -> bool:
        """Whether labels are scores, not classes."""
        return self.metric == REGRESSION

    @property
    def model_kwargs(self) -> dict[str, Any]:
        """What `AutoModelForSequenceClassification.from_pretrained` needs to know of the task."""
        if self.is_regression:
            return {"num_labels": 1, "problem_type": "regression"}
        return {
            "num_labels": len(self.labels),
            "id2label": dict(enumerate(self.labels)),
            "label2id": {word: index for index, word in enumerate(self.labels)},
            "problem_type": "single_label_classification",
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data, in sentences for the user."""
        left_out = [
            f"{name}: {count} rows without a label were left out." for name, count in self.dropped.items() if count
        ]
        drawn = [
            f"{name}: {len(rows)} of {self.totals[name]} rows, drawn at random with seed {self.seed}."
            for name, rows in {"train": self.train, **self.evals}.items()
            if len(rows) < self.totals.get(name, 0)
        ]
        return (*left_out, *drawn)

    def sample(self, max_train: int | None = None, max_eval: int | None = None, seed: int = 0) -> ClassificationTask:
        """Returns the task with random subsets of its rows, in their order; the same seed gives the same rows.

        A larger subset of the same seed holds the smaller one.

        Args:
            max_train: at most so many training rows; None for all.
            max_eval: at most so many rows in each evaluation set; None for all.
            seed: what the subsets are drawn with.
        """
        check_limits(max_train, max_eval)
        evals = {name: _draw(rows, max_eval, seed) for name, rows in self.evals.items()}
        return replace(self, train=_draw(self.train, max_train, seed), evals=evals, seed=seed)

    def tokenize(self, tokenizer: PreTrainedTokenizerBase, max_length: int = 128) -> Encoded:
        """Turns the texts into token ids.

        Args:
            tokenizer: the model's.
            max_length: longer texts are cut to so many tokens, the longer one of a pair first.
        """
        first = next(iter(self.evals.values()))
        _check_max_length(max_length, tokenizer, "text_pair" in first.column_names)
        evals = {name: _encode(rows, tokenizer, max_length) for name, rows in self.evals.items()}
        # `Dataset.map` makes no columns out of no rows.
        train = _encode(self.train, tokenizer, max_length) if len(self.train) else _none_of(next(iter(evals.values())))
        return Encoded(train, evals)

    def compute_metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Returns the task's metrics, the headline first, as the Trainer's `compute_metrics`.

        A model that has diverged has no metric: outputs that are not numbers give NaN, not the score of some class.
        """
        outputs = prediction.predictions
        # Encoder-decoders give hidden states besides the logits.
        outputs = np.asarray(outputs[0] if isinstance(outputs, tuple) else outputs)
        wanted = self.model_kwargs["num_labels"]
        if outputs.ndim != 2 or outputs.shape[1] != wanted:
            raise ValueError(
                f"The model's outputs must have shape (rows, {wanted}) for this task; got {outputs.shape}. "
                "Build it with `task.model_kwargs`."
            )
        names = METRICS[self.metric]
        if np.isnan(outputs).any():
            return dict.fromkeys(names, float("nan"))
        guesses = outputs[:, 0] if self.is_regression else outputs.argmax(axis=1)
        truth = np.asarray(prediction.label_ids)
        return {name: _METRIC_FUNCTIONS[name](guesses, truth) for name in names}


def glue(name: str, labels: Sequence[str] | None = None) -> ClassificationTask:
    """Loads a task of GLUE from the Hugging Face hub, or from its cache on this machine.

    Args:
        name: a key of `GLUE`, such as "mnli".
        labels: GLUE's label words in the order of the model's outputs, in any case; by default in GLUE's order.
    """
    if name not in GLUE:
        raise ValueError(f"`name` must be one of {', '.join(GLUE)}; got {name!r}. For other data use `from_files`.")
    task = GLUE[name]
    splits = _load_glue(name)
    kept = {key: _labelled(splits[split], task.texts) for key, split in {"train": "train", **task.evals}.items()}
    sets = {key: rows for key, (rows, _) in kept.items()}
    # The numbers in the data mean what its own features say.
    words = tuple(getattr(splits["train"].features["label"], "names", ()))
    if labels is not None:
        sets = {key: _renumbered(rows, words, labels) for key, rows in sets.items()}
        words = tuple(labels)
    dropped = {key: count for key, (_, count) in kept.items()}
    return _task(name, words, sets, task.metric, dropped)


def from_files(
    train: str | Path | None,
    evals: str | Path | Mapping[str, str | Path],
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
) -> ClassificationTask:
    """Reads a task from files: jsonl, csv, tsv or parquet, the text ones also as .gz.

    Args:
        train: the training file; None to evaluate only.
        evals: the evaluation file, or several by name.
        columns: which columns hold "text", "text_pair" and "label"; those not named are found by their usual names.
        labels: label words in the order of the model's outputs; in files, words in any case or numbers stand for them.
            By default they are the words of the training file: GLUE's words in GLUE's order, numbers by value, others
            sorted; and then every label has to appear in training and in evaluation.
        metric: the headline metric, a key of `METRICS`. By default "pearson" (scores, not classes) if the column of
            the labels is called score and no `labels` are given, else "accuracy". "f1" takes the second label as the
            positive one.
    """
    evals = dict(evals) if isinstance(evals, Mapping) else {"validation": evals}
    _check_names(evals)
    paths = evals if train is None else {"train": train, **evals}
    tables = {name: read_table(path, columns) for name, path in paths.items()}
    return _from_tables(stem(next(iter(paths.values()))), tables, labels, metric)


def from_rows(
    name: str,
    train: Iterable[Mapping[str, Any]],
    evals: Mapping[str, Iterable[Mapping[str, Any]]],
    labels: Sequence[str] | None = None,
    metric: str | None = None,
) -> ClassificationTask:
    """Makes a task from rows in memory, with the checks that files get.

    Args:
        name: what to call the task.
        train: rows such as `{"text": "...", "text_pair": "...", "label": "..."}`; `text_pair` only if there are two.
        evals: rows of each evaluation set, by name.
        labels: as for `from_files`.
        metric: as for `from_files`.
    """
    _check_names(evals)
    sets = {"train": train, **evals}
    tables = {key: tabulate(enumerate(rows, 1), f"{name} {key}") for key, rows in sets.items()}
    return _from_tables(name, tables, labels, metric)


def _check_names(evals: Mapping[str, Any]) -> None:
    if not evals:
        raise ValueError("`evals` is empty; give at least one evaluation set.")
    if "train" in evals:
        raise ValueError("An evaluation set cannot be called 'train'; give it another name.")


def _load_glue(name: str) -> Mapping[str, Dataset]:
    try:
        return datasets.load_dataset("nyu-mll/glue", name)
    # What can go wrong on the way to the hub has no common class; the way out is the same.
    except Exception as error:
        raise DataError(
            f"GLUE's {name} could not be loaded from the Hugging Face hub ({gist(error)}); go online, or give local "
            "files instead: from_files(train, evals), on the command line --train FILE --eval FILE."
        ) from error


def _labelled(rows: Dataset, texts: tuple[str, ...]) -> tuple[Dataset, int]:
    """A split of GLUE with our columns, without the rows whose label is hidden, and the number of those."""
    rows = rows.select_columns([*texts, "label"]).rename_columns(dict(zip(texts, ("text", "text_pair"), strict=False)))
    hidden = np.asarray(rows["label"][:]) == -1
    return (rows.select(np.flatnonzero(~hidden)) if hidden.any() else rows), int(hidden.sum())


def _renumbered(rows: Dataset, words: tuple[str, ...], labels: Sequence[str]) -> Dataset:
    """The rows with each label's place in `labels` instead of its place in `words`."""
    lowered = [label.lower() for label in labels]
    if sorted(lowered) != sorted(words):
        raise ValueError(f"`labels` must be {listed(words)} in some order; got {listed(labels)}.")
    numbers = [lowered.index(words[number]) for number in rows["label"]]
    return rows.remove_columns("label").add_column("label", pyarrow.array(numbers, "int64"))


def _task(
    name: str, labels: tuple[str, ...], sets: dict[str, Dataset], metric: str, dropped: dict[str, int]
) -> ClassificationTask:
    evals = {key: rows for key, rows in sets.items() if key != "train"}
    train = sets["train"] if "train" in sets else _none_of(next(iter(evals.values())))
    totals = {key: len(rows) for key, rows in sets.items()}
    return ClassificationTask(name, labels, train, evals, metric, dropped, totals)


def _from_tables(
    name: str, tables: dict[str, Table], labels: Sequence[str] | None, metric: str | None
) -> ClassificationTask:
    first = next(iter(tables.values()))
    for table in tables.values():
        if (table.pairs is None) != (first.pairs is None):
            raise DataError(
                f"{table.origin}, {table.unit} 1: each row must have {_how_many_texts(first)}, as in {first.origin}; "
                f"got {_how_many_texts(table)}; name the columns with `columns`."
            )
    if metric is None:
        metric = REGRESSION if labels is None and first.columns.label.lower() == "score" else "accuracy"
    words = _label_words(tables, labels, metric)
    built = {
        key: _scored(table) if metric == REGRESSION else _classified(table, words, given=labels is not None)
        for key, table in tables.items()
    }
    dropped = {key: len(tables[key].labels) - len(rows) for key, rows in built.items()}
    return _task(name, words, built, metric, dropped)


def _how_many_texts(table: Table) -> str:
    columns = table.columns
    return f"one text ({columns.text})" if table.pairs is None else f"two texts ({columns.text}, {columns.text_pair})"


def _label_words(tables: dict[str, Table], labels: Sequence[str] | None, metric: str) -> tuple[str, ...]:
    if metric not in METRICS:
        raise ValueError(f"`metric` must be one of {', '.join(METRICS)}; got {metric!r}.")
    if metric == REGRESSION:
        if labels:
            raise ValueError(f"`metric` 'pearson' is for scores, which have no labels; got {listed(labels)}.")
        return ()
    if labels is None and "train" not in tables:
        raise ValueError("`labels` must be given when there is no training file to take them from.")
    words = _inferred_labels(tables) if labels is None else tuple(str(label) for label in labels)
    if len(set(words)) != len(words) or len(words) < 2:
        raise ValueError(f"`labels` must be two or more different words; got {listed(words)}.")
    if metric == "f1" and len(words) != 2:
        raise ValueError(f"`metric` 'f1' needs two labels; got {len(words)} ({listed(words)}).")
    return words


def _inferred_labels(tables: dict[str, Table]) -> tuple[str, ...]:
    train = tables["train"]
    words = [word for word in train.first_seen if word not in UNLABELLED]
    for word in words:
        if _DECIMAL.fullmatch(word):
            raise DataError(
                f"{train.where(word)}: label {word} is not a whole number; correct it, or pass metric='pearson' if "
                "the labels are scores."
            )
    if len(words) < 2:
        raise DataError(
            f"{train.origin} must have rows of two or more labels; got {listed(words)} (rows labelled "
            f"{' or '.join(UNLABELLED)} have none); add rows, or pass `labels`."
        )
    in_evals = {word for name, table in tables.items() if name != "train" for word in table.first_seen}
    for word in words:
        if word not in in_evals:
            raise DataError(
                f"{train.where(word)}: label {quoted(word)} is in no evaluation set; correct it, or pass `labels` "
                "if it is meant."
            )
    return _ordered(words)


def _ordered(words: list[str]) -> tuple[str, ...]:
    """GLUE's words in GLUE's order, numbers by value, other words sorted."""
    for task in GLUE.values():
        if sorted(task.labels) == sorted(word.lower() for word in words):
            return tuple(sorted(words, key=lambda word: task.labels.index(word.lower())))
    if all(word.removeprefix("-").isdecimal() for word in words):
        return tuple(sorted(words, key=int))
    return tuple(sorted(words))


def _classified(table: Table, labels: tuple[str, ...], given: bool) -> Dataset:
    """The rows that have a label, with its number."""
    known = {word: index for index, word in enumerate(labels)}
    if given:
        # A model's own labels may be written otherwise in a file: in another case, or as numbers.
        known = {word.lower(): index for word, index in known.items()} | known
        if not any(word.isdecimal() for word in labels):
            known |= {str(index): index for index in range(len(labels))}
    numbers: dict[str, int] = {}
    for word in table.first_seen:
        index = known.get(word, known.get(word.lower()) if given else None)
        if index is not None:
            numbers[word] = index
        elif word not in UNLABELLED:
            source = "`labels`" if given else "the labels of the training file"
            raise DataError(
                f"{table.where(word)}: label {quoted(word)} is not one of {source}: {listed(labels)}; correct it, or "
                "pass the right `labels`."
            )
    return _dataset(table, [numbers.get(word) for word in table.labels], "int64")


def _scored(table: Table) -> Dataset:
    """All rows, with their scores; -1 is a score like others here."""
    scores: dict[str, float] = {}
    for word in table.first_seen:
        try:
            scores[word] = float(word)
        except ValueError:
            scores[word] = float("nan")
        if not np.isfinite(scores[word]):
            raise DataError(
                f"{table.where(word)}: score {quoted(word)} is not a number; correct it, or pass metric='accuracy' "
                "if the labels are classes."
            )
    # Models compute their loss in this type.
    return _dataset(table, [scores[word] for word in table.labels], "float32")


def _dataset(table: Table, labels: Sequence[float | None], kind: str) -> Dataset:
    """A dataset of the rows whose label is not None."""
    texts = {"text": table.texts} | ({} if table.pairs is None else {"text_pair": table.pairs})
    # Arrow makes these columns several times faster than `from_dict` makes them from lists.
    columns = {name: pyarrow.array(column, pyarrow.string()) for name, column in texts.items()}
    rows = Dataset.from_dict(columns | {"label": pyarrow.array(labels, kind)})
    if None in labels:
        rows = rows.select([index for index, label in enumerate(labels) if label is not None])
    if not len(rows):
        raise DataError(f"{table.origin} has no row with a label; give at least one.")
    return rows


def _none_of(rows: Dataset) -> Dataset:
    return rows.select([])


def _draw(rows: Dataset, count: int | None, seed: int) -> Dataset:
    return rows if count is None or count >= len(rows) else rows.select(draw(len(rows), count, seed))


def _check_max_length(max_length: int, tokenizer: PreTrainedTokenizerBase, pair: bool) -> None:
    # Fewer than this, and a tokenizer does not cut at all.
    least = tokenizer.num_special_tokens_to_add(pair=pair) + 1 + pair
    most = tokenizer.model_max_length
    if isinstance(max_length, bool) or not isinstance(max_length, int) or not least <= max_length <= most:
        limit = f"between {least} and {most} (the tokenizer's limit)" if most < 10**6 else f"{least} or more"
        raise ValueError(f"`max_length` must be {limit}; got {max_length!r}.")


def _encode(rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    texts = [name for name in rows.column_names if name != "label"]
    settings = {"tokenizer": tokenizer, "max_length": max_length}
    encoded = rows.map(_encode_batch, batched=True, remove_columns=texts, fn_kwargs=settings)
    return encoded.rename_column("label", "labels")


def _encode_batch(batch: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, Any]:
    texts = [batch[name] for name in ("text", "text_pair") if name in batch]
    encoded = tokenizer(*texts, truncation=True, max_length=max_length)
    return {**encoded, "length": [len(ids) for ids in encoded["input_ids"]]}


def _accuracy(guesses: np.ndarray, truth: np.ndarray) -> float:
    return float((guesses == truth).mean())


def _f1(guesses: np.ndarray, truth: np.ndarray) -> float:
    """F1 of the second label; 0 if it was neither there nor guessed."""
    both, either = int(((guesses == 1) & (truth == 1)).sum()), int((guesses == 1).sum() + (truth == 1).sum())
    return 2 * both / either if either else 0.0


def _matthews(guesses: np.ndarray, truth: np.ndarray) -> float:
    """Matthews' correlation for any number of classes: that of the two indicator matrices; 0 if either is constant."""
    classes = np.union1d(guesses, truth)
    return _correlation(guesses[:, None] == classes, truth[:, None] == classes)


def _pearson(guesses: np.ndarray, truth: np.ndarray) -> float:
    return _correlation(guesses[:, None], truth[:, None])


def _spearman(guesses: np.ndarray, truth: np.ndarray) -> float:
    return _pearson(_ranks(guesses), _ranks(truth))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Covariance over deviations, summed over columns, (N, C) each; 0 if one of them is constant."""
    if (left == left[0]).all() or (right == right[0]).all():
        return 0.0
    left, right = left.astype(np.float64), right.astype(np.float64)
    left, right = left - left.mean(axis=0), right - right.mean(axis=0)
    return float((left * right).sum() / np.sqrt((left**2).sum() * (right**2).sum()))


_METRIC_FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
}
