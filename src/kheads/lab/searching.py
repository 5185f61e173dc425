"""`search`: the smallest model that is at most so much worse than the unpruned one.

Budgets are halved down to the smallest that holds by choose, cut and repair alone, with scores that are computed once.
The model of that budget is then trained on, and while it holds, the next smaller one is tried.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState

from kheads.blocks.budget import Budget
from kheads.lab.jobs.job import Job, refuse_unread
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.running import Outcome, run
from kheads.lab.jobs.work_folder import inputs_of
from kheads.lab.preview.advice import ROUNDING
from kheads.lab.preview.amounts import in_words, named
from kheads.lab.preview.found import plain_budget
from kheads.lab.preview.judged import Judged, Metrics, below_told, judged_by, points_told, value_told
from kheads.lab.preview.reachable import EDGE, goal_for, met, nothing_to_remove, parts_for, removable
from kheads.lab.preview.ready import ready
from kheads.lab.preview.request import Request
from kheads.lab.preview.trial import cut_and_repaired, opened, score
from kheads.lab.terminal import metric as written
from kheads.lab.terminal import waiting
from kheads.methods.base import Goal
from kheads.methods.phases import Train
from kheads.storage.new_folder import check_free, new_folder
from kheads.training import recording
from kheads.training.progress import say

STEPS = 32  # budgets between the whole model and as little as can be
MORE = 3  # further sizes that are trained, as long as the last one held
WHO = "`at_most`"
# Fields of a job that a search does not read, with the reason in a few words.
UNREAD = {
    "fresh": "a size is looked for by cutting the model as it is",
    "pipelined": "a size is looked for without training",
    "repair": "a size is looked for by repairing what is left",
}


@dataclass(frozen=True)
class Try:
    """One model that was looked at.

    Attributes:
        budget: what was asked for.
        parts: what could go.
        stage: "repaired", or "trained" for what was made of it.
        quality: the headline metric on the set that decides.
        worse: how much worse that is than the unpruned model, in points, or in percent where lower is better.
        holds: whether that is little enough.
    """

    budget: Budget
    parts: str
    stage: str
    quality: float
    worse: float
    holds: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "budget": plain_budget(self.budget)}


@dataclass(frozen=True)
class Jury(Judged):
    """Who decides, and by what: the first evaluation set, its metric, and how much worse a model may be."""

    limit: float

    def judged(self, goal: Goal, stage: str, metrics: Metrics) -> Try:
        """What is to be thought of a model."""
        assert isinstance(goal.budget, Budget), "a search is over budgets"
        worse = self.loss(metrics)
        holds = math.isfinite(worse) and worse <= self.limit + ROUNDING
        return Try(goal.budget, goal.parts, stage, self.quality(metrics), worse, holds)

    def told(self, found: Try) -> str:
        """Such as: 20 % smaller, repaired: accuracy 88.2 %, 0.80 points below, which holds."""
        value, verdict = written(self.metric, found.quality), "holds" if found.holds else "is too much"
        quality = f"{self.metric} {value}, {self.below(found.worse)}"
        return f"{in_words(found.budget)}, {found.stage}: {quality}, which {verdict}"

    def below(self, worse: float) -> str:
        """Such as: 0.80 points below."""
        return below_told(self, worse) if math.isfinite(worse) else "no number"


@dataclass(frozen=True)
class Voice:
    """Tells people what is being done and what was found, unless it is to be quiet."""

    quiet: bool

    def say(self, text: str) -> None:
        """A line."""
        if not self.quiet:
            say(text)

    def waiting(self, text: str) -> AbstractContextManager[None]:
        """Shows that something is being done while the context is open."""
        return nullcontext() if self.quiet else waiting(text)


def search(
    job: Job, output: Path, *, overwrite: bool = False, quiet: bool = False, reads: Sequence[Path] = ()
) -> Outcome:
    """Makes the smallest model whose quality on the first evaluation set is at most so much worse; saves it.

    Args:
        job: what to do, with `at_most`.
        output: the folder to make.
        overwrite: replace an output folder that kheads made.
        quiet: no lines and no progress bars.
        reads: files that were read besides the job's, and must not be replaced.
    """
    _check(job)
    inputs: tuple[Any, ...] = (*inputs_of(job).values(), *reads)
    check_free(output, overwrite, inputs)
    settled, prepared = ready(replace(job, at_most=None, parts=None, at=None), WHO)
    voice = Voice(quiet)
    jury, goals, place, tries = _repaired(job, settled, prepared, voice)
    trains = _trains(job, settled)
    if not trains and place < 0:
        raise ValueError(_refusal(jury, tries))
    del prepared  # every run loads the model anew
    with _folder_beside(output) as folder:

        def attempt(at: int) -> tuple[Try, Outcome]:
            found = run(_job(job, settled, goals[at]), folder / str(at), quiet=quiet)
            metrics = found.record["metrics"]
            tried = jury.judged(
                goals[at], "trained" if trains else "repaired", metrics.get("recovered") or metrics["pruned"]
            )
            voice.say(jury.told(tried))
            tries.append(tried)
            return tried, found

        best, at, made = _settle(attempt, max(place, 0), len(goals), MORE if trains else 0)
        record = {**made.record, "report": {**made.record["report"], "at_most": _report(jury, best, tries, made)}}
        with new_folder(output, overwrite, inputs) as place_of:
            for item in (folder / str(at)).iterdir():
                shutil.move(item, place_of / item.name)
            recording.write(record, place_of)
    return replace(made, record=record)


def _trains(job: Job, settled: Job) -> bool:
    """Whether the smaller model is trained on."""
    after = any(isinstance(phase, Train) for phase in settled.phases()[1:])
    return not job.no_training and (after or job.recover_steps > 0)


def _check(job: Job) -> None:
    refuse_unread(job, UNREAD)
    if job.constraints:
        raise ValueError(f"`{min(job.constraints)}` does not go with `at_most`; name a size instead, or leave it out.")
    if PartialState().num_processes > 1:
        raise ValueError("`at_most` looks for a size in one process; start it without torchrun, or name a size.")


def _repaired(job: Job, settled: Job, prepared: Prepared, voice: Voice) -> tuple[Jury, list[Goal], int, list[Try]]:
    """Halves the budgets: who decides, the budgets, the place of the smallest that holds or -1, and what was tried.

    Args:
        job: what was asked for.
        settled: the same for a preview of it.
        prepared: its model and data.
        voice: says every step.
    """
    assert job.at_most is not None, "nothing to look for"
    with tempfile.TemporaryDirectory(prefix="kheads-", ignore_cleanup_errors=True) as folder:
        on = opened(settled, prepared, folder)
        with voice.waiting("measuring the unpruned model"):
            unpruned = on.bench.evaluate()[0]
        jury = Jury(**judged_by(prepared, unpruned), limit=job.at_most)
        voice.say(
            f"looking for the smallest model at most {points_told(jury, jury.limit)} worse on {jury.evaluation}, where "
            f"the unpruned one has {jury.metric} {value_told(jury, unpruned)}"
        )
        with voice.waiting("finding out what blocks cost"):
            goals = _goals(job, settled, prepared)
        with voice.waiting(f"scoring {named(goals[-1].parts)}"):
            score(on, goals[-1])  # scores that lead to the fewest blocks serve every budget
        tries: list[Try] = []
        holds, fails = -1, len(goals)
        while fails - holds > 1:
            middle = (holds + fails) // 2
            with voice.waiting(f"{goals[middle].budget}: cutting and repairing"):
                _, repaired = cut_and_repaired(on, goals[middle].kept(on.scores), _silent)
            tries.append(jury.judged(goals[middle], "repaired", repaired))
            voice.say(jury.told(tries[-1]))
            holds, fails = (middle, fails) if tries[-1].holds else (holds, middle)
    return jury, goals, holds, tries


def _goals(job: Job, settled: Job, prepared: Prepared) -> list[Goal]:
    """The budgets that may be tried, from the most that stays to the least: parameters, or speed at a batch."""
    asked = Request("params" if job.at is None else "speedup", job.parts)
    whole = replace(job, at_most=None, speedup=2.0, at=job.at).budget
    assert isinstance(whole, Budget), "a speed-up is a budget"
    parts = parts_for(prepared.model, asked.parts)[-1]
    goal = goal_for(settled, prepared.model, asked.budget(0.5, whole.batch), parts)
    most = EDGE * removable(goal)
    shares = sorted({math.floor(1000 * most * step / STEPS) / 1000 for step in range(1, STEPS + 1)} - {0.0})
    budgets = dict.fromkeys(asked.budget(share, whole.batch) for share in shares)
    found = met(goal, budgets)
    if not found:
        raise ValueError(nothing_to_remove(parts))
    return list(found)


def _settle(
    attempt: Callable[[int], tuple[Try, Outcome]], start: int, count: int, more: int
) -> tuple[Try, int, Outcome]:
    """Trains the model of the start, and smaller ones while they hold; larger ones where the first does not.

    Args:
        attempt: makes the model at a place.
        start: where to begin.
        count: how many places there are.
        more: how many further ones may be tried.
    """
    best, made = attempt(start)
    at, step = start, 1 if best.holds else -1
    for place in range(start + step, start + step * (more + 1), step):
        if not 0 <= place < count:
            break
        tried, found = attempt(place)
        if not tried.holds and best.holds:
            break
        if tried.holds or tried.worse < best.worse:
            best, at, made = tried, place, found
        if tried.holds and step < 0:
            break
    return best, at, made


def _job(job: Job, settled: Job, goal: Goal) -> Job:
    """The job with the amount that was found."""
    budget = goal.budget
    assert isinstance(budget, Budget), "a search is over budgets"
    amount: dict[str, Any] = (
        {"speedup": budget.amount} if budget.name == "speedup" else {"smaller": round(1 - budget.amount, 6)}
    )
    return replace(job, at_most=None, parts=goal.parts, method=settled.method_name, **amount)


def _report(jury: Jury, best: Try, tries: Sequence[Try], made: Outcome) -> dict[str, Any]:
    """What was asked for, who decided, and what further evaluation sets say of it."""
    metrics = made.record["metrics"]
    last = metrics.get("recovered") or metrics["pruned"]
    others = {name: replace(jury, evaluation=name) for name in last if name != jury.evaluation}
    further = {name: other.loss(last) for name, other in others.items() if jury.metric in last[name]}
    held = "holds" if best.holds else "does not hold"
    told = [
        f"{in_words(best.budget)} {held} at most {points_told(jury, jury.limit)}: {jury.below(best.worse)} on "
        f"{jury.evaluation}, which decided.",
        *(f"{name}, which had no say: {jury.below(worse)}." for name, worse in further.items()),
    ]
    return {
        "limit": jury.limit,
        "unit": "percent" if jury.lower_is_better else "points",
        "metric": jury.metric,
        "decided_by": jury.evaluation,
        "worse": best.worse,
        "holds": best.holds,
        "judged_by": further,
        "tried": [tried.to_dict() for tried in tries],
        "told": told,
    }


def _refusal(jury: Jury, tries: Sequence[Try]) -> str:
    nearest = min(tries, key=lambda tried: tried.worse if math.isfinite(tried.worse) else math.inf)
    return (
        f"`at_most` {jury.limit:g} cannot be reached without training: the nearest is {jury.told(nearest)}. Allow "
        "more, or leave out `no_training`."
    )


@contextmanager
def _folder_beside(output: Path) -> Iterator[Path]:
    """A temporary folder on the same disk, for models of which one is taken."""
    place = output.resolve().parent
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _silent(_: str) -> None:
    """Tells nobody."""
