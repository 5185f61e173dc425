"""From a plan to its results: starts what is ready, waits for what others do, and ends when every run has a result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kheads.lab.jobs.job import DEFAULTS, unread
from kheads.lab.sweep.engines import Engine, LostProcessError
from kheads.lab.sweep.performing import BUSY, DONE, FAILED, failure, gives_model, perform
from kheads.lab.sweep.plan import Run, Sweep
from kheads.lab.sweep.store import Store
from kheads.training import recording

POLL_SECONDS = 0.5
WAITING, RUNNING = "waiting", "running"


@dataclass
class Status:
    """How far a sweep is, for whoever shows it, also from another thread.

    Attributes:
        runs: what there is to do.
        states: "waiting", "running", "done" or "failed" by run.
        began: when each running one was started.
        seconds: how long each finished one took.
        reasons: why each failed one failed.
        slots: how many run at a time.
    """

    runs: tuple[Run, ...]
    states: dict[str, str]
    began: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    slots: int = 1

    def count(self, state: str) -> int:
        """How many runs are in a state."""
        return sum(found == state for found in self.states.values())

    def seconds_left(self) -> float | None:
        """A guess from the finished runs, those of the same series first; None before there are any."""
        now, seconds, began = time.time(), dict(self.seconds), dict(self.began)
        if not seconds:
            return None
        overall = sum(seconds.values()) / len(seconds)
        series: dict[str, list[float]] = {}
        for run in self.runs:
            if run.id in seconds:
                series.setdefault(run.series, []).append(seconds[run.id])
        left = 0.0
        for run in self.runs:
            if self.states[run.id] in (WAITING, RUNNING):
                known = series.get(run.series)
                guess = sum(known) / len(known) if known else overall
                left += max(guess - (now - began.get(run.id, now)), 0.0)
        return left / max(self.slots, 1)


def drive(
    sweep: Sweep,
    folder: str | Path,
    engine: Engine,
    command: str = "",
    watch: Callable[[Status], Any] = lambda status: None,
) -> Status:
    """Runs a sweep to its end; finished runs are not repeated, failed ones are tried again.

    Args:
        sweep: the plan.
        folder: the results folder; other sweeps may be at work in it.
        engine: where runs are executed.
        command: how the sweep was started, for its record.
        watch: called with the status when something may have changed.
    """
    store = Store(folder)
    _check_settings(sweep, store)
    with store.present() as me:
        about = {"command": command, "versions": recording.versions(), "machine": recording.machine()}
        store.describe({**sweep.describe(), **about})
        try:
            status = _Driver(sweep, store, engine, watch).run()
        finally:
            engine.close()
        with store.alone(me) as alone:
            if alone and not sweep.keep_models:
                _discard_shared(sweep, store, status)
    return status


class _Driver:
    """The loop, and what it remembers."""

    def __init__(self, sweep: Sweep, store: Store, engine: Engine, watch: Callable[[Status], Any]):
        self.sweep, self.store, self.engine, self.watch = sweep, store, engine, watch
        self.status = Status(sweep.runs, {run.id: WAITING for run in sweep.runs})
        self.running: dict[Future[str], Run] = {}
        self.lost: dict[str, int] = {}
        # What failed before this sweep is tried again, once; what fails meanwhile, here or elsewhere, is not.
        self.again = {run.id for run in sweep.runs if store.state(run.id) == FAILED}
        self.wanted = self._wanted_models()

    def run(self) -> Status:
        while self._open():
            self.status.slots = self.engine.slots
            self._note_finished()
            self._fail_dependants()
            self._start()
            self._collect()
            self.watch(self.status)
        return self.status

    def _open(self) -> list[Run]:
        return [run for run in self.sweep.runs if self.status.states[run.id] in (WAITING, RUNNING)]

    def _waiting(self) -> list[Run]:
        return [run for run in self.sweep.runs if self.status.states[run.id] == WAITING]

    def _wanted_models(self) -> set[str]:
        """Runs whose models something still has to start from."""
        unfinished = [run for run in self.sweep.runs if self.store.state(run.id) != DONE]
        return {name for run in unfinished for name in run.starts_from}

    def _note_finished(self) -> None:
        """Takes over results that are there: from before, or from another sweep."""
        for run in self._waiting():
            state = self.store.state(run.id)
            useless = run.id in self.wanted and not gives_model(self.store, run)
            if (state == DONE and not useless) or (state == FAILED and run.id not in self.again):
                self._finish(run)

    def _finish(self, run: Run) -> None:
        record = self.store.record(run.id)
        assert record is not None
        self.status.states[run.id] = record["run"]["state"]
        self.status.began.pop(run.id, None)
        if record["run"]["state"] == FAILED:
            self.status.reasons[run.id] = record["run"]["reason"]
        else:
            self.status.seconds[run.id] = record["run"]["seconds"]

    def _fail_dependants(self) -> None:
        for run in self._waiting():
            failed = [name for name in run.needs if self.status.states[name] == FAILED]
            if failed:
                self._fail(run, f"{failed[0]}, which it needs, failed: {self.status.reasons[failed[0]]}")

    def _fail(self, run: Run, reason: str) -> None:
        with self.store.claim(run.id) as mine:
            if mine and self.store.state(run.id) != DONE:
                self.store.write(run.id, failure(run, reason))
                self.again.discard(run.id)
                self._finish(run)

    def _start(self) -> None:
        for run in self._waiting():
            if len(self.running) >= self.engine.slots:
                return
            ready = all(self.status.states[name] == DONE for name in run.needs)
            if not ready or self.store.claimed(run.id):
                continue
            self.status.states[run.id], self.status.began[run.id] = RUNNING, time.time()
            self.watch(self.status)
            keep = self.sweep.keep_models or run.id in self.wanted
            arguments = (str(self.store.folder), run, keep, run.id in self.again, str(Path.cwd()))
            self.running[self.engine.submit(perform, *arguments)] = run

    def _collect(self) -> None:
        if not self.running:
            if self._waiting():
                time.sleep(POLL_SECONDS)  # another sweep has what is left
            return
        done, _ = wait(self.running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            run = self.running.pop(future)
            try:
                state = future.result()
            except LostProcessError as error:
                self._count_loss(run, str(error))
                continue
            if state == BUSY:
                self._wait_again(run)
            else:
                self.again.discard(run.id)
                self._finish(run)

    def _count_loss(self, run: Run, reason: str) -> None:
        """A run goes on from its last checkpoint, unless it has lost too many processes."""
        self.lost[run.id] = self.lost.get(run.id, 0) + 1
        self._wait_again(run)
        if self.lost[run.id] >= self.engine.attempts:
            self._fail(run, reason)

    def _wait_again(self, run: Run) -> None:
        self.status.states[run.id] = WAITING
        self.status.began.pop(run.id, None)


def _check_settings(sweep: Sweep, store: Store) -> None:
    """A finished run of the same name must have been asked for in the same way, or its result is not ours.

    What a run never reads may have changed.
    """
    for run in sweep.runs:
        record = store.record(run.id)
        if record is None or record["run"]["state"] != DONE:
            continue
        asked = json.loads(json.dumps(run.job.to_dict()))
        ignored = unread(run.job)
        for name, value in ((name, value) for name, value in asked.items() if name not in ignored):
            found = record["settings"].get(name, DEFAULTS.get(name))
            if found != value:
                raise ValueError(
                    f"{store.folder} holds {run.id} with {name} = {found!r}, and this sweep asks for {value!r}; "
                    "give another folder with -o, or delete that run."
                )


def _discard_shared(sweep: Sweep, store: Store, status: Status) -> None:
    """Deletes the models that others started from, where no failed run may still want them."""
    wanted = {name for run in sweep.runs if status.states[run.id] != DONE for name in run.starts_from}
    for run in sweep.runs:
        if run.shared and run.id not in wanted:
            store.discard(run.id)
