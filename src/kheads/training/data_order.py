"""In which order a trainer sees its examples: by seed and epoch alone, so that a resumed run sees the same batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from kheads.training.batching import TokenBatches
from kheads.training.hooks import Extension


class DataOrder(Extension):
    """The part of a gated trainer that makes batches."""

    batch_tokens: int | None = None
    _order: LengthGroups | TokenBatches | None = None  # the sampler, if its order depends on the epoch

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Length grouping whose order depends on seed and epoch alone, so that a resumed run sees the same batches."""
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        lengths = _lengths(dataset, self.args.length_column_name)
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps
        self._order = LengthGroups(lengths, batch, self._data_seed)
        return self._order

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches by tokens where that was asked for; each process reads its own, so nothing shards them again."""
        if self.batch_tokens is None:
            return super().get_train_dataloader()
        lengths = _side_lengths(self.train_dataset)
        here = self.args.process_index, self.args.world_size
        self._order = TokenBatches(lengths, self.batch_tokens, self._data_seed, *here)
        data: Any = self.train_dataset
        return DataLoader(
            self._remove_unused_columns(data, description="training") if hasattr(data, "column_names") else data,
            batch_sampler=self._order,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    @property
    def _data_seed(self) -> int:
        return self.args.data_seed if self.args.data_seed is not None else self.args.seed

    def before_epoch(self) -> None:
        """Tells the sampler its epoch; when a run of several processes resumes, Trainer's own way does not reach it.

        A collator that does something else in every epoch, such as hiding tokens, has a `set_epoch`, too.
        """
        epoch = int(self.state.epoch or 0)
        if self._order is not None:
            self._order.set_epoch(epoch)
        self._tell_collator(epoch)

    def after_training(self) -> None:
        """What is looked at afterwards, to score or to repair, does not depend on how long training was."""
        self._tell_collator(0)

    def _tell_collator(self, epoch: int) -> None:
        if hasattr(self.data_collator, "set_epoch"):
            self.data_collator.set_epoch(epoch)


class LengthGroups(Sampler[int]):
    """Random batches of examples of similar length; the order is a function of seed and epoch."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int):
        self.lengths = torch.as_tensor(lengths)
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader before every epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator)
        pools = torch.split(order, self.batch_size * 50)
        batches = [batch for pool in pools for batch in torch.split(self._sorted(pool), self.batch_size)]
        whole = [batch for batch in batches if len(batch) == self.batch_size]
        rest = [batch for batch in batches if len(batch) < self.batch_size]  # short batches come last, as one pool
        shuffled = [whole[index] for index in torch.randperm(len(whole), generator=generator).tolist()]
        return iter(torch.cat([*shuffled, *rest]).tolist())

    def _sorted(self, pool: Tensor) -> Tensor:
        return pool[self.lengths[pool].argsort(descending=True, stable=True)]


def _lengths(dataset: Any, column: str) -> list[int]:
    if column in getattr(dataset, "column_names", ()):
        return list(dataset[column])
    return [len(example["input_ids"]) for example in dataset]


def _side_lengths(dataset: Any) -> list[tuple[int, int]]:
    """Tokens of source and target of each example."""
    if hasattr(dataset, "column_names"):  # whole columns are read faster than rows
        columns = (dataset["input_ids"], dataset["labels"])
        return list(zip(*([len(ids) for ids in column] for column in columns), strict=True))
    return [(len(example["input_ids"]), len(example["labels"])) for example in dataset]
