"""Looks at every budget: quality, size and speed by choose, cut and repair alone."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from kheads.anatomy import discover
from kheads.blocks.budget import Budget
from kheads.blocks.kept import Kept
from kheads.blocks.site import part, total
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.preview.amounts import named, with_parts
from kheads.lab.preview.found import Limit, Point, Preview
from kheads.lab.preview.judged import judged_by
from kheads.lab.preview.reachable import Reachable, reachable
from kheads.lab.preview.request import Request
from kheads.lab.preview.trial import cut_and_repaired, opened, score
from kheads.measuring.measurement import cut_copy, measure, size
from kheads.methods.base import Goal
from kheads.storage import processors
from kheads.storage.probe import probe_inputs
from kheads.training.run import Run

ROWS, ROUNDS = 8, 10  # of the batch whose time is taken, and how often
HEADS_ALONE = "kheads does not know the feed-forward layers of this model, so the preview is of its heads alone."

Inputs = Mapping[str, Tensor]
# Is told what is being done, how many models are done, and how many there are.
Tell = Callable[[str, int, int], None]


def preview(job: Job, prepared: Prepared, asked: Request, tell: Tell) -> Preview:
    """Scores the blocks once for each of the parts, and cuts and repairs a copy of the model for every budget.

    Args:
        job: what `ready` settled: the model, its data, the method.
        prepared: what it loaded; the model is left as it was.
        asked: what to look at, and whether to take times.
        tell: is told how far it is.
    """
    begin, model = time.monotonic(), prepared.model
    shape = (int(asked.at[0]), int(asked.at[1])) if asked.at else (ROWS, usual_length(prepared))
    batch = batch_at(prepared, shape) if asked.timed else None
    if not asked.ks:
        tell("finding out what blocks cost", 0, 0)
    plan = reachable(job, model, asked, shape)
    with tempfile.TemporaryDirectory(prefix="kheads-", ignore_cleanup_errors=True) as folder:
        run = opened(job, prepared, folder)
        tell("measuring the unpruned model", 0, plan.count)
        unpruned = run.bench.evaluate()[0]
        limits = tuple(_limit(model, parts, batch) for parts in plan.goals)
        points = tuple(_points(run, plan, batch, tell))
    alone = (HEADS_ALONE,) if not asked.ks and asked.parts is None and len(limits) == 1 else ()
    return Preview(
        **judged_by(prepared, unpruned),
        model=job.model,
        method=job.method_name,
        heads=total(discover(model, job.unit)),
        neurons=None if set(plan.goals) == {"heads"} else total(discover(model, parts="ffn")),
        parameters=size(model)["parameters"],
        budgets=plan.budgets,
        points=points,
        limits=limits,
        seconds=time.monotonic() - begin,
        # What repairs say of single sites is for models that were named, not for twenty.
        remarks=tuple(dict.fromkeys((*prepared.notes, *alone, *(run.bench.remarks if asked.ks else ())))),
    )


def _points(run: Run, plan: Reachable, batch: Inputs | None, tell: Tell) -> Iterator[Point]:
    done = 0
    for goals in filter(None, plan.goals.values()):
        tell(f"scoring {named(goals[0].parts)}", done, plan.count)
        score(run, goals[-1])  # scores that lead to the fewest blocks serve every budget
        for goal in goals:
            yield _point(run, goal, batch, _at(tell, done, plan.count))
            done += 1


def _point(run: Run, goal: Goal, batch: Inputs | None, tell: Callable[[str], None]) -> Point:
    """Cuts, repairs and measures a copy of the model."""
    budget = goal.budget if isinstance(goal.budget, Budget) else Budget(heads=goal.budget)
    label = with_parts(budget, goal.parts)
    kept = goal.kept(run.scores)
    cut, repaired = cut_and_repaired(run, kept, lambda text: tell(f"{label}: {text}"))
    tell(f"{label}: taking times")
    model = run.bench.model
    measured = None if batch is None else measure(model, batch, run.original, repeats=ROUNDS)
    heads, neurons = _counted(goal, kept, run.original)
    return Point(budget, goal.parts, heads, neurons, size(model)["parameters"], cut, repaired, measured)


def _counted(goal: Goal, kept: Kept, model: Any) -> tuple[int, int | None]:
    """How many heads stay, and neurons where these could go."""
    blocks = kept.to_dict()
    found = {name: [len(blocks[site.name]) for site in goal.sites if part(site) == name] for name in ("heads", "ffn")}
    heads = sum(found["heads"]) if found["heads"] else total(discover(model, goal.unit))
    return heads, sum(found["ffn"]) if found["ffn"] else None


def _limit(model: Any, parts: str, batch: Inputs | None) -> Limit:
    """The model without any block of these parts; its speed where that is to be measured."""
    empty = cut_copy(model, Kept(tuple((site.name, ()) for site in discover(model, parts=parts))))
    speedup = None if batch is None else measure(empty, batch, model, repeats=ROUNDS).model.grid[0].speedup
    return Limit(parts, size(empty)["parameters"], speedup)


def batch_at(prepared: Prepared, shape: tuple[int, int]) -> dict[str, Tensor]:
    """Made-up inputs of so many examples and tokens."""
    rows, length = shape
    most = processors.positions_of(prepared.model)
    if most is not None and length > most:
        raise ValueError(f"`--at` must name at most {most} tokens, the model's positions; got {length}.")
    return probe_inputs(prepared.model, rows, length)


def usual_length(prepared: Prepared) -> int:
    """The median number of tokens in the first evaluation set; 1 where inputs are not tokens."""
    rows = next(iter(prepared.evals.values()))
    names = getattr(rows, "column_names", ())
    if "length" in names:
        return int(statistics.median(rows["length"]))
    return len(rows[0]["input_ids"]) if "input_ids" in names else 1


def _at(tell: Tell, done: int, of: int) -> Callable[[str], None]:
    return lambda text: tell(text, done, of)
