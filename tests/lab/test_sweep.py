"""Sweeps: every run has one result, whatever is killed, shared or wrong."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command import place
from kheads.lab.jobs import running as jobs
from kheads.lab.jobs.job import Job
from kheads.lab.sweep import Engine, Here, Processes, Ray, Status, Store, drive, expand, performing

__all__ = ["place"]

JOB = {"model": "tiny", "max_steps": 3, "batch_size": 4, "save_steps": 1, "logging_steps": 1, "lr": 0.01}
FILES = {"train": "train.jsonl", "eval": {"dev": "dev.jsonl"}}


def config(grid: Any, **changes: Any) -> dict[str, Any]:
    methods = {"dsp": {"preset": "short"}, "michel": {"per_round": 4}}
    return {"job": {**JOB, "data": FILES, **changes}, "methods": methods, "grid": grid}


def sweep(folder: Path, given: Mapping[str, Any], engine: Engine | None = None) -> Status:
    return drive(expand(given), folder, engine or Here())


def records(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))}


def outcome(record: Mapping[str, Any]) -> Any:
    """What a run found, without how long it took."""
    return record["kept"], record["metrics"], record["after"]


def test_a_sweep_is_complete_and_done_once(place: Path) -> None:
    """Every method; all results by the contract; models gone; started again, it does nothing."""
    given = config(
        {
            "methods": ["none", "dsp", "ste", "voita", "michel", "retrain", "random"],
            "k": [3],
            "seeds": [0],
            "pipelined": [False, True],
        },
        gate_steps=2,
    )
    status = sweep(place / "out", given)
    found = records(place / "out")
    assert status.reasons == {} and len(found) == 10 == status.count("done") and status.seconds_left() == 0
    for name, record in found.items():
        keys = {"method", "settings", "metric", "metrics", "kept", "scores", "before", "after", "report", "history"}
        assert keys | {"versions", "machine"} <= record.keys()
        run = record["run"]
        assert run["id"] == name and run["state"] == "done" and run["reason"] is None and run["seconds"] > 0
        assert record["settings"]["model"] == "tiny" and record["method"]["name"] == run["method"]
        assert record["after"]["heads"] == (12 if run["method"] == "none" else 3)
        shared = run["pipelined"] or run["method"] in ("michel", "random")
        assert run["model_from"] == ("none-s0" if shared else None)
        if shared:
            assert record["metrics"]["unpruned"] == found["none-s0"]["metrics"]["pruned"]
    about = json.loads((place / "out" / "sweep.json").read_text())
    assert {"name", "task", "axes", "command", "versions", "machine"} <= about.keys()
    assert [path.name for path in (place / "out" / "work").iterdir()] == ["locks"]

    before = {path: path.stat().st_mtime_ns for path in (place / "out" / "runs").iterdir()}
    assert sweep(place / "out", given).count("done") == 10
    assert before == {path: path.stat().st_mtime_ns for path in (place / "out" / "runs").iterdir()}


def test_the_rounds_of_michel_give_what_runs_of_their_own_give(place: Path) -> None:
    """One estimate down to 1 head serves 9 and 4, between the ends of rounds and at one, and after recovery."""
    grid = {"methods": ["michel"], "k": [9, 4, 1], "seeds": [1]}
    sweep(place / "together", config(grid, recover_steps=1))
    together = records(place / "together")
    for k in (9, 4):
        sweep(place / f"alone{k}", config({**grid, "k": [k]}, recover_steps=1))
        alone = records(place / f"alone{k}")[f"michel-k{k}-s1"]
        shared = together[f"michel-k{k}-s1"]
        assert shared["run"]["scores_from"] == "michel-k1-s1" and alone["run"]["scores_from"] is None
        assert outcome(shared) == outcome(alone)
        assert "estimate" in alone["report"]["seconds"] and "estimate" not in shared["report"]["seconds"]


def test_one_first_part_of_prune_and_retrain_serves_every_k(place: Path) -> None:
    """Trained and scored once for 2 heads; the cut to 5 and what follows are those of a run of its own."""
    grid = {"methods": ["retrain"], "k": [12, 5, 2], "seeds": [1]}
    sweep(place / "together", config(grid))
    together = records(place / "together")
    assert set(together) == {f"retrain-k{k}-s1" for k in (12, 5, 2)}
    assert [path.name for path in (place / "together" / "work").iterdir()] == ["locks"]
    for k in (12, 5):
        sweep(place / f"alone{k}", config({**grid, "k": [k]}))
        alone, shared = records(place / f"alone{k}")[f"retrain-k{k}-s1"], together[f"retrain-k{k}-s1"]
        assert shared["run"]["whole_from"] == "retrain-k2-s1" and alone["run"]["whole_from"] is None
        assert outcome(shared) == outcome(alone) and shared["scores"] == alone["scores"]
        assert shared["report"].get("method") == alone["report"].get("method")


@pytest.mark.parametrize("pipelined", [False, True])
def test_one_training_of_voita_gives_what_runs_of_their_own_give(place: Path, pipelined: bool) -> None:
    """Trained once for 2 heads, selected again for 5; all 12 heads are a run without gates, as they are alone."""
    grid = {"methods": ["voita"], "k": [12, 5, 2], "seeds": [1], "pipelined": [pipelined]}
    sweep(place / "together", config(grid, recover_steps=1, gate_steps=2))
    together = records(place / "together")
    assert [path.name for path in (place / "together" / "work").iterdir()] == ["locks"]
    for k in (12, 5):
        sweep(place / f"alone{k}", config({**grid, "k": [k]}, recover_steps=1, gate_steps=2))
        name = f"voita-k{k}-s1" + ("-pipelined" if pipelined else "")
        alone, shared = records(place / f"alone{k}")[name], together[name]
        assert shared["run"]["scores_from"] is not None and alone["run"]["scores_from"] is None
        assert outcome(shared) == outcome(alone) and shared["scores"] == alone["scores"]
        assert shared["report"].get("method") == alone["report"].get("method")
        if k == 5:
            assert "gates" in alone["report"]["seconds"] and "gates" not in shared["report"]["seconds"]


def test_a_shared_model_is_what_a_run_of_its_own_trains(place: Path) -> None:
    """A pipelined run that trains the model itself finds the same heads, also after other runs in the process."""
    given = config({"methods": ["dsp"], "k": [3], "seeds": [2], "pipelined": [True]}, gate_steps=2)
    sweep(place / "out", given)
    own = jobs.run(replace(expand(given).runs[1].job, fresh=True), place / "own", quiet=True)
    assert outcome(records(place / "out")["dsp-k3-s2-pipelined"]) == outcome(own.record)


def test_failures_are_recorded_and_tried_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that cannot be done says why and stops nothing but those that need it; mended, the same sweep completes."""
    given = config({"methods": ["dsp", "michel"], "k": [99, 3], "seeds": [0]})
    status = sweep(place / "out", given)
    assert status.reasons.keys() == {"dsp-k99-s0", "michel-k99-s0"}
    record = records(place / "out")["dsp-k99-s0"]
    assert record["run"]["reason"] == "ValueError: `k` must be between 1 and 12 (the model's heads); got 99."
    assert record["run"]["state"] == "failed" and {"settings", "versions", "machine"} <= record.keys()
    assert "Traceback" in (place / "out" / "work" / "dsp-k99-s0" / "log.txt").read_text()

    real, calls = performing.run_job, []

    def without_training(job: Job, *args: Any, **kwargs: Any) -> Any:
        calls.append(job.method)
        if job.method == "none":
            raise RuntimeError("CUDA out of memory\nand more")
        return real(job, *args, **kwargs)

    monkeypatch.setattr(performing, "run_job", without_training)
    given = config({"methods": ["michel"], "k": [3], "seeds": [1]})
    reasons = sweep(place / "out", given).reasons
    assert reasons["none-s1"] == "RuntimeError: CUDA out of memory and more"
    assert reasons["michel-k3-s1"].startswith("none-s1, which it needs, failed: RuntimeError") and calls == ["none"]
    monkeypatch.setattr(performing, "run_job", real)
    assert sweep(place / "out", given).reasons == {}


def test_a_model_that_is_needed_later_is_made_again(place: Path) -> None:
    """The unpruned model of a finished sweep is gone; a larger sweep in the same folder trains it once more."""
    sweep(place / "out", config({"methods": ["none"], "seeds": [0]}))
    first = records(place / "out")["none-s0"]
    assert not Store(place / "out").has_model("none-s0")
    assert sweep(place / "out", config({"methods": ["random"], "k": [3], "seeds": [0]})).count("done") == 2
    assert outcome(records(place / "out")["none-s0"]) == outcome(first)


def test_a_result_of_other_settings_is_not_taken(place: Path) -> None:
    sweep(place / "out", config({"methods": ["none"], "seeds": [0]}))
    with pytest.raises(ValueError, match="holds none-s0 with max_steps = 3, and this sweep asks for 4; give another"):
        sweep(place / "out", config({"methods": ["none"], "seeds": [0]}, max_steps=4))


def test_what_a_run_never_reads_may_change(place: Path) -> None:
    """The number of examples to score with concerns methods that score, and not a finished run of one that learns."""
    grid = {"methods": ["ste", "random"], "k": [3], "seeds": [0]}
    sweep(place / "out", config(grid))
    finished = records(place / "out")
    with pytest.raises(ValueError, match="holds random-k3-s0 with estimate_examples = None, and this sweep asks for 4"):
        sweep(place / "out", config(grid, estimate_examples=4))
    only = {**grid, "methods": ["ste"]}
    assert sweep(place / "out", config(only, estimate_examples=4)).count("done") == 1
    assert records(place / "out") == finished


def test_models_stay_where_they_are_asked_for(place: Path) -> None:
    sweep(place / "out", {**config({"methods": ["random"], "k": [3], "seeds": [0]}), "keep_models": True})
    assert all(Store(place / "out").has_model(name) for name in ("none-s0", "random-k3-s0"))


# ------------------------------------------------------------------------------------------- other processes, and kills

LONG = {"max_steps": 24, "save_steps": 4}


_UNDISTURBED: list[dict[str, Any]] = []


@pytest.fixture
def undisturbed(place: Path) -> Any:
    """The record of a run to which nothing happens; done once for all tests."""
    if not _UNDISTURBED:
        job = expand(config({"methods": ["dsp"], "k": [3], "seeds": [0]}, **LONG)).runs[0].job
        job = replace(job, fresh=True)  # as a sweep does it
        _UNDISTURBED.append(jobs.run(job, place / "undisturbed", quiet=True).record)
    return _UNDISTURBED[0]


def assert_same(record: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """The same heads, scores and metrics, up to the rounding of another number of threads."""
    assert record["kept"] == other["kept"] and record["scores"] == pytest.approx(other["scores"], rel=1e-4)
    for stage, sets in other["metrics"].items():
        assert record["metrics"][stage]["dev"] == pytest.approx(sets["dev"], rel=1e-4)
    steps = [[entry["step"] for entry in found["history"]["gates"] if "loss" in entry] for found in (record, other)]
    assert steps[0] == steps[1] == list(range(1, 25))


def kill_in_the_middle(folder: Path, name: str, killed: list[int]) -> threading.Thread:
    """Kills the process of a run once it has written a checkpoint."""

    def watch() -> None:
        log, work = folder / "work" / name / "log.txt", folder / "work" / name
        while not (folder / "runs" / f"{name}.json").exists():  # then it is too late
            if log.exists() and any(work.glob("model.run/*/checkpoint-*/trainer_state.json")):
                killed.append(int(log.read_text().split()[1]))
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("name", [pytest.param("processes", marks=pytest.mark.slow), "ray"])
def test_killing_a_worker_loses_nothing(name: str, place: Path, undisturbed: Any) -> None:
    """The run goes on in another process from its checkpoint, and the other runs do not notice."""
    if name == "ray":
        pytest.importorskip("ray", reason="kheads[ray] is not installed")
    given, killed = config({"methods": ["dsp", "ste"], "k": [3], "seeds": [0]}, **LONG), list[int]()
    thread = kill_in_the_middle(place / "out", "dsp-k3-s0", killed)
    status = sweep(place / "out", given, Processes(2) if name == "processes" else Ray("local", cpus=1))
    thread.join()
    assert killed and killed[0] != os.getpid()
    assert status.reasons == {} and status.count("done") == 2
    assert_same(records(place / "out")["dsp-k3-s0"], undisturbed)


@pytest.mark.slow
def test_two_sweeps_share_a_folder_and_a_killed_one_is_resumed(place: Path, undisturbed: Any) -> None:
    """Two commands work on the same runs; one is killed in the middle of a run, which the other completes."""
    (place / "both.toml").write_text(
        "keep_models = true\n"
        + "[job]\nmodel = 'tiny'\nmax_steps = 24\nsave_steps = 4\nbatch_size = 4\nlogging_steps = 1\nlr = 0.01\n"
        + "data = {train = 'train.jsonl', eval = {dev = 'dev.jsonl'}}\n"
        + "[methods.dsp]\npreset = 'short'\n[grid]\nmethods = ['dsp', 'ste']\nk = [3]\nseeds = [0]\n"
    )
    killed: list[int] = []
    thread = kill_in_the_middle(place / "both", "dsp-k3-s0", killed)
    command = [sys.executable, "-m", "kheads", "sweep", "both.toml", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    told = {process.pid: process.communicate()[0] for process in both}
    thread.join()
    codes = {process.pid: process.returncode for process in both}
    assert codes.pop(killed[0]) == -signal.SIGKILL and list(codes.values()) == [0]
    assert json.loads(told[next(iter(codes))])["done"] == 2
    found = records(place / "both")
    assert_same(found["dsp-k3-s0"], undisturbed)
    assert len(found) == 2
    for name in found:  # every run was begun once, the killed one twice
        log = (place / "both" / "work" / name / "log.txt").read_text()
        assert log.count("process ") == (2 if name == "dsp-k3-s0" else 1)


def test_a_run_that_kills_its_processes_fails_in_the_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times, then it is recorded, and the rest goes on."""
    started: list[str] = []

    class Deadly(Here):
        attempts = 3

        def submit(self, perform: Any, *args: Any) -> Any:
            started.append(args[1].id)
            if args[1].job.method == "dsp":
                from concurrent.futures import Future

                from kheads.lab.sweep.engines import LostProcessError

                future: Future[str] = Future()
                future.set_exception(LostProcessError("its process died"))
                return future
            return super().submit(perform, *args)

    status = sweep(place / "out", config({"methods": ["none", "dsp"], "k": [3], "seeds": [0]}), Deadly())
    assert status.reasons == {"dsp-k3-s0": "its process died"} and started.count("dsp-k3-s0") == 3
    assert status.states["none-s0"] == "done"


def test_a_sweep_deletes_only_the_working_folders_that_it_made(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    (store.work("ours") / "model").mkdir()
    foreign = tmp_path / "out" / "work" / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    assert store.work("foreign") == foreign
    for name in ("ours", "foreign", "absent"):
        store.discard(name)
    assert not (tmp_path / "out" / "work" / "ours").exists()
    assert (foreign / "notes.txt").read_text() == "mine"
