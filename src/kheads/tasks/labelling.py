"""From the labels that stand in files to the numbers a model learns, with one sentence for each that is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kheads.tasks.files import DataError, Table, listed, quoted
from kheads.tasks.glue_data import GLUE
from kheads.tasks.metrics import METRICS, REGRESSION

if TYPE_CHECKING:
    from datasets import Dataset

# Labels of rows that have none: GLUE's hidden ones, and where MNLI's annotators did not agree.
UNLABELLED = ("-1", "-")

_DECIMAL = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?")


def label_words(tables: dict[str, Table], labels: Sequence[str] | None, metric: str) -> tuple[str, ...]:
    """The label words in the order of the model's outputs: those given, or those of the training file."""
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


def classified(table: Table, labels: tuple[str, ...], given: bool) -> Dataset:
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


def scored(table: Table) -> Dataset:
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
    import pyarrow
    from datasets import Dataset

    texts = {"text": table.texts} | ({} if table.pairs is None else {"text_pair": table.pairs})
    # Arrow makes these columns several times faster than `from_dict` makes them from lists.
    columns = {name: pyarrow.array(column, pyarrow.string()) for name, column in texts.items()}
    rows = Dataset.from_dict(columns | {"label": pyarrow.array(labels, kind)})
    if None in labels:
        rows = rows.select([index for index, label in enumerate(labels) if label is not None])
    if not len(rows):
        raise DataError(f"{table.origin} has no row with a label; give at least one.")
    return rows
