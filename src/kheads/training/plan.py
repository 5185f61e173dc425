"""How a run goes, besides the method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kheads.blocks.fields import Count, Positive, Whole, check_fields
from kheads.methods.phases import GENTLE, Outline
from kheads.training.distillation import Distillation


@dataclass(frozen=True)
class Plan:
    """How a run goes, besides the method.

    Attributes:
        pipelined: learn the gates of a trained model and leave its weights alone.
        trained: the model is trained already; skip that phase.
        training: train after the cut, where the method or `recover_steps` say so; False trains nothing at all.
        measure_first: the model can do the task already; measure it before anything is changed.
        baseline: train a copy with all blocks for as many steps and report what it reaches.
        gate_steps: how long the gates of a frozen model learn; None is one epoch.
        repair: refit what a cut of a trained model has left, by least squares; the paper does not.
        repair_examples: how many training examples a repair looks at; None is 512, or fewer that have 32,768 tokens.
            Their labels do not count.
        recover_steps: train the pruned model further by that many steps.
        recover_rate: by what the learning rate is multiplied after a repair, in `recover_steps`.
        distil: how much the trained model with all blocks teaches the smaller one; None only where there are no labels.
        estimate_examples: how many training examples an estimated method looks at; 0 is all, and None 2,048, or fewer
            that have 65,536 tokens.
        resume: go on from the newest whole checkpoint of each phase, if it is the same run.
        scores: what the method found before, one number per block, with the model that is given; None finds them.
        whole: a folder for the trained model as it is before blocks are removed.
    """

    pipelined: bool = False
    trained: bool = False
    training: bool = True
    measure_first: bool = False
    baseline: bool = False
    gate_steps: Count | None = None
    repair: bool = True
    repair_examples: Count | None = None
    recover_steps: Whole = 0
    recover_rate: Positive = GENTLE
    distil: Distillation | None = None
    estimate_examples: Whole | None = None
    resume: bool = False
    scores: Sequence[float] | None = None
    whole: str | Path | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.training and not self.trained:
            raise ValueError("`training=False` is for a model that is trained already; add `trained=True`.")
        for name in ("recover_steps", "baseline"):
            if not self.training and getattr(self, name):
                raise ValueError(f"`{name}` trains, and `training=False` says not to; leave one of them out.")

    @property
    def outline(self) -> Outline:
        """What a method may know of the run.

        A model that comes with its scores was trained along with them, so its parts are those of that run.
        """
        return Outline(self.pipelined, self.trained and self.scores is None, self.repair)
