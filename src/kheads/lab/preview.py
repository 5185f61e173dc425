"""`preview`: quality, size and speed against K by choose, cut and repair alone, before anything is trained."""

from __future__ import annotations

import copy
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import set_seed

from kheads.anatomy import discover
from kheads.blocks.kept import Kept
from kheads.blocks.site import total
from kheads.lab.jobs.job import AMOUNTS, Job, refuse_unread, unread
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.running import arguments, prepare
from kheads.lab.report.style import scale
from kheads.measuring.measurement import Measurement, measure, size, without_heads
from kheads.measuring.timing import Ratio
from kheads.methods.base import Goal, Method
from kheads.methods.phases import Estimate, Outline
from kheads.methods.registry import METHODS
from kheads.storage import processors
from kheads.storage.probe import probe_inputs
from kheads.surgery.removal import remove
from kheads.training.bench import Bench
from kheads.training.plan import Plan
from kheads.training.run import Run

SHARES = (3 / 4, 1 / 2, 1 / 3, 1 / 4, 1 / 6, 1 / 8, 1 / 12, 1 / 24)  # of the heads, where no K is named
ROWS, ROUNDS = 8, 10  # of the batch whose time is taken, and how often
TRAINED = Outline(trained=True)
# Fields of a job that a preview does not read, with the reason in a few words.
UNREAD = {
    "fresh": "a preview is of the model as it is",
    "pipelined": "no gates learn in a preview",
    "repair": "a preview is of repaired models",
}

Metrics = Mapping[str, Mapping[str, Any]]  # by evaluation set
# Is told what is being done, how many K are done, and how many there are.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """What to look at.

    Attributes:
        ks: how many heads to keep, in any order; none gives about eight.
        timed: measure speed, too.
        at: examples and tokens of the batch whose time is taken; by default 8 of the usual length in the data.
    """

    ks: Sequence[int] = ()
    timed: bool = True
    at: tuple[int, int] | None = None


@dataclass(frozen=True)
class Point:
    """What one K gives.

    Attributes:
        k: how many heads stay.
        parameters: of the smaller model.
        cut: its metrics right after the cut.
        repaired: its metrics after the repair.
        measured: what it costs next to the unpruned model; None where that was not measured.
    """

    k: int
    parameters: int
    cut: Metrics
    repaired: Metrics
    measured: Measurement | None = None

    @property
    def speedup(self) -> Ratio | None:
        """How many times as fast as the unpruned model it is."""
        return self.measured.model.grid[0].speedup if self.measured else None


class Judged:
    """Quality beside the unpruned model: the headline metric on the first evaluation set."""

    metric: str
    lower_is_better: bool
    evaluation: str
    examples: int
    unpruned: Metrics

    def quality(self, metrics: Metrics) -> float:
        """The headline metric."""
        return float(metrics[self.evaluation][self.metric])

    def loss(self, metrics: Metrics) -> float:
        """How much worse a model is than the unpruned one: in points, or in percent where lower is better."""
        whole, found = self.quality(self.unpruned), self.quality(metrics)
        return 100 * (found / whole - 1) if self.lower_is_better else scale(self.metric) * (whole - found)


@dataclass(frozen=True)
class Preview(Judged):
    """What each K gives without training.

    Attributes:
        model: the model that was given.
        method: how its heads were chosen.
        heads: how many it has.
        parameters: how many it has.
        least: how many are left without any attention; no K leaves fewer.
        metric: the headline metric.
        lower_is_better: whether a smaller metric is a better one.
        evaluation: the first evaluation set, on which that metric counts.
        examples: how many are in that set.
        unpruned: metrics of the model as it was given.
        points: one for each K, falling.
        seconds: how long it took.
        remarks: what else there is to say, a sentence each.
    """

    model: str
    method: str
    heads: int
    parameters: int
    least: int
    metric: str
    lower_is_better: bool
    evaluation: str
    examples: int
    unpruned: Metrics
    points: tuple[Point, ...]
    seconds: float
    remarks: tuple[str, ...] = ()

    def worse(self, point: Point) -> float:
        """How much worse a repaired model is than the unpruned one: in points, or in percent where lower is better."""
        return self.loss(point.repaired)

    @property
    def limit(self) -> Ratio | None:
        """How many times as fast the model is without any attention: the middle one of what every K was next to."""
        found = [point.measured.no_attention.grid[0].speedup for point in self.points if point.measured]
        known = sorted((speedup for speedup in found if speedup), key=lambda speedup: speedup.ratio)
        return known[len(known) // 2] if known else None

    @property
    def timing(self) -> dict[str, Any] | None:
        """How speed was measured: batch, tokens, rounds, threads, device."""
        measured = self.points[-1].measured
        if measured is None:
            return None
        batch = measured.model.grid[0]
        return {"batch": batch.batch, "length": batch.length, **measured.settings}

    def to_dict(self) -> dict[str, Any]:
        """Plain data. `worse` is in points, or in percent where lower is better."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        limit = {"parameters": self.least, "speedup": plain_ratio(self.limit)}
        points = [
            {
                "k": point.k,
                "parameters": point.parameters,
                "cut": point.cut,
                "repaired": point.repaired,
                "worse": self.worse(point),
                "speedup": plain_ratio(point.speedup),
            }
            for point in self.points
        ]
        return {**fields, "points": points, "limit": limit, "timing": self.timing}


def grid(heads: int) -> list[int]:
    """About eight K, falling; fewer where there are few heads."""
    return sorted({max(1, round(share * heads)) for share in SHARES} - {heads}, reverse=True)


def ready(job: Job, who: str = "A preview") -> tuple[Job, Prepared]:
    """Loads the data and the model of a job, and settles the job; refuses what cannot be previewed.

    Args:
        job: the model, its data, the method.
        who: what needs them, for the errors.
    """
    job = _settled(job)
    set_seed(job.seed)
    prepared = prepare(job)
    if not prepared.able:
        raise ValueError(
            f"{who} needs a model that can do the task already, and {job.model} has to be trained for it first; "
            f"`kheads prune {job.model} -k K` trains and prunes it in one run."
        )
    if not prepared.train or not prepared.evals:
        raise ValueError(f"{who} needs data to score heads with and to evaluate on; give `train` and `eval`.")
    return job, prepared


def preview(job: Job, prepared: Prepared, asked: Request, tell: Tell) -> Preview:
    """Scores the heads once, and cuts and repairs a copy of the model for every K.

    Args:
        job: what `ready` settled: the model, its data, the method.
        prepared: what it loaded; the model is left as it was.
        asked: which K to look at, and whether to take times.
        tell: is told how far it is.
    """
    begin = time.monotonic()
    sites = discover(prepared.model, job.unit)
    ks = _checked(asked.ks or grid(total(sites)), total(sites))
    batch = batch_at(prepared, asked.at) if asked.timed else None
    with tempfile.TemporaryDirectory(prefix="kheads-", ignore_cleanup_errors=True) as folder:
        run = opened(job, prepared, folder)
        bench = run.bench
        tell("measuring the unpruned model", 0, len(ks))
        unpruned = bench.evaluate()[0]
        tell("scoring heads", 0, len(ks))
        score(run, Goal(ks[-1], sites, unit=job.unit))  # scores that lead to the fewest heads serve every K
        points = [_point(run, k, batch, _at(tell, done, len(ks))) for done, k in enumerate(ks)]
    evaluation, rows = next(iter(prepared.evals.items()))
    return Preview(
        model=job.model,
        method=job.method_name,
        heads=total(sites),
        parameters=size(prepared.model)["parameters"],
        least=size(without_heads(prepared.model))["parameters"],
        metric=prepared.metric,
        lower_is_better=prepared.lower_is_better,
        evaluation=evaluation,
        examples=len(rows),
        unpruned=unpruned,
        points=tuple(points),
        seconds=time.monotonic() - begin,
        remarks=tuple(dict.fromkeys((*prepared.notes, *bench.remarks))),
    )


def _point(run: Run, k: int, batch: Mapping[str, Tensor] | None, tell: Callable[[str], None]) -> Point:
    """Cuts, repairs and measures a copy of the model."""
    kept = replace(run.goal, budget=k).kept(run.scores)
    cut, repaired = cut_and_repaired(run, kept, lambda text: tell(f"K = {k}: {text}"))
    tell(f"K = {k}: taking times")
    model = run.bench.model
    measured = None if batch is None else measure(model, batch, run.original, repeats=ROUNDS)
    return Point(k, size(model)["parameters"], cut, repaired, measured)


def opened(job: Job, prepared: Prepared, folder: str) -> Run:
    """A run on the model as it is, on which blocks can be scored, and copies cut and repaired.

    Args:
        job: what `ready` settled.
        prepared: what it loaded.
        folder: a temporary one.
    """
    bench = _bench(job, prepared, folder)
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


def _at(tell: Tell, done: int, of: int) -> Callable[[str], None]:
    return lambda text: tell(text, done, of)


def _settled(job: Job) -> Job:
    """The job on a trained model, if it asks for no more than a preview can do."""
    refuse_unread(job, UNREAD)
    if (named := next((name for name in AMOUNTS if getattr(job, name) is not None), None)) is not None:
        if named == "k":
            raise ValueError("Name the K of a preview with -k, as often as you like, and not with --set.")
        raise ValueError(f"`{named}` has no effect here: a preview is of several budgets; leave it out.")
    if job.constraints:
        raise ValueError(f"`{min(job.constraints)}` has no effect here: a preview goes by K alone; leave it out.")
    job = replace(job, k=1, trained=True)  # any K: the method is the same for all
    method = job.chosen()
    if method is None or not _orders_heads(method):
        known = ", ".join(name for name, cls in METHODS.items() if _orders_heads(cls.configured(outline=TRAINED)))
        raise ValueError(
            f"The method of a preview must score heads once for every K, as {known} do; got {job.method_name!r}."
        )
    refuse_unread(replace(job, k=None), unread(job))
    return job


def _orders_heads(method: Method) -> bool:
    """Whether it scores the heads of a trained model, and its scores serve every K."""
    scores = any(isinstance(phase, Estimate) for phase in method.phases(TRAINED))
    return scores and method.serves_every_k(constrained=False, evaluated=False)


def _checked(ks: Sequence[int], heads: int) -> list[int]:
    if heads < 2:
        raise ValueError(f"There is nothing to look at: fewer heads than the model's {heads} would be none.")
    for k in ks:
        if not 1 <= k < heads:
            raise ValueError(f"`k` must be between 1 and {heads - 1}, fewer than the model's {heads} heads; got {k}.")
    return sorted(set(ks), reverse=True)


def batch_at(prepared: Prepared, at: tuple[int, int] | None) -> dict[str, Tensor]:
    """Made-up inputs of so many examples and tokens; by default 8 of the usual length in the data."""
    rows, length = at or (ROWS, usual_length(prepared))
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


def _bench(job: Job, prepared: Prepared, folder: str) -> Bench:
    plan = Plan(
        trained=True, training=False, repair_examples=job.repair_examples, estimate_examples=job.estimate_examples
    )
    options = {"processing_class": prepared.processor, **prepared.trainer_options}
    model: Any = prepared.model
    return Bench(
        model.eval(),
        (prepared.train, dict(prepared.evals)),
        arguments(Path(folder), job, prepared, quiet=True),
        plan,
        prepared.trainer_class,
        prepared.score,
        options,
    )


def plain_ratio(ratio: Ratio | None) -> dict[str, float] | None:
    """A ratio with its interval as plain data."""
    return None if ratio is None else dataclasses.asdict(ratio)
