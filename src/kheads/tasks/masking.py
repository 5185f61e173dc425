"""Which tokens of a block are hidden from a masked language model, and what stands in their place.

That is a function of the block's tokens, a seed and an epoch: a run that was cut off hides what it would have hidden,
however batches are split or read ahead.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kheads.tasks.special_tokens import special_ids

IGNORED = -100  # the label of a token that is not hidden
KEPT, CHANGED = 0.1, 0.1  # of the hidden tokens, in training
JUDGED = -1  # the epoch that evaluation is


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden.

    Attributes:
        token: what stands for a hidden token.
        special: tokens that are never hidden.
        words: tokens that may stand in for another one.
        share: how many tokens of a block are hidden, at least one.
        seed: of what is random.
    """

    token: int
    special: np.ndarray
    words: np.ndarray
    share: float = 0.15
    seed: int = 0

    def hide(self, ids: Sequence[int], epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The block with some tokens hidden, and the labels, which are those tokens and -100 elsewhere.

        In training 8 of 10 are replaced by the mask, one by any word, and one stays as it is (Devlin et al., 2019), so
        that the model also minds words that it sees. In evaluation all are replaced: a token that stays would tell
        its answer, and another word would ask something else.
        """
        block = np.asarray(ids, dtype=np.int64)
        draw = np.random.default_rng([self.seed, epoch + 1, zlib.crc32(block.tobytes())])
        there = np.flatnonzero(~np.isin(block, self.special))
        hidden = draw.permutation(there)[: max(1, round(self.share * len(there)))]
        labels = np.full_like(block, IGNORED)
        labels[hidden] = block[hidden]
        fate = np.full(len(hidden), 1.0) if epoch == JUDGED else draw.random(len(hidden))
        block[hidden[fate >= KEPT]] = self.token
        changed = hidden[(fate >= KEPT) & (fate < KEPT + CHANGED)]
        block[changed] = draw.choice(self.words, len(changed))
        return block, labels


def masking_of(tokenizer: Any, share: float, seed: int = 0) -> Masking:
    """How tokens are hidden, with what the tokenizer has for it."""
    if tokenizer.mask_token_id is None:
        raise ValueError(
            f"The tokenizer {type(tokenizer).__name__} has no mask token, which a masked language model is asked with; "
            "give a model that was trained with one, or take --task clm."
        )
    special = special_ids(tokenizer)
    words = np.setdiff1d(np.fromiter(tokenizer.get_vocab().values(), np.int64), special)
    return Masking(int(tokenizer.mask_token_id), special, words, share, seed)


class MaskingCollator:
    """Makes batches of blocks; hides tokens of those that have no labels yet, other ones in every epoch."""

    def __init__(self, masking: Masking):
        self.masking, self.epoch = masking, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before every epoch, and with 0 when training is over."""
        self.epoch = epoch

    def __call__(self, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """A batch."""
        pairs = [
            (block["input_ids"], block["labels"]) if "labels" in block else self._hidden(block["input_ids"])
            for block in blocks
        ]
        ids, labels = (torch.as_tensor(np.asarray(side, dtype=np.int64)) for side in zip(*pairs, strict=True))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    def _hidden(self, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        return self.masking.hide(ids, self.epoch)
