"""kheads choose: which K or budget to take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kheads.blocks.fields import Positive, check_value
from kheads.cli.app import JsonOption
from kheads.cli.report import EfficiencyOption, ResultsArgument
from kheads.storage import strict_json

if TYPE_CHECKING:
    from rich.console import Group

    from kheads.lab.report.choosing import Choice, Option


def choose(
    folder: ResultsArgument,
    at_least: Annotated[
        float | None, typer.Option(help="Take the smallest K whose quality is at least this good, such as 0.80.")
    ] = None,
    max_ms: Annotated[
        float | None, typer.Option(help="Take the largest K within this many milliseconds a batch.")
    ] = None,
    max_params: Annotated[
        str | None, typer.Option(help="Take the largest K within this many parameters, such as 80M.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Consider only this method, by its key. Default: the best one at each K.")
    ] = None,
    evaluation: Annotated[str | None, typer.Option("--set", help="The evaluation set that counts.")] = None,
    efficiency: EfficiencyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Name the K that reaches a quality or fits a budget, from measured results, and say why.

    Example: `kheads choose results --at-least 0.80`
    """
    from kheads.lab import terminal
    from kheads.lab.report import choosing
    from kheads.lab.report.results import is_run, read

    limits = {"--at-least": at_least, "--max-ms": max_ms, "--max-params": max_params}
    given = {option: value for option, value in limits.items() if value is not None}
    check_value(float | None, at_least, "--at-least")
    check_value(Positive | None, max_ms, "--max-ms")
    if is_run(folder) and len(given) <= 1:
        _one_run(folder, given, evaluation, as_json)
        return
    if len(given) != 1:
        raise ValueError("Give one of --at-least, --max-ms and --max-params.")
    results = read(folder, evaluation, efficiency or ())
    if at_least is not None:
        choice = choosing.at_least(results, at_least, method)
    elif max_ms is not None:
        choice = choosing.within(results, max_ms, "ms", method)
    else:
        choice = choosing.within(results, choosing.parse_count(max_params or ""), "parameters", method)
    if as_json:
        print(strict_json.dumps(choice.to_dict()))
        return
    terminal.console().print(_shown(choice, results.metric))


def _one_run(folder: Path, given: dict[str, Any], evaluation: str | None, as_json: bool) -> None:
    """One run is no choice; what it says of its K is told all the same."""
    import dataclasses

    from kheads.lab import terminal
    from kheads.lab.report.alone import alone, how_to_choose
    from kheads.lab.report.results import read_run

    run, _ = read_run(folder)
    found = alone(run, evaluation)
    enough = _enough(found, given)
    option, value = next(iter(given.items()), ("--at-least", "QUALITY"))
    verdict = "" if enough is None else f" It {'meets' if enough else 'does not meet'} {option} {value}."
    why = f"{found.told()}{verdict} {how_to_choose(run, folder, f'{option} {value}')}"
    if as_json:
        plain = {**dataclasses.asdict(found), "enough": enough}
        print(strict_json.dumps({"chosen": None, "why": why, "options": [], "run": plain}))
        return
    name = run.budget.asked if run.budget else f"K = {found.k}"
    terminal.console().print(f"[bold]{name}[/bold]\n{why.replace('[', chr(92) + '[')}")


def _enough(found: Any, given: dict[str, Any]) -> bool | None:
    """Whether a run meets what was asked for; None where nothing was asked, or that is not known."""
    from kheads.lab.report.alone import reaches
    from kheads.lab.report.choosing import parse_count

    if "--at-least" in given:
        return reaches(found, given["--at-least"])
    return bool(found.parameters <= parse_count(given["--max-params"])) if "--max-params" in given else None


def _shown(choice: Choice, metric: str) -> Group:
    from rich.console import Group

    from kheads.lab import terminal

    rows = [_row(option, metric, option == choice.option) for option in reversed(choice.options)]
    budgets = any(option.budget for option in choice.options)
    columns = ("asked for" if budgets else "K", "method", metric, _ends_name(choice), "parameters", "ms")
    table = terminal.rows_table("", columns, rows)
    return Group(f"[bold]{choice.option.name}[/bold]", choice.why.replace("[", r"\["), table)


def _ends_name(choice: Choice) -> str:
    """The intervals are ranges where there are two seeds."""
    ranges = any(option.quality is not None and option.quality.is_range for option in choice.options)
    return "range of seeds" if ranges else "95 % interval"


def _row(option: Option, metric: str, chosen: bool) -> list[str]:
    from kheads.lab import terminal

    quality = option.quality
    ends = [] if quality is None else [end for end in (quality.low, quality.high) if end == end]  # NaN: one seed
    cells = [
        f"{'→ ' if chosen else ''}{option.k if option.budget is None else option.budget}",
        option.method or "-",
        "-" if quality is None else terminal.metric(metric, quality.mean),
        " to ".join(terminal.metric(metric, end) for end in ends) or "-",
        "-" if option.parameters is None else f"{option.parameters:,.0f}",
        "-" if option.ms is None else f"{option.ms:.1f}",
    ]
    return [f"[bold]{cell}[/bold]" for cell in cells] if chosen else cells
