"""What tests of the report share: made-up results, changed or cut down, and looking into figures."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from kheads.lab.report import sweep_page
from kheads.lab.report.drawing import Figure, Panel, Series
from kheads.lab.report.results import Results, Run


def changed(results: Results, change: Callable[[dict[str, Any]], None]) -> Results:
    """The same results with every record changed."""
    records = [copy.deepcopy(dict(run.record)) for run in results.runs]
    for record in records:
        change(record)
    return dataclasses.replace(results, runs=tuple(Run(record) for record in records))


def only(results: Results, keep: Callable[[Run], bool]) -> Results:
    """Some of the runs."""
    return dataclasses.replace(results, runs=tuple(run for run in results.runs if keep(run)))


def series(figure: Figure | None, name: str, panel: int = 0) -> Series:
    """One line of a figure."""
    assert figure is not None
    drawn = figure.panels[panel]
    assert isinstance(drawn, Panel)
    (found,) = [one for one in drawn.series if one.look.label == name]
    return found


def figures_of(results: Results) -> list[Figure]:
    """Every figure of a page."""
    sections = sweep_page.sweep_page(results).sections
    return [item for section in sections for item in section.items if isinstance(item, Figure)]
