"""What `kheads sweep` does and shows."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live

from kheads.blocks.budget import Budget
from kheads.lab import sweep as sweeps
from kheads.lab import terminal
from kheads.lab.jobs.job import Job
from kheads.lab.sweep import Engine, Status, Store, Sweep


def run_sweep(plan: Sweep, folder: Path, engine: Engine, as_json: bool) -> int:
    """Runs a sweep, shows how far it is, and returns how many runs failed."""
    command = shlex.join(["kheads", *sys.argv[1:]])
    status = _watched(plan, folder, engine, command, as_json)
    if as_json:
        failed = {name: status.reasons[name] for name, state in status.states.items() if state == "failed"}
        print(json.dumps({"results": str(folder), "done": status.count("done"), "failed": failed}))
    return status.count("failed")


def engine(workers: int | None, ray: str | None, cpus: float, gpus: float | None) -> Engine:
    """What executes the runs: this process, several, or Ray."""
    if ray is not None and workers is not None:
        raise ValueError("Give --workers, for processes of this machine, or --ray, not both.")
    if ray is not None:
        return sweeps.Ray(ray, cpus, gpus)
    return sweeps.Here() if workers is None else sweeps.Processes(workers)


def _watched(plan: Sweep, folder: Path, engine: Engine, command: str, quiet: bool) -> Status:
    """Runs the sweep under a live table; where there is no terminal, a line now and then, and the table at the end."""
    console, latest = terminal.console(stderr=quiet), [Status(plan.runs, {run.id: "waiting" for run in plan.runs})]
    begin = time.time()

    def watch(status: Status) -> None:
        latest[0] = status

    def shown() -> RenderableType:
        return _table(plan, latest[0], time.time() - begin)

    def said() -> str:
        return _line(latest[0], time.time() - begin)

    # A fixed stream: while a run of this process is logged, sys.stdout is its log.
    console.file = sys.stderr if quiet else sys.stdout
    with _live(console, shown) if console.is_terminal else terminal.lines(console, said):
        status = sweeps.drive(plan, folder, engine, command, watch)
    if not console.is_terminal:
        console.print(shown())
    for name, reason in status.reasons.items():
        console.print(f"failed: {name}: {reason}", markup=False)
    if not quiet:
        console.print(f"Results are in {folder}. Next: kheads report {folder} -o report.html")
    return status


def _line(status: Status, elapsed: float) -> str:
    running = ", ".join(f"{name} ({_clock(time.time() - began)})" for name, began in dict(status.began).items())
    left = status.seconds_left()
    return "; ".join(
        [
            f"{_clock(elapsed)}: {status.count('done')} of {len(status.runs)} runs done",
            *([f"{status.count('failed')} failed"] if status.count("failed") else []),
            *([f"running {running}"] if running else []),
            *([f"about {_clock(left)} left"] if left is not None else []),
        ]
    )


def _live(console: Any, shown: Callable[[], RenderableType]) -> Live:
    return Live(
        get_renderable=shown,
        console=console,
        refresh_per_second=2,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _table(plan: Sweep, status: Status, elapsed: float) -> RenderableType:
    series: dict[str, list[str]] = {}
    for run in plan.runs:
        series.setdefault(run.series, []).append(status.states[run.id])
    states = ("done", "running", "waiting", "failed")
    rows = [(name, *(found.count(state) or "" for state in states)) for name, found in series.items()]
    rows.append(("all", *(status.count(state) for state in states)))
    table = terminal.rows_table(f"sweep {plan.name}", ("", *states), rows)
    running = [f"running {name}: {_clock(time.time() - began)}" for name, began in dict(status.began).items()]
    left = status.seconds_left()
    time_left = (
        "" if left is None or not status.count("waiting") + status.count("running") else f", {_clock(left)} left"
    )
    return Group(table, *running, f"{_clock(elapsed)} so far{time_left}")


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def show_plan(plan: Sweep, folder: Path, as_json: bool) -> None:
    """Lists the runs and how far each is."""
    store = Store(folder)
    states = {run.id: store.state(run.id) or "waiting" for run in plan.runs}
    if as_json:
        runs = [{"id": run.id, "state": states[run.id], "job": run.job.to_dict()} for run in plan.runs]
        print(json.dumps({"results": str(folder), "runs": runs}))
        return
    rows = [(run.id, _keeps(run.job), run.job.seed, ", ".join(run.needs), states[run.id]) for run in plan.runs]
    title = f"sweep {plan.name}: {len(rows)} runs into {folder}"
    counted = all(not isinstance(run.job.budget, Budget) for run in plan.runs)
    terminal.console().print(
        terminal.rows_table(title, ("run", "K" if counted else "keeps", "seed", "after", "state"), rows)
    )


def _keeps(job: Job) -> Any:
    """K, or the budget in words; all, where neither was given."""
    return job.budget or "all"
