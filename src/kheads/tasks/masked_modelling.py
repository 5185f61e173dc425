"""Masked language modelling: text files in blocks with hidden tokens; the metric is perplexity of the hidden tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kheads.tasks.files import DataError
from kheads.tasks.language_modelling import METRIC, LanguageTask, in_blocks, token_stream
from kheads.tasks.masking import IGNORED, JUDGED, Masking
from kheads.tasks.special_tokens import check_window, frame_of

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import EvalPrediction, PreTrainedTokenizerBase

FEWEST = 2  # tokens of a text in a block: one to be hidden, and one to tell it by


def masked_blocks(
    train: str | Path | None, evals: Mapping[str, str | Path], tokenizer: PreTrainedTokenizerBase, length: int = 128
) -> LanguageTask:
    """Reads text files and packs each into blocks of `length` tokens, with the tokenizer's special tokens around each.

    Args:
        train: the training file; None to evaluate only.
        evals: evaluation files by name.
        tokenizer: the model's.
        length: tokens in a block.
    """
    before, behind = frame_of(tokenizer)
    check_window(length, tokenizer, len(before) + len(behind) + FEWEST)
    if "train" in evals:
        raise ValueError("An evaluation set cannot be called 'train'; give it another name.")
    paths = evals if train is None else {"train": train, **evals}
    streams = {name: token_stream(path, tokenizer) for name, path in paths.items()}
    return in_blocks(streams, paths, length, before, behind)


def with_hidden(task: LanguageTask, masking: Masking) -> LanguageTask:
    """The task, whose evaluation sets have their hidden tokens: the same for every model, run and phase."""
    for name, rows in {"train": task.train, **task.evals}.items():
        _check_blocks(name, rows, masking)
    return replace(task, evals={name: _hidden(rows, masking) for name, rows in task.evals.items()})


def _check_blocks(name: str, rows: Dataset | None, masking: Masking) -> None:
    blocks = np.asarray(rows["input_ids"][:]) if rows is not None else np.zeros((0, 1))
    if np.isin(blocks, masking.special).all(1).any():
        raise DataError(f"The set {name!r} has a block of special tokens alone; remove them from its text.")


def _hidden(rows: Dataset, masking: Masking) -> Dataset:
    from datasets import Dataset

    pairs = [masking.hide(block, JUDGED) for block in rows["input_ids"]]
    return Dataset.from_dict(
        {name: [pair[side] for pair in pairs] for side, name in enumerate(("input_ids", "labels"))}
    )


def hidden_log_probabilities(logits: Any, labels: Tensor) -> Tensor:
    """What an evaluation keeps of a batch's logits: the log-probability of each hidden token, 0 elsewhere, (B, L)."""
    scores: Tensor = logits[0] if isinstance(logits, tuple) else logits
    hidden = labels != IGNORED
    found = torch.zeros(labels.shape, device=scores.device)
    found[hidden] = -functional.cross_entropy(scores[hidden].float(), labels[hidden], reduction="none")
    return found


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Perplexity per hidden token, as the Trainer's `compute_metrics`."""
    hidden = np.asarray(prediction.label_ids) != IGNORED
    with np.errstate(over="ignore"):  # a model that has diverged is infinitely perplexed
        return {METRIC: float(np.exp(-np.asarray(prediction.predictions)[hidden].mean(dtype=np.float64)))}
