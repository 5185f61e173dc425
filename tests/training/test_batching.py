"""Batches by tokens: every example once, within the budget, in an order that seed and epoch decide."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import TrainerCallback

from families import PAD
from kheads import DSP, GatedTrainer, prune
from kheads.training.batching import TokenBatches, padding_share, token_batches
from kheads.training.plan import Plan
from small_runs import arguments, without_dropout

Fresh = Callable[[str], Any]
LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=6, max_size=80)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(60, 200), st.integers(0, 5), st.integers(1, 3))
def test_every_example_once_and_within_the_budget(
    lengths: list[tuple[int, int]], budget: int, seed: int, processes: int
) -> None:
    shares = [TokenBatches(lengths, budget, seed, process, processes) for process in range(processes)]
    seen = []
    for share in shares:
        share.set_epoch(seed)
        batches = list(share)
        assert len(batches) == len(share) == len(shares[0])  # every process takes the same number of steps
        seen += [index for batch in batches for index in batch]
        for batch in batches:
            assert batch and len(batch) * max(max(lengths[index]) for index in batch) <= budget
    assert sorted(seen) == list(range(len(lengths)))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = np.random.default_rng(0).integers(3, 40, (300, 2))
    sampler = TokenBatches(lengths, 200, seed=1)
    first = list(sampler)
    assert first == list(sampler) == list(TokenBatches(lengths, 200, seed=1))
    sampler.set_epoch(1)
    assert list(sampler) != first and sorted(map(sorted, sampler)) == sorted(map(sorted, first))
    assert list(TokenBatches(lengths, 200, seed=2)) != first


def test_similar_lengths_leave_little_padding() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(5, 40, 5000)
    lengths = np.stack([source, np.maximum(3, source + rng.integers(-4, 5, 5000))], axis=1)
    assert padding_share(lengths, token_batches(lengths, 2048, 0)) < 0.1
    by_chance = [part.tolist() for part in np.array_split(rng.permutation(5000), 100)]
    assert padding_share(lengths, by_chance) > 0.3
    assert padding_share([2, 4, 4], [[0, 1], [2]]) == pytest.approx(2 / 12)


def test_what_cannot_be_batched_is_refused() -> None:
    with pytest.raises(ValueError, match="`batch_tokens` must be at least 9, the longest example; got 8"):
        token_batches([(3, 4), (9, 2)], 8)
    with pytest.raises(ValueError, match="no examples"):
        token_batches([], 8)
    with pytest.raises(ValueError, match="3 batches of one example cannot be shared equally by 4 processes"):
        TokenBatches([1, 2, 3], 100, 0, processes=4)


def pairs(count: int = 40) -> list[dict[str, list[int]]]:
    rng = np.random.default_rng(0)
    rows = [(rng.integers(4, 60, rng.integers(2, 12)), rng.integers(4, 60, rng.integers(2, 12))) for _ in range(count)]
    return [
        {"input_ids": source.tolist(), "attention_mask": [1] * len(source), "labels": target.tolist()}
        for source, target in rows
    ]


class Collator:
    """Pads, and keeps what every batch was made of."""

    def __init__(self, seen: list[list[list[int]]]):
        self.seen = seen

    def __call__(self, rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        self.seen.append([row["input_ids"] for row in rows])
        padding = {"input_ids": PAD, "attention_mask": 0, "labels": -100}
        return {
            key: nn.utils.rnn.pad_sequence([torch.tensor(row[key]) for row in rows], True, value)
            for key, value in padding.items()
        }


class Stop(TrainerCallback):
    """Ends a run in the middle of its second epoch."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 9:
            raise KeyboardInterrupt


def test_a_resumed_run_sees_the_batches_that_were_left(fresh: Fresh, tmp_path: Path) -> None:
    """Interrupted in the second epoch, it goes on with the next batch and ends with the same scores."""
    results: list[Any] = []
    seen: list[Any] = []
    for name, stop in (("whole", False), ("cut", True), ("cut", False)):
        model = fresh("marian")
        seen.append([])
        args = arguments(tmp_path / name, max_steps=14, save_strategy="steps", save_steps=3)
        options: dict[str, Any] = {"data_collator": Collator(seen[-1]), "batch_tokens": 80}
        plan = Plan(resume=name == "cut" and not stop)
        try:
            callbacks = [Stop()] if stop else []
            result = prune(model, 3, DSP(), pairs(), None, args, plan=plan, callbacks=callbacks, **options)
            results.append(result.scores)
        except KeyboardInterrupt:
            continue
    whole, before, after = seen
    per_epoch = len(TokenBatches([(len(row["input_ids"]), len(row["labels"])) for row in pairs()], 80, 0))
    assert 4 < per_epoch < 9  # the cut is in a later epoch, not at its beginning
    assert whole[:9] == before and whole[6:] == after  # the last checkpoint was at step 6
    assert torch.equal(*results)


def test_the_sampler_knows_its_epoch_whatever_wraps_it(fresh: Fresh, tmp_path: Path) -> None:
    """On resuming, several wrappers lie around the sampler; the trainer reaches it itself."""
    model = fresh("marian")
    for budget in (80, None):
        args = arguments(tmp_path, train_sampling_strategy="group_by_length")
        collator = Collator([])
        trainer: Any = GatedTrainer(
            model=model, args=args, train_dataset=pairs(), data_collator=collator, batch_tokens=budget
        )
        trainer.get_train_dataloader()
        trainer.state.epoch = 2.4
        trainer.callback_handler.on_epoch_begin(trainer.args, trainer.state, trainer.control)
        assert trainer._order.epoch == 2


class Spy(GatedTrainer):
    """Keeps the gradients of the first optimizer step."""

    def before_step(self: Any) -> None:
        self.seen = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}


def test_gradients_do_not_depend_on_how_tokens_are_split(fresh: Fresh, tmp_path: Path) -> None:
    """All pairs in one batch, or in several micro-batches of one step, give the same gradients."""
    seen = []
    rows = pairs(12)
    lengths = [(len(row["input_ids"]), len(row["labels"])) for row in rows]
    for budget in (1000, 40):
        parts = len(token_batches(lengths, budget))
        model = without_dropout(fresh("marian"))
        changes: dict[str, Any] = {"max_steps": 1, "max_grad_norm": 0.0, "gradient_accumulation_steps": parts}
        trainer: Any = Spy(
            model=model,
            args=arguments(tmp_path, **changes),
            train_dataset=rows,
            data_collator=Collator([]),
            batch_tokens=budget,
        )
        trainer.train()
        seen.append(trainer.seen)
    assert parts > 2
    assert all(torch.allclose(seen[0][key], seen[1][key], atol=1e-5) for key in seen[0])
