"""What `kheads preview` does and shows over budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kheads.lab import terminal
from kheads.lab.budget_preview import BudgetPreview, BudgetRequest, plain_budget, preview_budgets
from kheads.lab.budget_words import ONLY, BudgetAdvice, advise, asked, columns, limits, options, rows, timing
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.preview_words import quality_of
from kheads.storage import strict_json

if TYPE_CHECKING:
    from rich.console import RenderableType

MARKS = {"heads": "○", "ffn": "◇", "all": "●"}


def request(given: Mapping[str, Any], at: tuple[int, int] | None) -> BudgetRequest:
    """What the user wants to look at."""
    named = {name: given[name] for name in ("budgets", "parts") if given[name] is not None}
    return BudgetRequest(**named, timed=not given["no_speed"], at=at)


def show(
    request: BudgetRequest,
    job: Job,
    prepared: Prepared,
    given: Mapping[str, Any],
    command: Callable[[Sequence[str]], str],
) -> None:
    """Looks at every budget and shows what was found.

    Args:
        request: what to look at.
        job: the job, settled.
        prepared: its model and data.
        given: what the user gave.
        command: the command that makes the smaller model, from the words that say how much may stay.
    """
    output: Path | None = given["output"]
    with terminal.counting() as tell:
        found = preview_budgets(job, prepared, request, tell)
    advice = advise(found, given["at_most"])
    prune = command(options(advice.point))
    if output is not None:
        _write(found, advice, prune, output)
    if given["as_json"]:
        print(strict_json.dumps(_plain(found, advice, prune, output)))
        return
    _tell(found, advice, prune, output)


def _write(found: BudgetPreview, advice: BudgetAdvice, prune: str, output: Path) -> None:
    # Only here, because the libraries that draw are an extra.
    from kheads.lab.report.budget_preview_page import budget_preview_page
    from kheads.lab.report.page import write

    with terminal.waiting("drawing"):
        write(budget_preview_page(found, advice, prune), output)


def _plain(found: BudgetPreview, advice: BudgetAdvice, prune: str, output: Path | None) -> dict[str, Any]:
    point = advice.point
    chosen = {"budget": plain_budget(point.budget), "parts": point.parts, "holds": advice.holds, "why": advice.why}
    page = None if output is None else str(output)
    return {**found.to_dict(), "chosen": {**chosen, "command": prune}, "page": page}


def _tell(found: BudgetPreview, advice: BudgetAdvice, prune: str, output: Path | None) -> None:
    title = f"preview of {found.model} by {found.method}: {quality_of(found)}"
    told = (*found.remarks, *([] if output is None else [f"Wrote {output}."]), advice.why)
    names = [name.replace(": ", ":\n") for name in columns(found)]  # so that it fits into 80 columns
    shown = terminal.console()
    shown.print(terminal.rows_table(title, names, rows(found)))
    for text in (f"{limits(found)} {timing(found)}".strip(), "", _figure(found), "", *told):
        shown.print(text, markup=False)
    shown.print(prune, markup=False, soft_wrap=True)


def _figure(found: BudgetPreview) -> RenderableType:
    from rich.text import Text

    from kheads.lab.chart import LINE, chart

    whole = found.quality(found.unpruned)
    marks = {MARKS[parts]: [_quality(found, place, parts) for place in found.budgets] for parts in found.parts}
    drawn = chart(
        [asked(budget).replace(" ", "") for budget in found.budgets],
        marks,
        whole,
        lambda value: terminal.metric(found.metric, value),
        log=found.lower_is_better,
    )
    told = "   ".join(f"{MARKS[parts]} {ONLY[parts]}" for parts in found.parts)
    legend = f"{told}, cut and repaired   {LINE * 3} unpruned, {terminal.metric(found.metric, whole)}"
    against = {"params": "parameters removed", "flops": "FLOPs kept", "speedup": "the speed-up asked for"}
    title = f"{found.metric} on {found.evaluation} against {against[found.budgets[0].name]}"
    return Text(f"{title}\n\n{drawn}\n\n{legend}", no_wrap=True)


def _quality(found: BudgetPreview, budget: Any, parts: str) -> float:
    point = found.at(budget, parts)
    return float("nan") if point is None else found.quality(point.repaired)
