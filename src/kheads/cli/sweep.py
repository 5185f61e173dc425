"""kheads sweep: many runs from one config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kheads.blocks.fields import NotNegative, Positive, check_value
from kheads.cli.allocation import keep_freed_memory
from kheads.cli.app import JsonOption


def sweep(
    config: Annotated[Path, typer.Argument(help="The TOML file that says what to run.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Results folder; by default named like the config, beside it.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Run in so many processes of this machine.")] = None,
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
    """Run every method, K or budget, and seed of a config, and keep one result file per run.

    Start it again to go on: finished runs are skipped, failed ones are tried again, and a run that was cut off goes on
    from its last checkpoint. Several sweeps may work in one folder at a time.

    Example: `kheads sweep experiments/made_nli.toml`
    """
    check_value(Positive, cpus, "--cpus")
    check_value(NotNegative | None, gpus, "--gpus")
    keep_freed_memory()
    from kheads.cli.sweep_table import engine, run_sweep, show_plan
    from kheads.lab import sweep as sweeps

    plan = sweeps.read(config)
    folder = output or config.with_suffix("")
    if dry_run:
        show_plan(plan, folder, as_json)
    elif run_sweep(plan, folder, engine(workers, ray, cpus, gpus), as_json):
        raise typer.Exit(1)
