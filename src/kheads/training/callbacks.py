"""What is said during training: how far it is, and that it cannot work while that can still be helped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from kheads.training.progress import Lines, length

FEWEST_STEPS = 100  # a model seldom learns in fewer
FEWEST_LOSSES = 5  # a mean of fewer says little
NEAR = 0.03  # how near to that of guessing a loss has not left it


class ProgressLines(TrainerCallback):
    """Lines instead of bars, where there is no terminal."""

    def __init__(self) -> None:
        self.training: Lines | None = None
        self.evaluation: Lines | None = None
        self.batches = 0
        self.loss: float | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Starts to count."""
        self.training = Lines("train: step", state.max_steps, state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Remembers the loss for the next line."""
        self.loss = (logs or {}).get("loss", self.loss)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """One optimizer step further."""
        if self.training is not None and state.is_world_process_zero:
            self.training.update(state.global_step, *([] if self.loss is None else [f"loss {self.loss:.3g}"]))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Nothing more to say."""
        self.training = self.loss = None

    def on_prediction_step(
        self, args: Any, state: TrainerState, control: Any, eval_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """One batch further, in an evaluation or prediction."""
        if self.evaluation is None:
            self.evaluation, self.batches = Lines("evaluate: batch", length(eval_dataloader), start=1), 0
        self.batches += 1
        if state.is_world_process_zero:
            self.evaluation.update(self.batches)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The next evaluation starts anew."""
        self.evaluation = None

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """The next prediction starts anew."""
        self.evaluation = None


class Doubts(TrainerCallback):
    """Notices training that cannot work: too few steps, or a loss that stays that of guessing.

    Args:
        remark: takes a sentence that says what is wrong and what to change.
        classes: how many classes the model tells apart, if it classifies.
    """

    def __init__(self, remark: Callable[[str], None], classes: int | None = None):
        self.remark, self.classes = remark, classes
        self.sum: Tensor | None = None
        self.count = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Counts the steps to come."""
        if not state.global_step:
            self.sum, self.count = None, 0
        if state.max_steps < FEWEST_STEPS:
            self.remark(few_steps(state.max_steps))

    def losses(self) -> tuple[float, int] | None:
        """What was seen so far: the sum of losses, and how many they are."""
        return None if self.sum is None else (float(self.sum), self.count)

    def restore(self, losses: Sequence[float] | None) -> None:
        """Goes on from what was seen before a checkpoint."""
        self.sum, self.count = (None, 0) if losses is None else (torch.tensor(losses[0]), int(losses[1]))

    def see(self, loss: Tensor, labels: Any, state: TrainerState) -> None:
        """Takes note of a micro-batch's loss in the second half of the first third of training."""
        if _is_time_to_look(state) and _are_classes(labels):
            self.count += 1
            self.sum = loss.detach() if self.sum is None else self.sum + loss.detach()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Looks at the mean after a third of training."""
        if state.global_step != state.max_steps // 3 or self.sum is None or self.count < FEWEST_LOSSES:
            return
        loss = float(self.sum) / self.count
        if self.classes is not None and is_guessing(loss, self.classes):
            self.remark(nothing_learned(loss, self.classes, state, args.learning_rate))


def is_guessing(loss: float, classes: int) -> bool:
    """Whether a mean cross-entropy is that of guessing among classes."""
    return classes > 1 and abs(loss - math.log(classes)) <= NEAR * math.log(classes)


def few_steps(steps: int) -> str:
    """What to say of a training that short."""
    return (
        f"Training takes only {steps} step{'s' if steps != 1 else ''}, and a model seldom learns in fewer than "
        f"{FEWEST_STEPS}; give more epochs (--epochs, num_train_epochs) or steps (--max-steps, max_steps), or smaller "
        "batches."
    )


def nothing_learned(loss: float, classes: int, state: TrainerState, rate: float) -> str:
    """What to say of a loss that has not left ln(classes)."""
    return (
        f"After {state.global_step} of {state.max_steps} steps the loss is {loss:.2f}, still that of guessing among "
        f"{classes} classes; raise the learning rate (now {rate:g}), train longer, or check the labels."
    )


def _is_time_to_look(state: TrainerState) -> bool:
    return state.max_steps // 6 <= state.global_step < state.max_steps // 3


def _are_classes(labels: Any) -> bool:
    """Whether every example has one class."""
    return isinstance(labels, Tensor) and labels.dim() == 1 and not labels.is_floating_point()
