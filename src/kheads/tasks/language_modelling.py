"""Language modelling: text files as one stream of tokens each, packed into blocks; the metric is perplexity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kheads.tasks.files import DataError, check_file, holds_rows, read_lines
from kheads.tasks.sampling import check_limits, draw
from kheads.tasks.tokens import token_ids

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import EvalPrediction, PreTrainedTokenizerBase

METRIC = "perplexity"

# Texts are tokenized in pieces that end with a line: in one piece, a tokenizer needs a hundred times their memory.
PIECE = 1 << 16
PIECES_AT_ONCE = 32


@dataclass(frozen=True)
class LanguageTask:
    """Blocks of tokens to train and evaluate on.

    Attributes:
        train: one column, `input_ids`, of blocks of equal length; None to evaluate only.
        evals: evaluation sets by name, of the same kind.
        length: tokens in a block.
        left_out: the tokens at the end of each file that were too few for a block.
        totals: how many blocks each set had before `sample`.
        seed: what `sample` drew with; None if it was not called.
    """

    train: Dataset | None
    evals: dict[str, Dataset]
    length: int
    left_out: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    seed: int | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data, in sentences for the user."""
        sets = {"train": self.train, **self.evals}
        notes = []
        for name, total in self.totals.items():
            rest = self.left_out[name]
            notes.append(f"{name}: {total} blocks of {self.length} tokens; the last {rest} tokens were left out.")
            if len(sets[name] or ()) < total:
                notes.append(f"{name}: {len(sets[name] or ())} of these blocks, drawn at random with seed {self.seed}.")
        return tuple(notes)

    def sample(self, max_train: int | None = None, max_eval: int | None = None, seed: int = 0) -> LanguageTask:
        """Returns the task with random subsets of its blocks, in their order; the same seed gives the same blocks."""
        check_limits(max_train, max_eval)
        evals = {name: rows.select(draw(len(rows), max_eval, seed)) for name, rows in self.evals.items()}
        train = None if self.train is None else self.train.select(draw(len(self.train), max_train, seed))
        return replace(self, train=train, evals=evals, seed=seed)


def text_blocks(
    train: str | Path | None, evals: Mapping[str, str | Path], tokenizer: PreTrainedTokenizerBase, length: int = 128
) -> LanguageTask:
    """Reads text files, UTF-8 and maybe compressed (.gz), and packs each into blocks of `length` tokens.

    A file is one stream: the token that the tokenizer begins a text with, if any, then the text with its line ends.

    Args:
        train: the training file; None to evaluate only.
        evals: evaluation files by name.
        tokenizer: the model's.
        length: tokens in a block.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 2:
        raise ValueError(f"`max_length` must be 2 or more, the tokens in a block; got {length!r}.")
    if "train" in evals:
        raise ValueError("An evaluation set cannot be called 'train'; give it another name.")
    paths = evals if train is None else {"train": train, **evals}
    streams = {name: _begun(token_stream(path, tokenizer), tokenizer) for name, path in paths.items()}
    return in_blocks(streams, paths, length)


def in_blocks(
    streams: Mapping[str, np.ndarray],
    paths: Mapping[str, str | Path],
    length: int,
    before: Sequence[int] = (),
    behind: Sequence[int] = (),
) -> LanguageTask:
    """Packs streams of tokens into blocks.

    Args:
        streams: the tokens of each set; that of training is called "train".
        paths: where they come from, as errors name it.
        length: tokens in a block, those that are the same in each included.
        before: tokens that every block begins with.
        behind: tokens that every block ends with.
    """
    room = length - len(before) - len(behind)
    for name, ids in streams.items():
        if len(ids) < room:
            raise DataError(
                f"{paths[name]} has {len(ids)} tokens, too few for one block of {length}; give more text, or a smaller "
                "--max-length."
            )
    sets = {name: _packed(ids, room, before, behind) for name, ids in streams.items()}
    return LanguageTask(
        train=sets.get("train"),
        evals={name: rows for name, rows in sets.items() if name != "train"},
        length=length,
        left_out={name: len(ids) % room for name, ids in streams.items()},
        totals={name: len(rows) for name, rows in sets.items()},
    )


def collate(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """A batch for a causal language model: every token is a label, also one that stands for padding elsewhere."""
    ids = torch.tensor([block["input_ids"] for block in blocks])
    return {"input_ids": ids, "labels": ids.clone()}


def label_log_probabilities(logits: Any, labels: Tensor) -> Tensor:
    """What an evaluation keeps of a batch's logits: the log-probability of every token but the first, (B, L - 1).

    The logits of all tokens of a data set would not fit into memory.
    """
    logits = logits[0] if isinstance(logits, tuple) else logits
    pairs = zip(logits, labels, strict=True)
    return -torch.stack([functional.cross_entropy(row[:-1].float(), ids[1:], reduction="none") for row, ids in pairs])


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Perplexity from the log-probabilities of the tokens, as the Trainer's `compute_metrics`."""
    with np.errstate(over="ignore"):  # a model that has diverged is infinitely perplexed
        return {METRIC: float(np.exp(-np.mean(prediction.predictions, dtype=np.float64)))}


def token_stream(path: str | Path, tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """The tokens of a text file, without special ones, (T,)."""
    path = Path(path)
    if holds_rows(path):
        raise DataError(f"{path} holds rows, not plain text; language modelling reads text files (.txt, .txt.gz).")
    check_file(path, " of text")
    pieces = _pieces(path)
    parts: list[list[int]] = []
    while some := list(islice(pieces, PIECES_AT_ONCE)):
        parts += token_ids(tokenizer, some, add_special_tokens=False)
    if not any(parts):
        raise DataError(f"{path} has no text; give a file with some.")
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])


def _begun(ids: np.ndarray, tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """The tokens after the one that the tokenizer begins a text with, if any."""
    begin = tokenizer("")["input_ids"][:1]
    return np.concatenate([np.asarray(begin, ids.dtype), ids]) if begin == [tokenizer.bos_token_id] else ids


def _pieces(path: Path) -> Iterator[str]:
    """The text in pieces of whole lines."""
    piece: list[str] = []
    size = 0
    for _, line in read_lines(path):
        piece.append(line)
        size += len(line)
        if size >= PIECE:
            yield "".join(piece)
            piece, size = [], 0
    if piece:
        yield "".join(piece)


def _packed(ids: np.ndarray, room: int, before: Sequence[int], behind: Sequence[int]) -> Dataset:
    import pyarrow
    from datasets import Dataset

    rows = ids[: len(ids) // room * room].reshape(-1, room)
    sides = (np.tile(np.asarray(side, ids.dtype), (len(rows), 1)) for side in (before, behind))
    blocks = np.hstack([next(sides), rows, next(sides)])
    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(blocks.ravel()), blocks.shape[1])
    return Dataset(pyarrow.table({"input_ids": column}))
