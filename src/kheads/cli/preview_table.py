"""What `kheads preview` shows in a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from kheads.lab import terminal
from kheads.lab.chart import LINE, chart
from kheads.lab.preview.advice import Advice
from kheads.lab.preview.amounts import WORDINGS, in_short
from kheads.lab.preview.found import Point, Preview
from kheads.lab.preview.judged import quality_of, value_told
from kheads.lab.preview.table import ONLY, columns, limits, rows, timing

MARKS = {"heads": "○", "ffn": "◇", "all": "●"}  # where two parts stand side by side
CUT, REPAIRED = "○", "●"


def show(found: Preview, advice: Advice, command: str, page: Path | None) -> None:
    """A table, a figure, and the command last.

    Args:
        found: what each budget gives.
        advice: which one to take.
        command: what makes the smaller model.
        page: what was written, too.
    """
    title = f"preview of {found.model} by {found.method}: {quality_of(found)}"
    names = [name.replace(" ", "\n") for name in columns(found)]  # so that it fits into 80 columns
    told = (*found.remarks, *([] if page is None else [f"Wrote {page}."]), advice.why)
    shown = terminal.console()
    shown.print(terminal.rows_table(title, names, rows(found)))
    for text in (f"{limits(found)} {timing(found)}".strip(), "", _figure(found), "", *told):
        shown.print(text, markup=False)
    shown.print(command, markup=False, soft_wrap=True)


def _figure(found: Preview) -> Text:
    budgets = found.budgets[::-1] if found.kind == "heads" else found.budgets  # numbers rise from left to right

    def values(parts: str, stage: str) -> list[float]:
        return [_quality(found, found.at(budget, parts), stage) for budget in budgets]

    if len(found.parts) == 1:
        marks = {CUT: values(found.parts[0], "cut"), REPAIRED: values(found.parts[0], "repaired")}
        told = f"{REPAIRED} repaired   {CUT} right after the cut"
    else:
        marks = {MARKS[parts]: values(parts, "repaired") for parts in found.parts}
        told = f"{'   '.join(f'{MARKS[parts]} {ONLY[parts]}' for parts in found.parts)}, cut and repaired"
    drawn = chart(
        [in_short(budget).replace(" ", "") for budget in budgets],
        marks,
        found.quality(found.unpruned),
        lambda value: terminal.metric(found.metric, value),
        log=found.lower_is_better,
    )
    alone = f", {ONLY[found.parts[0]]}" if len(found.parts) == 1 and found.kind != "heads" else ""
    title = f"{found.metric} on {found.evaluation} against {WORDINGS[found.kind].axis}{alone}"
    legend = f"{told}   {LINE * 3} unpruned, {value_told(found, found.unpruned)}"
    return Text(f"{title}\n\n{drawn}\n\n{legend}", no_wrap=True)


def _quality(found: Preview, point: Point | None, stage: str) -> float:
    return float("nan") if point is None else found.quality(getattr(point, stage))
