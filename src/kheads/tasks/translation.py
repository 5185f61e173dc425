"""Translation: sentence pairs to train and evaluate on, their token ids, and what one forward pass can measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kheads.tasks import made_numbers
from kheads.tasks.classification import Encoded
from kheads.tasks.files import DataError
from kheads.tasks.parallel import Cleaning, Pairs, read_hub, read_pairs, read_parallel
from kheads.tasks.tokens import token_ids

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import EvalPrediction, PreTrainedTokenizerBase

NUMBERS = "numbers"  # the embedded task's name
NUMBERS_VOCABULARY = 500
NUMBERS_PAIRS = {"train": 20_000, "eval": 500}
IGNORED = -100  # the label of what is no token


@dataclass(frozen=True)
class TranslationTask:
    """Pairs to train and evaluate on.

    Attributes:
        train: training pairs; none if only evaluation was asked.
        evals: evaluation pairs by name, all of them, as they are.
        notes: what was done to the data, in sentences for the user.
    """

    train: Pairs | None
    evals: dict[str, Pairs]
    notes: tuple[str, ...] = ()

    def cleaned(self, rule: Cleaning | None) -> TranslationTask:
        """Leaves training pairs out by the rule; without one, an empty side is an error."""
        if self.train is None:
            return self
        if rule is None:
            return replace(self, train=self.train.check_complete())
        train, notes = rule(self.train)
        return replace(self, train=train, notes=(*self.notes, *notes))

    def sample(self, max_train: int | None = None, max_eval: int | None = None, seed: int = 0) -> TranslationTask:
        """Returns the task with random subsets of its pairs, in their order; the same seed gives the same pairs."""
        for name, limit in (("max_train", max_train), ("max_eval", max_eval)):
            if limit is not None and limit < 1:
                raise ValueError(f"`{name}` must be an integer from 1 up, or None for all pairs; got {limit!r}.")
        train = None if self.train is None else _draw(self.train, max_train, seed)
        return replace(self, train=train, evals={name: _draw(p, max_eval, seed) for name, p in self.evals.items()})

    def texts(self) -> list[str]:
        """The training sentences of both languages."""
        return [] if self.train is None else [*self.train.sources, *self.train.targets]

    def tokenize(self, tokenizer: PreTrainedTokenizerBase, max_length: int = 128) -> tuple[Encoded, tuple[str, ...]]:
        """Turns pairs into token ids; says how many did not fit.

        Args:
            tokenizer: the model's.
            max_length: training pairs with more tokens on a side are left out, because half a translation is a wrong
                one; sides of evaluation pairs are cut, for the loss only: what is scored is generated from all of it.
        """
        evals = {name: _encode(pairs, tokenizer, max_length) for name, pairs in self.evals.items()}
        if self.train is None:
            return Encoded(_dataset({}), evals), ()
        train = _encode(self.train, tokenizer, None)
        fits = np.flatnonzero(np.asarray(train["length"]) <= max_length)
        if not len(fits):
            raise DataError(f"No training pair has at most {max_length} tokens on each side; raise --max-length.")
        out = len(train) - len(fits)
        note = f"train: {out:,} of {len(train):,} pairs have more than {max_length} tokens and were left out."
        return Encoded(train.select(fits) if out else train, evals), (note,) if out else ()


def from_parallel(
    train: tuple[str | Path, str | Path] | None, evals: Mapping[str, tuple[str | Path, str | Path]]
) -> TranslationTask:
    """Reads files of source lines and files of target lines."""
    _check_names(evals)
    return TranslationTask(
        None if train is None else read_parallel(*train),
        {name: read_parallel(*paths).check_complete() for name, paths in evals.items()},
    )


def from_pair_files(
    train: str | Path | None, evals: Mapping[str, str | Path], columns: Mapping[str, str] | None = None
) -> TranslationTask:
    """Reads files that hold sources and targets in two columns."""
    _check_names(evals)
    return TranslationTask(
        None if train is None else read_pairs(train, columns),
        {name: read_pairs(path, columns).check_complete() for name, path in evals.items()},
    )


def from_hub(name: str, columns: Mapping[str, str] | None = None) -> TranslationTask:
    """Reads a data set of the hub; every split but "train" evaluates."""
    splits = read_hub(name, columns)
    train = splits.pop("train", None)
    if train is None or not splits:
        found = ", ".join([*(["train"] if train else []), *splits])
        raise DataError(f"The data set {name} must have a split train and another one to evaluate on; it has {found}.")
    return TranslationTask(train, {split: pairs.check_complete() for split, pairs in splits.items()})


def numbers(seed: int = 0) -> TranslationTask:
    """The embedded task."""
    made = {}
    for split, count in NUMBERS_PAIRS.items():
        pairs = made_numbers.generate(split, count, seed)
        texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
        made[split] = Pairs((NUMBERS, NUMBERS), *texts, list(range(1, count + 1)), "row")
    return TranslationTask(made["train"], {"unseen": made["eval"]})


def reference_log_probabilities(logits: Any, labels: Tensor) -> Tensor:
    """The log-probability of each reference token, (B, L): all that is kept of the logits, which would not fit."""
    scores: Tensor = logits[0] if isinstance(logits, tuple) else logits
    picked = scores.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (picked.float() - torch.logsumexp(scores.float(), dim=-1)).masked_fill(labels == IGNORED, 0.0)


def perplexity(prediction: EvalPrediction) -> dict[str, float]:
    """Perplexity per reference token, without label smoothing."""
    real = np.asarray(prediction.label_ids) != IGNORED
    return {"perplexity": float(np.exp(-np.asarray(prediction.predictions, dtype=np.float64)[real].mean()))}


def _check_names(evals: Mapping[str, Any]) -> None:
    if not evals:
        raise ValueError("There is no evaluation set; give at least one.")


def _draw(pairs: Pairs, count: int | None, seed: int) -> Pairs:
    if count is None or count >= len(pairs):
        return pairs
    return pairs.select(np.sort(np.random.default_rng(seed).permutation(len(pairs))[:count]).tolist())


def _encode(pairs: Pairs, tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> Dataset:
    options: dict[str, Any] = {"truncation": max_length is not None, "max_length": max_length}
    ids = token_ids(tokenizer, pairs.sources, **options)
    labels = token_ids(_for_targets(tokenizer), pairs.targets, **options)
    lengths = [max(map(len, both)) for both in zip(ids, labels, strict=True)]
    masks = [[1] * len(sequence) for sequence in ids]
    return _dataset({"input_ids": ids, "attention_mask": masks, "labels": labels, "length": lengths})


def _for_targets(tokenizer: Any) -> Any:
    """The tokenizer as it reads translations, which some read otherwise."""
    return lambda texts, **options: {"input_ids": tokenizer(text_target=texts, **options)["input_ids"]}


def _dataset(columns: dict[str, Any]) -> Dataset:
    from datasets import Dataset

    return Dataset.from_dict(columns)
