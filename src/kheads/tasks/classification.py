"""Sentence classification and scoring: GLUE by name, any files, or rows made in memory; data, labels, metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kheads.tasks.files import DataError, Table, read_table, stem, tabulate
from kheads.tasks.glue_data import GLUE, labelled, load_glue, renumbered
from kheads.tasks.labelling import classified, is_number, label_words, model_counts, scored, texts_alone
from kheads.tasks.metrics import AGREEMENT, FUNCTIONS, METRICS, REGRESSION
from kheads.tasks.outputs import COMPARED, NO_LABELS, Meaning
from kheads.tasks.sampling import check_limits, draw
from kheads.tasks.tokens import CHARACTERS_AT_ONCE

if TYPE_CHECKING:  # slow to import, and not needed before there is data
    from datasets import Dataset
    from transformers import EvalPrediction, PreTrainedTokenizerBase

ROWS_AT_ONCE = 1000
HELD_OUT = "held-out"
SHARE, MOST = (
    0.1,
    1000,
)  # of the training rows that are held out where nothing has labels and there is no evaluation set


@dataclass(frozen=True)
class Encoded:
    """A task in token ids, for `DataCollatorWithPadding` to pad.

    The columns are what the tokenizer gives (`input_ids`, `attention_mask`, ...), `labels` where the task has them, and
    `length`, which the Trainer groups by.
    """

    train: Dataset
    evals: dict[str, Dataset]


@dataclass(frozen=True)
class ClassificationTask:
    """Labelled texts to train and evaluate on.

    Attributes:
        name: the GLUE task, or the name of the training file.
        labels: label words; a label's number is its place here. Empty for scores (regression).
        train: columns `text`, `text_pair` where there are two texts, and `label` where it has labels; no rows if only
            evaluation was asked.
        evals: evaluation sets by name, with the same columns; labelled only if the training data is.
        metric: the headline metric, a key of `METRICS`, or `AGREEMENT`; higher is better.
        dropped: how many rows had no label and were left out, by set ("train" and the names of `evals`).
        totals: how many rows each set had before `sample`.
        seed: what `sample` drew with; None if it was not called.
        able: whether a model's outputs, as it was said what they are called, are the labels already.
        remark: what was taken for granted of those outputs, or why they are not the labels; may be empty.
        held_out: how many rows were taken from the training data to evaluate on.
    """

    name: str
    labels: tuple[str, ...]
    train: Dataset
    evals: dict[str, Dataset]
    metric: str = "accuracy"
    dropped: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    seed: int | None = None
    able: bool = False
    remark: str = ""
    held_out: int = 0

    @property
    def labelled(self) -> bool:
        """Whether the training data has labels."""
        return "label" in self.train.column_names

    @property
    def compares(self) -> bool:
        """Whether the evaluation data has no labels, so that models are compared with the whole one."""
        return not any("label" in rows.column_names for rows in self.evals.values())

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
        bare = [] if self.labelled else [NO_LABELS]
        bare += [COMPARED.format(" and ".join(self.evals))] if self.compares else []
        if self.held_out:
            bare.append(f"train: {self.held_out} rows are held out for the evaluation, drawn with seed 0.")
        return (*bare, *left_out, *drawn)

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
        names = METRICS.get(self.metric, (self.metric,))
        if np.isnan(outputs).any():
            return dict.fromkeys(names, float("nan"))
        guesses = outputs[:, 0] if self.is_regression else outputs.argmax(axis=1)
        truth = np.asarray(prediction.label_ids)
        return {name: FUNCTIONS[name](guesses, truth) for name in names}


def glue(name: str, labels: Sequence[str] | None = None) -> ClassificationTask:
    """Loads a task of GLUE from the Hugging Face hub, or from its cache on this machine.

    Args:
        name: a key of `GLUE`, such as "mnli".
        labels: GLUE's label words in the order of the model's outputs, in any case; by default in GLUE's order.
    """
    if name not in GLUE:
        raise ValueError(f"`name` must be one of {', '.join(GLUE)}; got {name!r}. For other data use `from_files`.")
    task = GLUE[name]
    splits = load_glue(name)
    kept = {key: labelled(splits[split], task.texts) for key, split in {"train": "train", **task.evals}.items()}
    sets = {key: rows for key, (rows, _) in kept.items()}
    # The numbers in the data mean what its own features say.
    words = tuple(getattr(splits["train"].features["label"], "names", ()))
    if labels is not None:
        sets = {key: renumbered(rows, words, labels) for key, rows in sets.items()}
        words = tuple(labels)
    dropped = {key: count for key, (_, count) in kept.items()}
    return _task(name, Meaning(words, False), sets, task.metric, dropped)


def from_files(
    train: str | Path | None,
    evals: str | Path | Mapping[str, str | Path],
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
    outputs: Sequence[str] = (),
) -> ClassificationTask:
    """Reads a task from files: jsonl, csv, tsv or parquet, the text ones also as .gz.

    Args:
        train: the training file; None to evaluate only. With `outputs` it may have no labels, and then also be .txt.
        evals: the evaluation file, or several by name. Where the training file has no labels they need none, either;
            without any, a part of the training rows is held out.
        columns: which columns hold "text", "text_pair" and "label"; those not named are found by their usual names.
        labels: label words in the order of the model's outputs; in files, words in any case or numbers stand for them.
            By default they are the words of the training file: GLUE's words in GLUE's order, numbers by value, others
            sorted; and then every label has to appear in training and in evaluation.
        metric: the headline metric, a key of `METRICS`. By default "pearson" (scores, not classes) if the column of
            the labels is called score and no `labels` are given, or if a trained model has one output and the labels
            are numbers, else "accuracy". "f1" takes the second label as the positive one.
        outputs: what a trained model calls its outputs, in their order. Where they are the labels of the data, in any
            case, their order counts; where they have no names (LABEL_0, ...), they are taken in the order above.
    """
    evals = dict(evals) if isinstance(evals, Mapping) else {"validation": evals}
    tables = {} if train is None else {"train": read_table(train, columns, labelled=not outputs)}
    labelled = train is None or tables["train"].labelled
    named = "label" in (columns or {})  # a column that is named has to be somewhere
    if train is not None and named and not (evals or labelled):
        read_table(train, columns)
    if evals or labelled:
        _check_names(evals)
    tables |= {name: read_table(path, columns, labelled or named) for name, path in evals.items()}
    held = 0 if evals else _hold_out(tables)
    if not labelled:
        _check_alike([table for name, table in tables.items() if name != "train"])
    first = train if train is not None else next(iter(evals.values()))
    return replace(_from_tables(stem(first), tables, labels, metric, outputs), held_out=held)


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
        raise ValueError("`evals` is missing: data with labels needs a set to evaluate on; give one.")
    if "train" in evals:
        raise ValueError("An evaluation set cannot be called 'train'; give it another name.")


def _hold_out(tables: dict[str, Table]) -> int:
    """Takes an evaluation set out of the training table, always the same one; returns its number of rows."""
    table = tables["train"]
    total = len(table.texts)
    count = min(MOST, round(SHARE * total))
    if count < 1:
        raise DataError(
            f"{table.origin} has {total} {table.unit}s, too few to hold some out for the evaluation; give more, or an "
            "evaluation file (`evals`)."
        )
    held = {int(index) for index in draw(total, count, 0)}
    for name, which in (("train", set(range(total)) - held), (HELD_OUT, held)):
        texts, pairs = (_picked(column, which) for column in (table.texts, table.pairs))
        tables[name] = replace(table, texts=texts or [], pairs=pairs)
    return count


def _picked(column: list[str] | None, which: set[int]) -> list[str] | None:
    return None if column is None else [column[index] for index in sorted(which)]


def _check_alike(tables: Sequence[Table]) -> None:
    """Refuses evaluation sets some of which have labels and some not."""
    bare, labelled = ([table for table in tables if table.labelled is has] for has in (False, True))
    if bare and labelled:
        raise DataError(f"{labelled[0].origin} has labels and {bare[0].origin} has none; label both or neither.")


def _task(
    name: str, found: Meaning, sets: dict[str, Dataset], metric: str, dropped: dict[str, int]
) -> ClassificationTask:
    evals = {key: rows for key, rows in sets.items() if key != "train"}
    train = sets["train"] if "train" in sets else _none_of(next(iter(evals.values())))
    totals = {key: len(rows) for key, rows in sets.items()}
    return ClassificationTask(
        name, found.labels, train, evals, metric, dropped, totals, able=found.able, remark=found.note
    )


def _from_tables(
    name: str,
    tables: dict[str, Table],
    labels: Sequence[str] | None,
    metric: str | None,
    outputs: Sequence[str] = (),
) -> ClassificationTask:
    _check_texts(tables)
    if not any(table.labelled for table in tables.values()):
        metric = _of_comparison(metric, outputs)
    elif metric is None:
        metric = "accuracy" if labels is not None else _usual_metric(tables, outputs)
    found = label_words(tables, labels, metric, outputs)
    built = {key: _rows(table, found, metric) for key, table in tables.items()}
    dropped = {key: len(tables[key].texts) - len(rows) for key, rows in built.items()}
    return _task(name, found, built, metric, dropped)


def _check_texts(tables: dict[str, Table]) -> None:
    first = next(iter(tables.values()))
    for table in tables.values():
        if (table.pairs is None) != (first.pairs is None):
            raise DataError(
                f"{table.origin}, {table.unit} 1: each row must have {_how_many_texts(first)}, as in {first.origin}; "
                f"got {_how_many_texts(table)}; name the columns with `columns`."
            )


def _usual_metric(tables: dict[str, Table], outputs: Sequence[str]) -> str:
    if model_counts(tables, outputs):
        return REGRESSION if len(outputs) == 1 else "accuracy"
    column = next(iter(tables.values())).columns.label or ""
    scores = len(outputs) == 1 and all(map(is_number, tables["train"].first_seen))
    return REGRESSION if scores or column.lower() == "score" else "accuracy"


def _of_comparison(metric: str | None, outputs: Sequence[str]) -> str:
    """How a model is compared with the whole one."""
    usual = REGRESSION if len(outputs) == 1 else AGREEMENT
    if metric not in (None, usual):
        raise ValueError(f"`metric` {metric!r} needs labels, and the data has none; leave it out, or give labels.")
    return usual


def _rows(table: Table, found: Meaning, metric: str) -> Dataset:
    if not table.labelled:
        return texts_alone(table)
    return scored(table) if metric == REGRESSION else classified(table, found)


def _how_many_texts(table: Table) -> str:
    columns = table.columns
    return f"one text ({columns.text})" if table.pairs is None else f"two texts ({columns.text}, {columns.text_pair})"


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
    longest = max(_longest(rows, name) for name in texts)
    size = max(1, min(ROWS_AT_ONCE, CHARACTERS_AT_ONCE // (longest + 1)))
    encoded = rows.map(_encode_batch, batched=True, batch_size=size, remove_columns=texts, fn_kwargs=settings)
    return encoded.rename_column("label", "labels") if "label" in encoded.column_names else encoded


def _longest(rows: Dataset, column: str) -> int:
    from pyarrow import compute

    return int(compute.max(compute.utf8_length(rows.data.column(column))).as_py() or 0)


def _encode_batch(batch: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, Any]:
    texts = [batch[name] for name in ("text", "text_pair") if name in batch]
    encoded = tokenizer(*texts, truncation=True, max_length=max_length)
    return {**encoded, "length": [len(ids) for ids in encoded["input_ids"]]}
