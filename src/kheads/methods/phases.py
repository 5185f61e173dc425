"""The parts of a run, as data: a method lists them, and `prune` carries them out in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kheads.blocks.fields import Positive, Steps

# What of its usual learning rate a repaired model trains on with; the whole rate would undo the repair.
GENTLE = 0.5


@dataclass(frozen=True)
class Outline:
    """What a method may know of a run when it lists the parts.

    Attributes:
        frozen: the gates learn on a model that is left alone.
        trained: the model can do the task already.
        repairs: what a cut leaves is repaired.
    """

    frozen: bool = False
    trained: bool = False
    repairs: bool = True


@dataclass(frozen=True)
class Train:
    """Train the model with the blocks it has. Before the cut it is skipped where the model is trained already.

    Attributes:
        steps: how much of the run's training; None is all of it, or what earlier parts have left.
        stage: under which name the quality that it leads to is noted.
        name: names its folder of checkpoints and its history.
        rate: by what the run's learning rate is multiplied if the model was repaired.
    """

    steps: Steps | None = None
    stage: str = "unpruned"
    name: str = "train"
    rate: Positive = 1.0


@dataclass(frozen=True)
class Search:
    """Look for a better setting of the method by short runs on copies of the model.

    Attributes:
        runs: how many.
        steps: how long each of them is.
    """

    runs: int
    steps: Steps


@dataclass(frozen=True)
class LearnGates:
    """Learn the gates, together with the model or, frozen, on a model that is left alone.

    Attributes:
        frozen: leave the model alone.
        steps: how much of the run's training, where the model learns along; None is all of it.
    """

    frozen: bool = False
    steps: Steps | None = None


@dataclass(frozen=True)
class Estimate:
    """Score the blocks of the model as it is."""


@dataclass(frozen=True)
class Cut:
    """Select by the scores and remove the rest."""


@dataclass(frozen=True)
class Repair:
    """Refit what the cut has left, so that it follows the trained model with all blocks."""


Phase = Train | Search | LearnGates | Estimate | Cut | Repair


def starts_from_trained(phases: Sequence[Phase]) -> bool:
    """Whether the first part is the whole training of the unpruned model, which runs can therefore share."""
    first = phases[0]
    return isinstance(first, Train) and first.steps is None


def trains_first(phases: Sequence[Phase]) -> bool:
    """Whether the model is trained with all blocks, in whole or in part, before anything is chosen."""
    return isinstance(phases[0], Train)
