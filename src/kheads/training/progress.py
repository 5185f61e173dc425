"""How far something is: a bar on a terminal, and a line now and then where there is none (nohup, Slurm, logs)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import TypeVar

EVERY = 10.0  # seconds from one line to the next

Item = TypeVar("Item")


def progress(items: Iterable[Item], label: str, total: int | None = None, quiet: bool = False) -> Iterator[Item]:
    """Gives the items one by one and shows how far it is, on standard error.

    Args:
        items: what is worked through.
        label: what is being done, such as "estimating".
        total: how many items there are, if `items` does not know.
        quiet: show nothing.
    """
    if quiet:
        return iter(items)
    total = total or length(items)
    return _with_bar(items, label, total) if shows_bars() else _with_lines(items, label, total)


def length(items: Iterable[object]) -> int | None:
    """How many items there are, if they know: a data loader may have a length that it cannot give."""
    return length_hint(items) or None


def shows_bars() -> bool:
    """Whether somebody watches: a terminal, or a notebook, where bars are drawn as well."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def say(line: str) -> None:
    """Prints a line on standard error, above a bar if there is one."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)
    sys.stderr.flush()


class Lines:
    """Says how far it is, at most every ten seconds: `train: step 120 of 280, loss 0.61, 1:12 left`.

    Args:
        label: what is being done.
        total: where it ends, if that is known.
        start: where it begins; a run that resumes does not begin at 0.
        clock: the time in seconds.
    """

    def __init__(
        self, label: str, total: int | None = None, start: int = 0, clock: Callable[[], float] = time.monotonic
    ):
        self.label, self.total, self.start, self.clock = label, total, start, clock
        self.begin = self.said = clock()

    def update(self, done: int, *notes: str) -> None:
        """Tells it where it is, and what else is worth a word if a line is due."""
        now = self.clock()
        if now - self.said < EVERY:
            return
        self.said = now
        where = f"{done:,}" if self.total is None else f"{done:,} of {self.total:,}"
        say(", ".join([f"{self.label} {where}", *notes, *self._left(done, now - self.begin)]))

    def _left(self, done: int, passed: float) -> list[str]:
        if self.total is None or done <= self.start:
            return []
        return [f"{clock_time(passed / (done - self.start) * (self.total - done))} left"]


def clock_time(seconds: float) -> str:
    """Seconds as 0:07, 1:12 or 2:03:10."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _with_bar(items: Iterable[Item], label: str, total: int | None) -> Iterator[Item]:
    from tqdm.auto import tqdm

    yield from tqdm(items, desc=label, total=total, leave=False)


def _with_lines(items: Iterable[Item], label: str, total: int | None) -> Iterator[Item]:
    lines = Lines(f"{label}:", total)
    for done, item in enumerate(items, start=1):
        yield item
        lines.update(done)
