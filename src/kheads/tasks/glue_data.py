"""GLUE: what its tasks consist of, and their splits from the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kheads.tasks.files import DataError, gist, listed

if TYPE_CHECKING:
    from datasets import Dataset


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


def load_glue(name: str) -> Mapping[str, Dataset]:
    """All splits of a task, from the hub or its cache."""
    import datasets  # takes a second; most commands never ask for it

    try:
        splits: Mapping[str, Dataset] = datasets.load_dataset("nyu-mll/glue", name)
    # What can go wrong on the way to the hub has no common class; the way out is the same.
    except Exception as error:
        raise DataError(
            f"GLUE's {name} could not be loaded from the Hugging Face hub ({gist(error)}); go online, or give local "
            "files instead: from_files(train, evals), on the command line --train FILE --eval FILE."
        ) from error
    return splits


def labelled(rows: Dataset, texts: tuple[str, ...]) -> tuple[Dataset, int]:
    """A split of GLUE with our columns, without the rows whose label is hidden, and the number of those."""
    rows = rows.select_columns([*texts, "label"]).rename_columns(dict(zip(texts, ("text", "text_pair"), strict=False)))
    hidden = np.asarray(rows["label"][:]) == -1
    return (rows.select(np.flatnonzero(~hidden)) if hidden.any() else rows), int(hidden.sum())


def renumbered(rows: Dataset, words: tuple[str, ...], labels: Sequence[str]) -> Dataset:
    """The rows with each label's place in `labels` instead of its place in `words`."""
    import pyarrow

    lowered = [label.lower() for label in labels]
    if sorted(lowered) != sorted(words):
        raise ValueError(f"`labels` must be {listed(words)} in some order; got {listed(labels)}.")
    numbers = [lowered.index(words[number]) for number in rows["label"]]
    return rows.remove_columns("label").add_column("label", pyarrow.array(numbers, "int64"))
