"""From the labels that stand in files to the numbers a model learns, with one sentence for each that is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kheads.tasks.files import DataError, Table, listed, quoted
from kheads.tasks.metrics import AGREEMENT, METRICS, REGRESSION
from kheads.tasks.outputs import DATA, Meaning, classes, needs_labels, score, unlike

if TYPE_CHECKING:
    from datasets import Dataset

# Labels of rows that have none: GLUE's hidden ones, and where MNLI's annotators did not agree.
UNLABELLED = ("-1", "-")

_DECIMAL = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?")


def label_words(
    tables: dict[str, Table], labels: Sequence[str] | None, metric: str, outputs: Sequence[str] = ()
) -> Meaning:
    """The label words in the order of the model's outputs: those given, the model's, or those of the training file."""
    if metric not in (*METRICS, AGREEMENT):
        raise ValueError(f"`metric` must be one of {', '.join(METRICS)}; got {metric!r}.")
    if metric == REGRESSION:
        return score(outputs, labels)
    found = _trained_words(tables, labels, outputs) if _learns(tables) else _known_words(tables, labels, outputs)
    if metric == "f1" and len(found.labels) != 2:
        raise ValueError(f"`metric` 'f1' needs two labels; got {len(found.labels)} ({listed(found.labels)}).")
    return found


def model_counts(tables: dict[str, Table], outputs: Sequence[str]) -> bool:
    """Whether the labels are those of a trained model, because no training data says otherwise."""
    return bool(outputs) and not _learns(tables)


def _learns(tables: dict[str, Table]) -> bool:
    return "train" in tables and tables["train"].labelled


def _trained_words(tables: dict[str, Table], labels: Sequence[str] | None, outputs: Sequence[str]) -> Meaning:
    """From training data, which shows every label."""
    found = classes(_words(tables["train"], outputs), outputs, labels)
    if found.whose == DATA:
        _check_words(tables)
    return found


def _known_words(tables: dict[str, Table], labels: Sequence[str] | None, outputs: Sequence[str]) -> Meaning:
    """From evaluation data, which need not show every label of the model."""
    if labels is None and not outputs:
        raise ValueError("`labels` must be given when there is no training file to take them from.")
    evals = [table for name, table in tables.items() if name != "train"]
    words = list(dict.fromkeys(word for table in evals for word in _words(table, outputs)))
    found = classes(words, outputs, labels, every=False)
    if not found.able and "train" in tables:
        raise needs_labels(tables["train"].origin, unlike(outputs, listed(words)))
    return found


def _words(table: Table, outputs: Sequence[str]) -> list[str]:
    return [word for word in table.first_seen if word not in UNLABELLED or word in outputs]


def _check_words(tables: dict[str, Table]) -> None:
    """Refuses labels that look like mistakes, where nobody but the training file says what they are."""
    train = tables["train"]
    words = _words(train, ())
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


def classified(table: Table, found: Meaning) -> Dataset:
    """The rows that have a label, with its number."""
    numbers = {word: found.place(word) for word in table.first_seen}
    for word, number in numbers.items():
        if number is None and word not in UNLABELLED:
            raise DataError(
                f"{table.where(word)}: label {quoted(word)} is not one of {found.whose}: {listed(found.labels)}; "
                "correct it, or pass the right `labels`."
            )
    return _dataset(table, [numbers[word] for word in table.labels], "int64")


def scored(table: Table) -> Dataset:
    """All rows, with their scores; -1 is a score like others here."""
    for word in table.first_seen:
        if not is_number(word):
            raise DataError(
                f"{table.where(word)}: score {quoted(word)} is not a number; correct it, or pass metric='accuracy' "
                "if the labels are classes."
            )
    # Models compute their loss in this type.
    return _dataset(table, [float(word) for word in table.labels], "float32")


def is_number(word: str) -> bool:
    """Whether a label is a number, and finite."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def texts_alone(table: Table) -> Dataset:
    """All rows, without labels."""
    from datasets import Dataset

    return Dataset.from_dict(_text_columns(table))


def _dataset(table: Table, labels: Sequence[float | None], kind: str) -> Dataset:
    """A dataset of the rows whose label is not None."""
    import pyarrow
    from datasets import Dataset

    rows = Dataset.from_dict(_text_columns(table) | {"label": pyarrow.array(labels, kind)})
    if None in labels:
        rows = rows.select([index for index, label in enumerate(labels) if label is not None])
    if not len(rows):
        raise DataError(f"{table.origin} has no row with a label; give at least one.")
    return rows


def _text_columns(table: Table) -> dict[str, Any]:
    import pyarrow

    texts = {"text": table.texts} | ({} if table.pairs is None else {"text_pair": table.pairs})
    # Arrow makes these columns several times faster than `from_dict` makes them from lists.
    return {name: pyarrow.array(column, pyarrow.string()) for name, column in texts.items()}
