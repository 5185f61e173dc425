"""kheads sweep: many runs from one config."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live

from kheads.cli.app import JsonOption
from kheads.lab import sweep as sweeps
from kheads.lab import terminal
from kheads.lab.sweep import Engine, Status, Store, Sweep


def sweep(
    config: Annotated[Path, typer.Argument(help="The TOML file that says what to run.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Results folder; by default named like the config, beside it.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Run in so many processes of this machine.")] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Run on Ray: local starts one here, auto or an address joins a cluster.", metavar="ADDRESS"),
    ] = None,
    cpus: Annotated[float, typer.Option(help="Cores of a run, with --ray.")] = 1,
    gpus: Annotated[
        float | None, typer.Option(help="GPUs of a run, with --ray; 0.25 puts four on one. One, where there are any.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Show the runs, check that each can be built, and run none.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run every method, K and seed of a config, and keep one result file per run.

    Start it again to go on: finished runs are skipped, failed ones are tried again, and a run that was cut off goes on
    from its last checkpoint. Several sweeps may work in one folder at a time.

    Example: `kheads sweep experiments/made_nli.toml`
    """
    plan = sweeps.read(config)
    folder = output or config.with_suffix("")
    if dry_run:
        _show_plan(plan, folder, as_json)
        return
    engine = _engine(workers, ray, cpus, gpus)
    command = shlex.join(["kheads", *sys.argv[1:]])
    status = _watched(plan, folder, engine, command, as_json)
    if as_json:
        failed = {name: status.reasons[name] for name, state in status.states.items() if state == "failed"}
        print(json.dumps({"results": str(folder), "done": status.count("done"), "failed": failed}))
    if status.count("failed"):
        raise typer.Exit(1)


def _engine(workers: int | None, ray: str | None, cpus: float, gpus: float | None) -> Engine:
    if ray is not None and workers is not None:
        raise ValueError("Give --workers, for processes of this machine, or --ray, not both.")
    if ray is not None:
        return sweeps.Ray(ray, cpus, gpus)
    return sweeps.Here() if workers is None else sweeps.Processes(workers)


def _watched(plan: Sweep, folder: Path, engine: Engine, command: str, quiet: bool) -> Status:
    """Runs the sweep under a live table; where there is no terminal, the table comes at the end."""
    console, latest = terminal.console(stderr=quiet), [Status(plan.runs, {run.id: "waiting" for run in plan.runs})]
    begin = time.time()

    def watch(status: Status) -> None:
        latest[0] = status

    def shown() -> RenderableType:
        return _table(plan, latest[0], time.time() - begin)

    # A fixed stream: while a run of this process is logged, sys.stdout is its log.
    console.file = sys.stderr if quiet else sys.stdout
    with _live(console, shown):
        status = sweeps.drive(plan, folder, engine, command, watch)
    for name, reason in status.reasons.items():
        console.print(f"failed: {name}: {reason}", markup=False)
    if not quiet:
        console.print(f"Results are in {folder}. Next: kheads report {folder} -o report.html")
    return status


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


def _show_plan(plan: Sweep, folder: Path, as_json: bool) -> None:
    store = Store(folder)
    states = {run.id: store.state(run.id) or "waiting" for run in plan.runs}
    if as_json:
        runs = [{"id": run.id, "state": states[run.id], "job": run.job.to_dict()} for run in plan.runs]
        print(json.dumps({"results": str(folder), "runs": runs}))
        return
    rows = [(run.id, run.job.k or "all", run.job.seed, ", ".join(run.needs), states[run.id]) for run in plan.runs]
    title = f"sweep {plan.name}: {len(rows)} runs into {folder}"
    terminal.console().print(terminal.rows_table(title, ("run", "K", "seed", "after", "state"), rows))
