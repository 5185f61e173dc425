"""Figures as plain data. One description is drawn for the page, drawn for files, and written as CSV."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kheads.lab.report.style import SHADES
from kheads.methods.look import Look

Number = float | None
LABEL = 22  # letters in a line
MOST_TICKS = 12  # that a phone can show beside each other
# How far series at the same x are drawn apart: each from the next by this share of the axis, and all of them together
# by at most that share of the least distance between two x.
STEP, ROOM = 0.006, 0.5


@dataclass(frozen=True)
class Series:
    """One line or cloud of points.

    Attributes:
        look: label, colour, marker and dash.
        x: where.
        y: how much.
        low: lower ends of intervals, if any; None where there is none.
        high: upper ends.
        band: draw intervals as a band (many points) rather than as bars.
        second: belongs to the second axis.
        line: join the points.
        steps: join them by steps.
        notes: what else a point says when pointed at.
    """

    look: Look
    x: Sequence[float]
    y: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    band: bool = False
    second: bool = False
    line: bool = True
    steps: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Axis:
    """What an axis shows."""

    title: str
    log: bool = False
    span: tuple[float, float] | None = None
    ticks: Sequence[float] = ()
    powers: bool = False  # ticks are powers of ten, and written so

    def place(self, value: float) -> float:
        """Where a value lies on the axis, as a distance."""
        return math.log10(value) if self.log else value

    def value(self, place: float) -> float:
        """The value at a place."""
        return 10.0**place if self.log else place


def log_axis(title: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis around positive values, with some room, and whole powers of ten as ticks, six at most."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    if low == high:
        low, high = low - 1, high + 1
    every = math.ceil((high - low) / 5)
    first = -(-low // every) * every
    room = (high - low) / 40
    ticks = [10.0**power for power in range(first, high + 1, every)]
    return Axis(title, True, (10.0 ** (low - room), 10.0 ** (high + room)), ticks, True)


def count_axis(title: str, counts: Sequence[float], most: float) -> Axis:
    """A logarithmic axis from the least count to the most there could be, with ticks at counts that have room.

    With a count of 0 the axis is linear.
    """
    if min(counts) <= 0:
        return Axis(title, span=(-0.03 * most, 1.03 * most))
    room = math.log10(most / min(counts)) / MOST_TICKS
    ticks: list[float] = []
    for count in sorted({*counts, most}, reverse=True):
        if not ticks or math.log10(ticks[-1] / count) >= room:
            ticks.append(count)
    edge = 10 ** (room / 2)
    return Axis(title, True, (min(counts) / edge, most * edge), ticks[::-1])


@dataclass(frozen=True)
class Panel:
    """Series over two axes, or three.

    Attributes:
        title: its heading.
        x: the axis below.
        y: the axis on the left.
        series: what is drawn.
        second: the axis on the right, if any.
        nudged: draw points that share an x beside each other, so that their bars can be told apart. The data stay.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    second: Axis | None = None
    nudged: bool = False

    def drawn_x(self) -> list[Sequence[float]]:
        """Where each series is drawn: at its x, or a little beside."""
        marked = [number for number, series in enumerate(self.series) if series.look.marker and self.nudged]
        middle = (len(marked) - 1) / 2
        step = self._step(marked) if len(marked) > 1 else 0.0
        shifts = {number: step * (place - middle) for place, number in enumerate(marked)}
        return [
            [self.x.value(self.x.place(x) + shifts[number]) for x in series.x] if shifts.get(number) else series.x
            for number, series in enumerate(self.series)
        ]

    def _step(self, marked: Sequence[int]) -> float:
        places = sorted({self.x.place(x) for number in marked for x in self.series[number].x})
        ends = [self.x.place(end) for end in self.x.span] if self.x.span else [places[0], places[-1]]
        length = ends[1] - ends[0]
        gap = min((after - before for before, after in itertools.pairwise(places)), default=length)
        return min(STEP * length, ROOM * gap / (len(marked) - 1))


def file_name(words: str) -> str:
    """Words as a name that any file system takes."""
    return re.sub(r"[^\w.-]+", "-", words)


def lines_of(label: str) -> list[str]:
    """A label in lines that leave room for the figure."""
    return textwrap.wrap(label, LABEL) or [""]


@dataclass(frozen=True)
class Heat:
    """A heat map.

    Attributes:
        title: its heading.
        rows: labels from top to bottom.
        columns: labels from left to right.
        values: one row of numbers each; None is an empty cell.
        texts: what a cell shows; nothing if not given.
        notes: what a cell says when pointed at.
        axes: titles of columns and rows.
        groups: names over consecutive columns, with how many each spans.
        marks: cells with a ring.
        bottom: the value of the faintest colour.
        top: the value of the strongest colour; the largest one if not given.
        shades: how the colour rises in between.
        unit: what the numbers are.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Number]]
    texts: Sequence[Sequence[str]] = ()
    notes: Sequence[Sequence[str]] = ()
    axes: tuple[str, str] = ("", "")
    groups: Sequence[tuple[str, int]] = ()
    marks: Sequence[tuple[int, int]] = ()
    bottom: float = 0.0
    top: float | None = None
    shades: Sequence[tuple[float, float]] = SHADES
    unit: str = ""

    @property
    def span(self) -> tuple[float, float]:
        """The values of the faintest and the strongest colour."""
        numbers = [value for row in self.values for value in row if value is not None]
        high = self.top if self.top is not None else max(numbers, default=self.bottom)
        return self.bottom, high if high > self.bottom else self.bottom + 1.0


@dataclass(frozen=True)
class Figure:
    """Panels that belong together.

    Attributes:
        key: its name in addresses and files.
        title: its heading.
        panels: what is drawn.
        caption: what it shows.
        paper: the paper's number of it, such as Fig. 2.
        data: what the CSV has, where that is ordered otherwise than what is drawn.
    """

    key: str
    title: str
    panels: Sequence[Panel | Heat]
    caption: str
    paper: str = ""
    data: Sequence[Panel | Heat] = ()

    def legend(self) -> tuple[Look, ...]:
        """Every series once, in order of appearance."""
        looks = [series.look for panel in self.panels if isinstance(panel, Panel) for series in panel.series]
        return tuple({look.label: look for look in looks}.values())


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column names the row."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    paper: str = ""

    def csv(self) -> str:
        """The table as CSV."""
        return _csv([self.columns, *self.rows])


def figure_csv(figure: Figure) -> str:
    """The numbers of a figure, one point or cell a line."""
    panels = figure.data or figure.panels
    points = [row for panel in panels if isinstance(panel, Panel) for row in _points(panel)]
    cells = [row for panel in panels if isinstance(panel, Heat) for row in _cells(panel)]
    tables = []
    if points:
        tables.append(_csv([("panel", "series", "x_name", "x", "y_name", "y", "low", "high"), *points]))
    if cells:
        tables.append(_csv([("panel", "row", "group", "column", "value_name", "value", "marked"), *cells]))
    return "\n".join(tables)


def _points(panel: Panel) -> Iterator[tuple[object, ...]]:
    for series in panel.series:
        axis = panel.second if series.second and panel.second else panel.y
        for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            low = series.low[index] if series.low else None
            high = series.high[index] if series.high else None
            yield panel.title, series.look.label, panel.x.title, x, axis.title, *map(_finite, (y, low, high))


def _cells(heat: Heat) -> Iterator[tuple[object, ...]]:
    groups = [name for name, count in heat.groups for _ in range(count)] or [""] * len(heat.columns)
    for row, (label, values) in enumerate(zip(heat.rows, heat.values, strict=True)):
        for column, value in enumerate(values):
            marked = int((row, column) in heat.marks)
            yield heat.title, label, groups[column], heat.columns[column], heat.unit, _finite(value), marked


def _finite(value: Number) -> object:
    return "" if value is None or not math.isfinite(value) else value


def _csv(rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
