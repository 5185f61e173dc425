"""Trials without training: blocks of a model are scored once, and copies of it cut and repaired."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kheads.blocks.kept import Kept
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.running import arguments
from kheads.lab.preview.judged import Metrics
from kheads.methods.base import Goal
from kheads.surgery.removal import remove
from kheads.training.bench import Bench
from kheads.training.plan import Plan
from kheads.training.run import Run


def opened(job: Job, prepared: Prepared, folder: str) -> Run:
    """A run on the model as it is, on which blocks can be scored, and copies cut and repaired.

    Args:
        job: what `ready` settled.
        prepared: what it loaded; the model is left as it was.
        folder: a temporary one.
    """
    model: Any = prepared.model
    bench = Bench(
        model.eval(),
        (prepared.train, dict(prepared.evals)),
        arguments(Path(folder), job, prepared, quiet=True),
        Plan(
            trained=True, training=False, repair_examples=job.repair_examples, estimate_examples=job.estimate_examples
        ),
        prepared.trainer_class,
        prepared.score,
        {"processing_class": prepared.processor, **prepared.trainer_options},
    )
    return Run(bench, before={}, method=job.chosen(), original=bench.model)


def score(run: Run, goal: Goal) -> None:
    """Scores the blocks of the model as it is."""
    run.bench.model, run.goal = run.original, goal
    run.estimate()


def cut_and_repaired(run: Run, kept: Kept, tell: Callable[[str], None]) -> tuple[Metrics, Metrics]:
    """Cuts a copy of the model to these blocks and repairs it: its metrics after each; the copy is on the bench."""
    bench = run.bench
    tell("cutting")
    bench.model = copy.deepcopy(run.original)
    remove(bench.model, kept, run.goal.unit)
    run.metrics["pruned"] = bench.evaluate()[0]
    tell("repairing")
    run.repair()
    return run.metrics["cut"], run.metrics["repaired"]
