"""Batches by tokens: as many examples as fit, similar lengths together, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import Sampler

# The lengths of an example: one number, or one for each of its sequences (source and target).
Lengths = Sequence[int] | Sequence[tuple[int, ...]] | np.ndarray


class TokenBatches(Sampler[list[int]]):
    """Batches whose longest sequence times the number of examples stays within a budget of tokens.

    The batches are made once, from the seed; an epoch is their order, a function of seed and epoch. So every epoch has
    the same number of steps, a resumed run sees the same batches, and no example is lost or seen twice. Several
    processes take turns; where their number does not divide that of the batches, large batches are cut in two.
    """

    def __init__(self, lengths: Lengths, budget: int, seed: int, process: int = 0, processes: int = 1):
        self.batches = token_batches(lengths, budget, seed)
        self.seed, self.epoch = seed, 0
        self.process, self.processes = process, processes
        _even_out(self.batches, processes)

    def set_epoch(self, epoch: int) -> None:
        """Called before every epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.batches) // self.processes

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.batches), generator=generator).tolist()
        return iter([self.batches[index] for index in order[self.process :: self.processes]])


def token_batches(lengths: Lengths, budget: int, seed: int | None = None) -> list[list[int]]:
    """Cuts examples, sorted by length, into batches of at most `budget` tokens, padding counted.

    Args:
        lengths: the length of each example, or those of its source and target, (N,) or (N, S).
        budget: the most tokens of one side of a batch: its longest sequence times its number of examples.
        seed: the order of examples of equal length; None leaves it as it is.
    """
    if not len(lengths):
        raise ValueError("There are no examples to make batches of; give a non-empty data set.")
    table = np.asarray(lengths, dtype=np.int64).reshape(len(lengths), -1)
    longest = table.max(axis=1)
    check_budget(int(longest.max()), budget)
    order = np.arange(len(table)) if seed is None else np.random.default_rng(seed).permutation(len(table))
    # The target decides first, because its tokens cost most (the vocabulary), then the source.
    order = order[np.lexsort(table[order].T)]
    batches: list[list[int]] = [[]]
    width = 0
    for index in order.tolist():
        width = max(width, int(longest[index]))
        if width * (len(batches[-1]) + 1) > budget:
            batches.append([])
            width = int(longest[index])
        batches[-1].append(index)
    return batches


def small_batches(lengths: Sequence[int] | None, count: int, size: int, tokens: int) -> list[list[int]]:
    """Cuts examples into batches of at most `size` examples and `tokens` tokens, similar lengths together.

    An example that is longer than that is a batch of its own.

    Args:
        lengths: the tokens of each example; None where they are not texts, and stay in their order.
        count: how many examples there are.
        size: the most examples of a batch.
        tokens: the most tokens of a batch, padding counted.
    """
    batches = token_batches(lengths, max(tokens, *lengths)) if lengths else [list(range(count))]
    return [batch[start : start + size] for batch in batches for start in range(0, len(batch), size)]


def check_budget(longest: int, budget: int) -> None:
    """Raises if the longest example does not fit into a batch."""
    if longest > budget:
        raise ValueError(
            f"`batch_tokens` must be at least {longest}, the longest example; got {budget}. Raise it, or leave long "
            "texts out with a smaller max_length."
        )


def padding_share(lengths: Lengths, batches: Sequence[Sequence[int]]) -> float:
    """How much of the tokens in batches is padding, over all sequences of an example, from 0 to 1."""
    table = np.asarray(lengths, dtype=np.int64).reshape(len(lengths), -1)
    padded = sum(len(batch) * int(table[list(batch)].max(axis=0).sum()) for batch in batches)
    real = sum(int(table[list(batch)].sum()) for batch in batches)
    return 1 - real / padded


def _even_out(batches: list[list[int]], processes: int) -> None:
    """Cuts the batches with most examples in two until every process gets the same number."""
    while len(batches) % processes:
        largest = max(range(len(batches)), key=lambda index: len(batches[index]))
        batch = batches[largest]
        if len(batch) < 2:
            raise ValueError(
                f"{len(batches)} batches of one example cannot be shared equally by {processes} processes; raise "
                "`batch_tokens`, or use another number of processes."
            )
        batches[largest] = batch[: len(batch) // 2]
        batches.append(batch[len(batch) // 2 :])
