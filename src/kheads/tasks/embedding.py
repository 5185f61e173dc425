"""Texts to embed: sentences to learn from, sets to evaluate on, some with scored pairs; the metrics.

| metric | what it says |
|---|---|
| cosine | the mean cosine of each embedding and the original's |
| spearman | the rank correlation of the cosines of pairs and the scores that people gave them |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kheads.tasks.files import LABEL_NAMES, DataError, Table, holds_rows, read_rows, read_table, tabulate, unit_of
from kheads.tasks.labelling import scored
from kheads.tasks.metrics import spearman
from kheads.tasks.sampling import check_limits, draw
from kheads.tasks.tokens import token_ids

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import EvalPrediction, PreTrainedTokenizerBase

    from kheads.storage.embedder import Embedder

COSINE, SPEARMAN = "cosine", "spearman"
HELD_OUT = "held-out"
SHARE, MOST = 0.1, 1000  # of the training texts that are held out where there is no evaluation set
ROLES = {"text": "text", "text_pair": "text_pair", "score": "label"}  # what a column holds, as files have it


@dataclass(frozen=True)
class Texts:
    """An evaluation set.

    Attributes:
        texts: its texts; of pairs the first of all, then the second.
        pairs: which pair each text belongs to; in a set without pairs its own number.
        scores: how alike people find the two texts of each pair; None where nobody says it.
    """

    texts: list[str]
    pairs: list[int]
    scores: list[float] | None = None


@dataclass(frozen=True)
class EmbeddingTask:
    """Texts to learn from and to evaluate on.

    Attributes:
        train: texts, each of them once; None to evaluate only.
        evals: evaluation sets by name.
        notes: what was done to the data, in sentences for the user.
    """

    train: list[str] | None
    evals: Mapping[str, Texts]
    notes: tuple[str, ...] = field(default=())

    @property
    def metric(self) -> str:
        """The headline metric: the scores of people count more than the original, where every set has some."""
        return SPEARMAN if all(found.scores is not None for found in self.evals.values()) else COSINE

    def sample(self, max_train: int | None = None, max_eval: int | None = None, seed: int = 0) -> EmbeddingTask:
        """The task with random subsets of its texts and of its pairs, in their order; a seed gives the same ones."""
        check_limits(max_train, max_eval)
        train = self.train and [self.train[index] for index in draw(len(self.train), max_train, seed)]
        evals = {name: _drawn(found, max_eval, seed) for name, found in self.evals.items()}
        return replace(self, train=train, evals=evals)

    def held_out(self, seed: int = 0) -> EmbeddingTask:
        """The task as it is, or with a part of its training texts as evaluation set if it has none."""
        if self.evals or self.train is None:
            return self
        count = min(MOST, round(SHARE * len(self.train)))
        if count < 1:
            raise DataError(f"There are {len(self.train)} texts, too few to hold some out; give more, or `eval`.")
        chosen = {int(index) for index in draw(len(self.train), count, seed)}
        held = [text for index, text in enumerate(self.train) if index in chosen]
        rest = [text for index, text in enumerate(self.train) if index not in chosen]
        note = f"train: {count} of {len(self.train)} texts are held out for the evaluation, drawn with seed {seed}."
        return EmbeddingTask(rest, {HELD_OUT: Texts(held, list(range(count)))}, (*self.notes, note))


def from_files(
    train: str | Path | None, evals: Mapping[str, str | Path], columns: Mapping[str, str] | None = None
) -> EmbeddingTask:
    """Reads texts from files: .txt with one a line; jsonl, csv, tsv or parquet with one or two of them a row.

    Args:
        train: the training file; pairs count as two texts, and scores are not looked at. None to evaluate only.
        evals: evaluation files by name; those with scores must have pairs.
        columns: which columns hold "text", "text_pair" and "score"; those not named are found by their usual names.
    """
    named = _columns(columns or {})
    if train is None:
        return EmbeddingTask(None, {name: _evaluated(path, named) for name, path in evals.items()})
    table = _unscored(Path(train), named)
    given = [*table.texts, *(table.pairs or ())]
    texts = list(dict.fromkeys(given))
    repeated = len(given) - len(texts)
    notes = (f"train: {repeated} texts that stand there more than once count once.",) if repeated else ()
    return EmbeddingTask(texts, {name: _evaluated(path, named) for name, path in evals.items()}, notes)


def encoded(texts: Sequence[str], embedder: Embedder, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    """Texts in tokens, for `DataCollatorWithPadding` to pad, and their `length`, which the Trainer groups by."""
    from datasets import Dataset

    most = min(max_length, embedder.max_length or max_length, tokenizer.model_max_length)
    least = tokenizer.num_special_tokens_to_add(pair=False) + 1  # with fewer, a tokenizer does not cut at all
    if most < least:
        raise ValueError(f"`max_length` must be {least} or more; got {most}.")
    given = [embedder.text(text) for text in texts]
    ids = token_ids(tokenizer, given, truncation=True, max_length=most)
    return Dataset.from_dict(
        {"input_ids": ids, "attention_mask": [[1] * len(one) for one in ids], "length": [len(one) for one in ids]}
    )


def encoded_evaluation(
    given: Texts, embedder: Embedder, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Dataset:
    """The same with `pair` and `score`, which is none of a number where nobody gave one."""
    rows = encoded(given.texts, embedder, tokenizer, max_length)
    scores = [float("nan")] * len(given.texts) if given.scores is None else [given.scores[one] for one in given.pairs]
    return rows.add_column("pair", given.pairs).add_column("score", scores)


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """The metrics of a set, as the Trainer's `compute_metrics`; rows may come in any order."""
    found: Any = prediction.predictions
    own, theirs = found if isinstance(found, tuple) else (found, None)
    pairs, scores = (np.asarray(label) for label in prediction.label_ids)
    metrics = {} if theirs is None else {COSINE: float(cosines(own, theirs).mean())}
    if not np.isnan(scores).any():
        order = np.argsort(pairs, kind="stable")  # the two texts of a pair are side by side
        alike = cosines(own[order[0::2]], own[order[1::2]])
        metrics[SPEARMAN] = float("nan") if np.isnan(alike).any() else spearman(alike, scores[order[0::2]])
    return metrics


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosine of each row, (N, W), and the same row of the other."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    found: np.ndarray = (left * right).sum(1) / np.maximum(lengths, 1e-300)
    return found


def _columns(given: Mapping[str, str]) -> dict[str, str]:
    for role in given:
        if role not in ROLES:
            raise ValueError(f"`columns` may name {', '.join(ROLES)}; got {role!r}.")
    return {ROLES[role]: name for role, name in given.items()}


def _unscored(path: Path, columns: Mapping[str, str]) -> Table:
    """The texts of a file, whatever its labels are: rows without one are as good as others."""
    if not holds_rows(path):
        return read_table(path, labelled=False)
    named = {role: name for role, name in columns.items() if role != "label"}
    label = columns.get("label")
    return tabulate(_without(read_rows(path), label), str(path), unit_of(path), named, labelled=False)


def _without(rows: Iterator[tuple[int, Any]], label: str | None) -> Iterator[tuple[int, Any]]:
    hidden = {label, *LABEL_NAMES}
    for number, row in rows:
        known = isinstance(row, Mapping)
        yield number, {name: value for name, value in row.items() if name not in hidden} if known else row


def _evaluated(path: str | Path, columns: Mapping[str, str]) -> Texts:
    table = read_table(path, columns, labelled=False)
    count = len(table.texts)
    if table.pairs is None:
        # Labels of single texts are no scores of pairs.
        return Texts(table.texts, list(range(count)))
    scores = [float(score) for score in scored(table)["label"]] if table.labelled else None
    return Texts([*table.texts, *table.pairs], [*range(count), *range(count)], scores)


def _drawn(given: Texts, count: int | None, seed: int) -> Texts:
    chosen = [int(index) for index in draw(max(given.pairs) + 1, count, seed)]
    places = {pair: number for number, pair in enumerate(chosen)}
    kept = [(text, places[pair]) for text, pair in zip(given.texts, given.pairs, strict=True) if pair in places]
    scores = None if given.scores is None else [given.scores[pair] for pair in chosen]
    return Texts([text for text, _ in kept], [pair for _, pair in kept], scores)
