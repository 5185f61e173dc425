"""One run of a sweep, in whatever process it was sent to."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kheads.lab.jobs.running import run as run_job
from kheads.lab.packing import load_json
from kheads.lab.reading import read_json
from kheads.lab.sweep.plan import Run
from kheads.lab.sweep.store import Store
from kheads.training import recording

DONE, FAILED, BUSY = "done", "failed", "busy"
LOG, SETTINGS = "log.txt", "settings.json"


def perform(folder: str, run: Run, keep_model: bool = False, again: bool = False, directory: str | None = None) -> str:
    """Does a run and writes its result, unless another process is at it; returns "done", "failed" or "busy".

    It goes on from the checkpoints of an attempt that was cut off, also one of another process; its seconds are then
    those of the last attempt.

    Args:
        folder: the results folder.
        run: what to do.
        keep_model: leave the model there when the run is done.
        again: try it although it failed before.
        directory: the working directory, from which relative paths count.
    """
    if directory is not None:
        os.chdir(directory)
    store = Store(folder)
    with store.claim(run.id) as mine:
        if not mine:
            return BUSY
        state = store.state(run.id)
        if (state == DONE and (gives_model(store, run) or not keep_model)) or (state == FAILED and not again):
            return state
        record = _attempt(store, run)
        store.write(run.id, record)
        if record["run"]["state"] == DONE and not keep_model:
            store.discard(run.id)
        return str(record["run"]["state"])


def gives_model(store: Store, run: Run) -> bool:
    """Whether the model from which others start is there."""
    return store.has_whole(run.id) if run.gives_whole else store.has_model(run.id)


def failure(run: Run, reason: str, seconds: float = 0.0) -> dict[str, Any]:
    """The record of a run that did not succeed."""
    described = {"settings": run.job.to_dict(), "versions": recording.versions(), "machine": recording.machine()}
    return {**described, "run": _about(run, FAILED, reason, seconds)}


def _attempt(store: Store, run: Run) -> dict[str, Any]:
    begin = time.perf_counter()
    _forget_other_settings(store, run)
    with _logged(store.work(run.id) / LOG):
        try:
            record = _record(store, run)
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return failure(run, reason, time.perf_counter() - begin)
    record["settings"] = run.job.to_dict()  # as asked, without the paths of models in between
    return {**record, "run": _about(run, DONE, None, time.perf_counter() - begin)}


def _forget_other_settings(store: Store, run: Run) -> None:
    """Checkpoints of a run that was asked for differently are of no use to this one."""
    asked = {"settings": run.job.to_dict(), "model_from": run.model_from, "whole_from": run.whole_from}
    path = store.work(run.id) / SETTINGS
    if path.exists() and read_json(path, "delete it") != json.loads(json.dumps(asked)):
        store.discard(run.id)
    recording.write_json(asked, store.work(run.id) / SETTINGS)


def _record(store: Store, run: Run) -> dict[str, Any]:
    if store.has_model(run.id) and (
        store.has_whole(run.id) or not run.gives_whole
    ):  # cut off after the model was saved and before its result was
        return load_json(store.model(run.id) / recording.NAME)
    # A sweep does what its config says: a model that can do the task already is trained anew, unless that says not to.
    job, scores = dataclasses.replace(run.job, fresh=not run.job.trained), None
    if run.model_from is not None:
        job = job.on_trained(str(store.model(run.model_from)))
    if run.scores_from is not None:
        source = store.record(run.scores_from)
        scores = source["scores"] if source else None
    if run.whole_from is not None and scores and (job.k or 0) < len(scores):  # all heads: trained without gates
        job = job.on_trained(str(store.whole(run.whole_from)))
    whole = store.whole(run.id) if run.gives_whole else None
    done = run_job(job, store.model(run.id), resume=True, overwrite=True, quiet=True, scores=scores, whole=whole)
    return _with_unpruned(done.record, store.record(run.whole_from) if run.whole_from else None)


def _with_unpruned(record: dict[str, Any], source: dict[str, Any] | None) -> dict[str, Any]:
    """Takes over what the model reached before anything was changed, where the run that it is served by measured it."""
    if source and "unpruned" in source["metrics"]:
        record["metrics"] = {"unpruned": source["metrics"]["unpruned"], **record["metrics"]}
    return record


def _about(run: Run, state: str, reason: str | None, seconds: float) -> dict[str, Any]:
    job = run.job
    return {
        "id": run.id,
        "method": job.method_name,
        "k": job.k,
        "seed": job.seed,
        "pipelined": job.pipelined,
        "axes": dict(run.axes),
        "state": state,
        "reason": reason,
        "seconds": seconds,
        "model_from": run.model_from,
        "scores_from": run.scores_from,
        "whole_from": run.whole_from,
    }


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What the run prints goes into its log."""
    with (
        path.open("a", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        print(f"process {os.getpid()} on {platform.node()}", flush=True)
        yield
