"""A small figure for a terminal: points over labels, and a line to compare them with, in characters without colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 64, 11  # of the field of points; with the numbers beside it, 80 columns hold it
WIDEST = 16  # characters from one label to the next
FLAT = 1e-9  # from row to row, where all values are the same
LINE = "╌"


def chart(
    labels: Sequence[str],
    marks: Mapping[str, Sequence[float]],
    line: float,
    written: Callable[[float], str],
    log: bool = False,
) -> str:
    """Draws the points and the line; values that are no numbers are left out.

    Args:
        labels: what stands below, from left to right.
        marks: values, one for each label, by the character that stands for them; later ones cover earlier ones.
        line: the value of the line.
        written: how values are written on the axis.
        log: the axis is logarithmic, and all values are positive.
    """
    axis = _Axis.around([line, *(value for values in marks.values() for value in values)], log)
    slot = max(1, min(WIDEST, WIDTH // len(labels)))
    width = slot * len(labels)
    field = [[" "] * width for _ in range(HEIGHT)]
    for column in range(width):
        axis.put(field, line, column, LINE)
    for mark, values in marks.items():
        for index, value in enumerate(values):
            axis.put(field, value, index * slot + (slot - 1) // 2, mark)
    rows = {written(axis.value(row)): row for row in (HEIGHT - 1, HEIGHT // 2, 0)}  # what reads the same stands once
    ticks = {row: text for text, row in rows.items()}
    return _framed(["".join(cells) for cells in field], ticks, _below(labels, slot))


@dataclass(frozen=True)
class _Axis:
    """Rows from the highest value, at the top, to the lowest."""

    high: float
    step: float
    log: bool

    @classmethod
    def around(cls, values: Iterable[float], log: bool) -> _Axis:
        places = [math.log(value) if log else value for value in values if math.isfinite(value)] or [0.0]
        return cls(max(places), (max(places) - min(places)) / (HEIGHT - 1) or FLAT, log)

    def value(self, row: int) -> float:
        place = self.high - row * self.step
        return math.exp(place) if self.log else place

    def put(self, field: list[list[str]], value: float, column: int, mark: str) -> None:
        if math.isfinite(value):
            place = math.log(value) if self.log else value
            field[round((self.high - place) / self.step)][column] = mark


def _framed(lines: Sequence[str], ticks: Mapping[int, str], below: str) -> str:
    margin = max(map(len, ticks.values()))
    sides = [f"{ticks.get(row, ''):>{margin}} {'┤' if row in ticks else '│'}" for row in range(len(lines))]
    drawn = [side + line for side, line in zip(sides, lines, strict=True)]
    space = " " * (margin + 1)
    return "\n".join(line.rstrip() for line in (*drawn, f"{space}└{'─' * len(lines[0])}", f"{space} {below}"))


def _below(labels: Sequence[str], slot: int) -> str:
    """The labels under their points; where all would run into each other, some of them."""
    every = math.ceil((max(map(len, labels)) + 1) / slot)
    return "".join(f"{label:^{slot}}".ljust(every * slot) for label in labels[::every])
