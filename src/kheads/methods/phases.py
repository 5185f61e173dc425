"""The parts of a run, as data: a method lists them, and `prune` carries them out in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kheads.blocks.fields import Steps


@dataclass(frozen=True)
class Train:
    """Train the model with the blocks it has. Before the cut it is skipped where the model is trained already.

    Attributes:
        steps: how much of the run's training; None is all of it, or what an earlier part has left.
        stage: under which name the quality that it leads to is noted.
        name: names its folder of checkpoints and its history.
    """

    steps: Steps | None = None
    stage: str = "unpruned"
    name: str = "train"


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
    """Learn the gates, together with the model or, frozen, on a model that is left alone."""

    frozen: bool = False


@dataclass(frozen=True)
class Estimate:
    """Score the blocks of the model as it is."""


@dataclass(frozen=True)
class Cut:
    """Select by the scores and remove the rest."""


Phase = Train | Search | LearnGates | Estimate | Cut


def starts_from_trained(phases: Sequence[Phase]) -> bool:
    """Whether the first part is the whole training of the unpruned model, which runs can therefore share."""
    return isinstance(phases[0], Train) and phases[0].steps is None
