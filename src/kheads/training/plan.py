"""How a run goes, besides the method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kheads.blocks.fields import Count, Whole, check_fields


@dataclass(frozen=True)
class Plan:
    """How a run goes, besides the method.

    Attributes:
        pipelined: learn the gates of a trained model and leave its weights alone.
        trained: the model is trained already; skip that phase.
        measure_first: the model can do the task already; measure it before anything is changed.
        baseline: train a copy with all blocks for as many steps and report what it reaches.
        gate_steps: how long the gates of a frozen model learn; None is one epoch.
        recover_steps: train the pruned model further by that many steps.
        estimate_examples: how many training examples an estimated method looks at; None is all.
        resume: go on from the newest whole checkpoint of each phase, if it is the same run.
        scores: what the method found before, one number per block, with the model that is given; None finds them.
        whole: a folder for the trained model as it is before blocks are removed.
    """

    pipelined: bool = False
    trained: bool = False
    measure_first: bool = False
    baseline: bool = False
    gate_steps: Count | None = None
    recover_steps: Whole = 0
    estimate_examples: Count | None = None
    resume: bool = False
    scores: Sequence[float] | None = None
    whole: str | Path | None = None

    def __post_init__(self) -> None:
        check_fields(self)
