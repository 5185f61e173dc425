"""What people see in the terminal: the map of heads and neurons, and tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kheads.blocks.kept import Kept
from kheads.blocks.site import ATTENTIONS, Site, noun, part

EVERY = 10.0  # seconds between lines where there is no terminal
OPEN, CLOSED = "●", "·"
FULL, BAR = "█", 12  # of the bar that stands for thousands of neurons
UNITS = {"group": " (a head is a key-value group)", "query": " (query heads)"}
KIND_STYLE = {"encoder": "cyan", "decoder": "magenta", "cross": "yellow", "ffn": "green"}


def head_map(
    sites: Sequence[Site],
    kept: Kept | None = None,
    totals: Mapping[str, int] | None = None,
    named: bool = False,
) -> RenderableType:
    """Draws one row per site: a dot for every head, full if it stays, or a bar of the share of neurons that stay.

    Args:
        sites: the rows.
        kept: the blocks that stay; None means all that the sites have.
        totals: blocks of the unpruned model by site, where some are gone already.
        named: give every site a line with its name, also where kinds could stand side by side.
    """
    chosen = kept.to_dict() if kept is not None else {site.name: list(range(site.count)) for site in sites}
    rows = []
    for site in sites:
        total = (totals or {}).get(site.name, site.count)
        blocks = set(chosen.get(site.name, []))
        drawn = _bar(len(blocks), total) if part(site) == "ffn" else _dots(blocks, total)
        rows.append(_Row(site, Text(drawn, style=KIND_STYLE.get(site.kind, "")), len(blocks), total))
    # The feed-forwards of encoder and decoder are one kind, and have no layer of their own to stand beside.
    beside = any(site.kind == "cross" for site in sites) and not named and all(part(site) == "heads" for site in sites)
    table = _side_by_side(rows) if beside else _one_below_the_other(rows)
    return Group(table, Text(", ".join(_counts(rows)), style="bold"))


class _Row(NamedTuple):
    site: Site
    drawn: Text
    kept: int
    total: int


def _dots(heads: set[int], total: int) -> str:
    return "".join(OPEN if head in heads else CLOSED for head in range(total))


def _bar(kept: int, total: int) -> str:
    """The share that stays; only where all or none stay is the bar full or empty."""
    full = round(BAR * kept / max(total, 1))
    full = min(max(full, int(kept > 0)), BAR - int(kept < total))
    return FULL * full + CLOSED * (BAR - full)


def _counts(rows: Sequence[_Row]) -> Iterator[str]:
    """Such as: 12 of 72 heads; 3,120 of 9,216 neurons."""
    for name, what in {"heads": "heads", "ffn": "neurons"}.items():
        found = [row for row in rows if part(row.site) == name]
        if found or (name == "heads" and not rows):
            kept, total = sum(row.kept for row in found), sum(row.total for row in found)
            yield f"{kept:,} of {total:,} {what}{UNITS.get(found[0].site.unit, '') if found else ''}"


def _one_below_the_other(rows: Sequence[_Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("site", overflow="fold")  # whole, because --protect takes it
    for title in ("kind", noun(row.site for row in rows)):
        table.add_column(title, no_wrap=True)
    table.add_column("kept", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.site.name, row.site.kind, row.drawn, f"{row.kept:,}/{row.total:,}")
    return table


def _side_by_side(rows: Sequence[_Row]) -> Table:
    """One line per layer, and the kinds of an encoder-decoder beside each other."""
    kinds = {kind: [row for row in rows if row.site.kind == kind] for kind in ATTENTIONS}
    kinds = {kind: found for kind, found in kinds.items() if found}
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold", show_footer=True)
    table.add_column("layer", footer="all", justify="right")
    for kind, found in kinds.items():
        count, total = sum(row.kept for row in found), sum(row.total for row in found)
        table.add_column(kind if kind == "cross" else f"{kind} self", no_wrap=True)
        table.add_column("kept", footer=f"{count}/{total}", justify="right", no_wrap=True)
    for layer in range(max(map(len, kinds.values()))):
        cells: list[Any] = [str(layer)]
        for found in kinds.values():
            row = found[layer] if layer < len(found) else None
            cells += [row.drawn, f"{row.kept}/{row.total}"] if row else ["", ""]
        table.add_row(*cells)
    return table


def rows_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table; numbers are written out by the caller."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*[str(cell) for cell in row])
    return table


def console(stderr: bool = False) -> Console:
    """Standard output (or error), as wide as the terminal; wide enough for a table where there is none."""
    found = Console(highlight=False, stderr=stderr)
    return found if found.is_terminal else Console(highlight=False, stderr=stderr, width=120)


@contextmanager
def waiting(text: str, to: Console | None = None) -> Iterator[None]:
    """Says that something is being done: a spinner on a terminal, a line every ten seconds where there is none."""
    to = to or console(stderr=True)
    begin = time.monotonic()
    with to.status(text) if to.is_terminal else lines(to, lambda: f"{text} ({time.monotonic() - begin:.0f} s)"):
        yield


@contextmanager
def counting(to: Console | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """Gives a function to tell what is being done, how much of it is done, and of how much.

    It is shown as a bar on a terminal, and as a line every ten seconds where there is none.
    """
    to = to or console(stderr=True)
    begin, now = time.monotonic(), ["starting"]

    def say() -> str:
        return f"{now[0]} ({time.monotonic() - begin:.0f} s)"

    def tell(text: str, done: int, total: int) -> None:
        now[0] = f"{text}, {done} of {total} done"
        bar.update(task, description=text, completed=done, total=total)

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=to,
        transient=True,
    )
    task = bar.add_task(now[0], total=None)
    with bar if to.is_terminal else lines(to, say):
        yield tell


@contextmanager
def lines(to: Console, text: Callable[[], str]) -> Iterator[None]:
    """Prints what `text` gives every ten seconds, until the work is done."""
    done = threading.Event()

    def speak() -> None:
        while not done.wait(EVERY):
            to.print(text(), soft_wrap=True, markup=False)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def percent(value: float) -> str:
    """0.8312 -> 83.1 %."""
    return f"{100 * value:.1f} %"


# Metrics that are not shares of one; they are shown as they are.
PLAIN_METRICS = ("bleu", "bleu_moses", "perplexity", "loss")


def metric(name: str, value: float) -> str:
    """A metric as people write it: shares in percent, others as plain numbers."""
    return f"{value:.2f}" if name in PLAIN_METRICS else percent(value)
