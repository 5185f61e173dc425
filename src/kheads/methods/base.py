"""What every method is: a frozen record of hyperparameters that ends as one score per block.

A learned method gives the gates of a training step from one weight per block; its scores are the weights. An estimated
method computes the scores of a trained model. Everything else that a run, a sweep or a report wants to know of a method
it declares here: its phases, its look, its presets, what it costs, and whether one run serves every K.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.costs import Costs
from kheads.blocks.fields import OneOf, Steps, check_fields
from kheads.blocks.kept import Kept
from kheads.blocks.selection import pools, select
from kheads.blocks.site import Site, part, parts_of, spans, total
from kheads.methods.look import Look
from kheads.methods.phases import Cut, Estimate, LearnGates, Outline, Phase, Repair, Search, Train

Options = Mapping[str, Any]
Schedule = Annotated[str, OneOf(("linear", "constant"))]
NONE: Mapping[str, Options] = MappingProxyType({})
HEADS_OF_A_SITE = 12  # a usual number, where a site has none
FREE = 1e-200  # what a block that costs nothing is divided by: a module that does not run has no time
PLAIN = Outline()  # a model that is not trained, gates and model together


@dataclass(frozen=True)
class Goal:
    """What a selection is for: how much may stay, of which sites, under which constraints.

    Attributes:
        budget: how many blocks, or a budget in parameters, FLOPs or time.
        sites: the sites.
        constraints: further demands on the selection.
        unit: what counts as a head where query heads share keys and values.
        costs: what blocks cost in the currency of the budget; None where blocks are counted.
    """

    budget: int | Budget
    sites: Sequence[Site]
    constraints: Constraints | None = None
    unit: str = "group"
    costs: Costs | None = None

    @property
    def k(self) -> int:
        """How many blocks stay, where the budget is a number of blocks."""
        if isinstance(self.budget, Budget):
            raise ValueError(
                f"This run keeps {self.budget} and not a number of heads; a method for it goes by `goal.prices`, what "
                "each block costs, and `goal.limit`, what those that stay may cost."
            )
        return self.budget

    @property
    def total(self) -> int:
        """The number of blocks there are, N."""
        return total(self.sites)

    @property
    def parts(self) -> str:
        """Which parts of the model the blocks are of: "heads", "ffn" or "all"."""
        return parts_of(self.sites)

    @cached_property
    def prices(self) -> Tensor:
        """What each block costs, (N,) float64: 1 where blocks are counted."""
        return torch.ones(self.total, dtype=torch.float64) if self.costs is None else self.costs.each

    @cached_property
    def whole(self) -> float:
        """What all blocks cost together; N where blocks are counted."""
        return float(self.prices.sum())

    @cached_property
    def limit(self) -> float:
        """What the blocks that stay may cost together; K where blocks are counted."""
        if self.costs is None:
            return self.k
        assert isinstance(self.budget, Budget), "costs belong to a budget"
        return self.budget.limit(self.costs.whole) - self.costs.outside

    def per_price(self, scores: Tensor) -> Tensor:
        """Scores for what blocks cost, from how much each is wanted; one that costs nothing may well stay."""
        return scores / self.prices.clamp(min=FREE)

    @property
    def price_of_a_head(self) -> float:
        """What a head costs on average: 1 where blocks are counted, a twelfth of a site where heads cost nothing."""
        of_heads = [self.prices[place] for site, place in spans(self.sites) if part(site) == "heads" and site.count]
        if of_heads and (mean := float(torch.cat(of_heads).mean())) > 0:
            return mean
        return self.whole / sum(site.count > 0 for site in self.sites) / HEADS_OF_A_SITE

    def eased(self, limit: float, constraints: Constraints | None) -> Goal:
        """The same goal on the way there, with more blocks and other constraints."""
        if self.costs is None:
            return Goal(int(limit), self.sites, constraints, self.unit)
        amount = limit + self.costs.outside
        # Rounded up: what stays in the end may cost the last unit of a share, and must fit on the way, too.
        exact: dict[str, Any] = {self.costs.currency: amount if self.costs.currency == "ms" else math.ceil(amount)}
        return replace(self, budget=Budget(**exact), constraints=constraints)

    def kept(self, scores: Tensor) -> Kept:
        """The blocks of highest score that fit."""
        return select(scores, self.budget, self.sites, self.constraints, costs=self.costs)

    def mask(self, scores: Tensor) -> Tensor:
        """Ones for the blocks of highest score that fit, zeros for the others, (N,)."""
        return self.kept(scores).mask(self.sites, device=scores.device)

    def pools(self, scores: Tensor) -> list[tuple[list[int], float]]:
        """Blocks that compete with each other, and what those of them that stay cost: one pool, but for constraints."""
        return pools(scores, self.budget, self.sites, self.constraints, self.costs)


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
    """The base of all methods. Its fields are hyperparameters, documented under `Attributes` of its docstring.

    A class says of itself:
        reference: where the method comes from.
        idea: what it does, in a few words.
        look: how it is drawn.
        presets: named sets of values for its fields; a method that has some takes the option `preset`.
        for_task: options that suit a task better than the defaults, by the name of the task.
        pipelines: whether it can learn with the model frozen.
    """

    reference: ClassVar[str] = ""
    idea: ClassVar[str] = ""
    look: ClassVar[Look]
    presets: ClassVar[Mapping[str, Options]] = NONE
    for_task: ClassVar[Mapping[str, Options]] = NONE
    pipelines: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def configured(cls, options: Options = NONE, task: str | None = None, outline: Outline = PLAIN) -> Self:
        """The method with the options given; what is not given is what suits the run.

        Args:
            options: fields by name, and `preset` where the method has presets.
            task: the name of the task.
            outline: whether the model is trained already, and left alone while the gates learn.
        """
        values = {**cls.for_task.get(task or "", {}), **options}
        preset = values.pop("preset", None) or cls.usual_preset(outline)
        if preset is not None:
            if not isinstance(preset, str) or preset not in cls.presets:
                there = (
                    f"one of {', '.join(map(repr, cls.presets))}" if cls.presets else "left out: there are none here"
                )
                raise ValueError(f"`preset` must be {there}; got {preset!r}.")
            values = {**cls.presets[preset], **values}
        known = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(f"{cls.__name__} has no option `{name}`; it has {', '.join(known) or 'none'}.")
        return cls(**values)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The method with a named set of values, and changes to it."""
        return cls.configured({"preset": name, **changes})

    @classmethod
    def usual_preset(cls, outline: Outline) -> str | None:
        """The preset to take unless one is named."""
        return None

    @classmethod
    def look_in(cls, frozen: bool) -> Look:
        """Its look in a run."""
        return cls.look

    @abstractmethod
    def phases(self, outline: Outline) -> tuple[Phase, ...]:
        """The parts of a run, in order."""

    def check(self, goal: Goal) -> None:
        """Raises if the method cannot work towards this goal; asked before anything is trained."""
        return

    def serves_every_k(self, constrained: bool, evaluated: bool) -> bool:
        """Whether what one run finds is right for every K that it is asked for, so that a sweep runs it once.

        Args:
            constrained: the selection must honour more than K.
            evaluated: the K blocks of the moment are evaluated on the way.
        """
        return False


@dataclass(frozen=True)
class Learned(Method):
    """A method that learns one weight per block while the model runs with gates."""

    pipelines: ClassVar[bool] = True

    @property
    @abstractmethod
    def gate_lr(self) -> float:
        """Learning rate of the weights."""

    @property
    @abstractmethod
    def gate_lr_schedule(self) -> str:
        """How that rate goes: "linear" (to 0 at the end of training) or "constant"."""

    @classmethod
    def look_in(cls, frozen: bool) -> Look:
        """Hollow and dash-dotted where the gates learn on a frozen model."""
        if not frozen:
            return cls.look
        label = f"Pipelined {cls.look.label}"
        return dataclasses.replace(cls.look, label=label, marker=f"{cls.look.marker}-open", dash="dashdot")

    def phases(self, outline: Outline) -> tuple[Phase, ...]:
        """Joint: model and gates together. Frozen: the model first, then the gates alone (pipelined), and a repair."""
        if outline.frozen:
            return (Train(), *self.searches(), LearnGates(frozen=True), Cut(), Repair())
        return (*self.searches(), LearnGates(), Cut())

    def searches(self) -> tuple[Search, ...]:
        """What has to be found before the gates learn."""
        return ()

    def search_for(self, attempt: Callable[[Any], Tensor], goal: Goal) -> tuple[Learned, list[dict[str, Any]]]:
        """Carries out `searches`: returns the method with what was found, and what was tried.

        Args:
            attempt: runs a variant of the method for a while and returns its weights.
            goal: what the selection is for.
        """
        return self, []

    def initial(self, size: int, seed: int) -> Tensor:
        """The weights to start from, (N,): uniform in (-0.5, 0.5), as Xavier's rule gives for 12 x 12 heads."""
        return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5

    @abstractmethod
    def gates(self, w: Tensor, goal: Goal, moment: Moment) -> Tensor:
        """The (N,) gate values of a training step, differentiable in `w`."""

    def penalty(self, w: Tensor, goal: Goal | None = None) -> Tensor | None:
        """What the method adds to the loss, if anything; the goal is given where blocks cost more than 1."""
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
class Evidence:
    """What a method may look at to score the blocks of a model.

    Attributes:
        batches: gives a fresh pass over the examples at every call; the words it is called with tell people what for.
        loss: the loss of a batch, and the items of each example in it.
        seed: for what is random.
    """

    batches: Callable[[str], Iterable[Mapping[str, Any]]]
    loss: LossFunction
    seed: int


@dataclass(frozen=True)
class Estimated(Method):
    """A method that scores the blocks of a trained model."""

    @abstractmethod
    def estimate(self, model: nn.Module, goal: Goal, evidence: Evidence) -> Tensor:
        """Returns one finite score per block, (N,), and leaves the model as it was."""

    def phases(self, outline: Outline) -> tuple[Phase, ...]:
        """Train, score, cut, repair."""
        return (Train(), Estimate(), Cut(), Repair())

    def passes(self, goal: Goal) -> int:
        """How often it computes the gradient of every example, to reach this goal."""
        return 0


def split_by_site(values: Tensor, sites: Sequence[Site]) -> tuple[Tensor, ...]:
    """The part of a vector of N numbers that belongs to each site."""
    return torch.split(values, [site.count for site in sites])
