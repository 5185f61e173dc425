"""kheads choose: which K to take."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from kheads.cli.app import JsonOption
from kheads.cli.report import EfficiencyOption
from kheads.lab import terminal
from kheads.lab.report import choosing
from kheads.lab.report.choosing import Choice, Option
from kheads.lab.report.results import read


def choose(
    folder: Annotated[Path, typer.Argument(help="Results of a sweep.")],
    at_least: Annotated[
        float | None, typer.Option(help="The smallest K whose quality is at least this good, such as 0.80.")
    ] = None,
    max_ms: Annotated[float | None, typer.Option(help="The largest K within so many milliseconds a batch.")] = None,
    max_params: Annotated[
        str | None, typer.Option(help="The largest K within so many parameters, such as 80M.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Only this method (dsp, dsp-pipelined, ...); the best one at each K otherwise.")
    ] = None,
    evaluation: Annotated[str | None, typer.Option("--set", help="The evaluation set that counts.")] = None,
    efficiency: EfficiencyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Name the K that reaches a quality or fits a budget, from measured results, and say why.

    Example: `kheads choose results --at-least 0.80`
    """
    if sum(given is not None for given in (at_least, max_ms, max_params)) != 1:
        raise ValueError("Give one of --at-least, --max-ms and --max-params.")
    results = read(folder, evaluation, efficiency or ())
    if at_least is not None:
        choice = choosing.at_least(results, at_least, method)
    elif max_ms is not None:
        choice = choosing.within(results, max_ms, "ms", method)
    else:
        choice = choosing.within(results, choosing.parse_count(max_params or ""), "parameters", method)
    if as_json:
        print(json.dumps(choice.to_dict()))
        return
    terminal.console().print(_shown(choice, results.metric))


def _shown(choice: Choice, metric: str) -> Group:
    rows = [_row(option, metric, option == choice.option) for option in reversed(choice.options)]
    table = terminal.rows_table("", ("K", "method", metric, "95 % interval", "parameters", "ms"), rows)
    return Group(f"[bold]K = {choice.option.k}[/bold]", choice.why.replace("[", r"\["), table)


def _row(option: Option, metric: str, chosen: bool) -> list[str]:
    quality = option.quality
    spread = quality is not None and math.isfinite(quality.low)
    cells = [
        f"{'→ ' if chosen else ''}{option.k}",
        option.method or "-",
        "-" if quality is None else terminal.metric(metric, quality.mean),
        f"{terminal.metric(metric, quality.low)} to {terminal.metric(metric, quality.high)}"
        if quality and spread
        else "-",
        "-" if option.parameters is None else f"{option.parameters:,.0f}",
        "-" if option.ms is None else f"{option.ms:.1f}",
    ]
    return [f"[bold]{cell}[/bold]" for cell in cells] if chosen else cells
