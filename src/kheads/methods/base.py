"""What every method is: a frozen record of hyperparameters that ends as one score per head.

A learned method gives the gates of a training step from one weight per head; its scores are the weights. An estimated
method computes the scores of a trained model. Joint or pipelined is not a method: it is whether the model trains along.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kheads.blocks.constraints import Constraints
from kheads.blocks.kept import Kept
from kheads.blocks.selection import pools, select
from kheads.blocks.site import Site, total

# A number of steps: an int is that many, a float that fraction of the training.
Steps = int | float


@dataclass(frozen=True)
class Goal:
    """What a selection is for: how many heads, of which sites, under which constraints."""

    k: int
    sites: tuple[Site, ...]
    constraints: Constraints | None = None
    unit: str = "group"

    @property
    def total(self) -> int:
        """The number of blocks there are, N."""
        return total(self.sites)

    def kept(self, scores: Tensor) -> Kept:
        """The K heads of highest score."""
        return select(scores, self.k, self.sites, self.constraints)

    def mask(self, scores: Tensor) -> Tensor:
        """Ones for the K heads of highest score, zeros for the others, (H,)."""
        return self.kept(scores).mask(self.sites, device=scores.device)

    def pools(self, scores: Tensor) -> list[tuple[list[int], int]]:
        """Heads that compete with each other, and how many of them stay: all heads and K, but for constraints."""
        return pools(scores, self.k, self.sites, self.constraints)


@dataclass(frozen=True)
class Moment:
    """Where training is. Noise depends on it alone, so a resumed run draws what an uninterrupted one draws.

    All micro-batches of one optimizer step and all processes share a moment, and so a draw.
    """

    step: int
    total: int
    seed: int = 0

    def generator(self) -> torch.Generator:
        """The step's own random numbers."""
        return torch.Generator().manual_seed(self.seed * 1_000_003 + self.step)

    def fraction(self, steps: Steps) -> float:
        """How much of `steps` has passed, from 0 to 1."""
        length = as_steps(steps, self.total)
        return 1.0 if length == 0 else min(self.step / length, 1.0)


def as_steps(steps: Steps, total: int) -> int:
    """Turns a fraction of training into steps; an int is taken as it is."""
    return round(steps * total) if isinstance(steps, float) else steps


@dataclass(frozen=True)
class Method(ABC):
    """The base of all methods."""

    reference: ClassVar[str]
    idea: ClassVar[str]


@dataclass(frozen=True)
class Learned(Method):
    """A method that learns one weight per head while the model runs with gates."""

    @property
    @abstractmethod
    def lr(self) -> float:
        """Learning rate of the weights."""

    @property
    @abstractmethod
    def lr_schedule(self) -> str:
        """How that rate goes: "linear" (to 0 at the end of training) or "constant"."""

    def initial(self, size: int, seed: int) -> Tensor:
        """The weights to start from, (H,): uniform in (-0.5, 0.5), as Xavier's rule gives for 12 x 12 heads."""
        return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5

    @abstractmethod
    def gates(self, w: Tensor, goal: Goal, moment: Moment) -> Tensor:
        """The (H,) gate values of a training step, differentiable in `w`."""

    def penalty(self, w: Tensor) -> Tensor | None:
        """What the method adds to the loss, if anything."""
        return None

    def status(self, goal: Goal, moment: Moment) -> dict[str, float]:
        """What of the schedule is worth logging."""
        return {}

    def report(self, w: Tensor, goal: Goal) -> dict[str, Any]:
        """What is worth knowing about the final weights."""
        return {}


# Gives the mean loss of a batch and how many items (labels, tokens) of each example it averages over, (B,).
LossFunction = Callable[[nn.Module, Mapping[str, Any]], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Estimated(Method):
    """A method that scores the heads of a trained model."""

    @abstractmethod
    def estimate(
        self,
        model: nn.Module,
        goal: Goal,
        batches: Callable[[], Iterable[Mapping[str, Any]]],
        loss: LossFunction,
        seed: int,
    ) -> Tensor:
        """Returns one finite score per head, (H,).

        Args:
            model: the trained model; left as it was.
            goal: how many heads of which sites.
            batches: gives a fresh pass over the data at every call.
            loss: the loss of a batch, and the items of each example in it.
            seed: for what is random.
        """


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raises if `value` is not one of the allowed words."""
    if value not in tuple(allowed):
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}; got {value!r}.")


def check_positive(name: str, value: float) -> None:
    """Raises if `value` is not a positive number."""
    if not value > 0:
        raise ValueError(f"`{name}` must be positive; got {value}.")


def check_steps(name: str, value: Steps) -> None:
    """Raises if `value` is neither a fraction from 0.0 to 1.0 nor a number of steps from 0 up."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or value < 0
        or (isinstance(value, float) and value > 1)
    ):
        raise ValueError(f"`{name}` must be a fraction from 0.0 to 1.0 or a number of steps; got {value!r}.")
