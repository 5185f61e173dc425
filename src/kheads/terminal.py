"""What people see in the terminal: the map of heads, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kheads.heads import HeadSet, Site

OPEN, CLOSED = "●", "·"
KIND_STYLE = {"encoder": "cyan", "decoder": "magenta", "cross": "yellow"}


def head_map(
    sites: Sequence[Site], kept: HeadSet | None = None, totals: Mapping[str, int] | None = None
) -> RenderableType:
    """Draws sites x heads, one row per site, with a dot for every head: full if it stays.

    Args:
        sites: the rows.
        kept: the heads that stay; None means all that the sites have.
        totals: heads of the unpruned model by site, where some are gone already.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for title in ("site", "kind", "heads"):
        table.add_column(title, no_wrap=True)
    table.add_column("kept", justify="right", no_wrap=True)
    chosen = kept.to_dict() if kept is not None else {site.name: list(range(site.num_heads)) for site in sites}
    for site in sites:
        total = (totals or {}).get(site.name, site.num_heads)
        heads = set(chosen.get(site.name, []))
        style = KIND_STYLE.get(site.kind, "")
        dots = Text("".join(OPEN if head in heads else CLOSED for head in range(total)), style=style)
        table.add_row(_short(site.name), site.kind, dots, f"{len(heads)}/{total}")
    count = sum(len(chosen.get(site.name, [])) for site in sites)
    total = sum((totals or {}).get(site.name, site.num_heads) for site in sites)
    unit = {"group": " (a head is a key-value group)", "query": " (query heads)"}.get(
        sites[0].unit if sites else "", ""
    )
    return Group(table, Text(f"{count} of {total} heads{unit}", style="bold"))


def rows_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table; numbers are written out by the caller."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*[str(cell) for cell in row])
    return table


def console() -> Console:
    """Standard output, as wide as the terminal; wide enough for a table where there is none."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=120)


def percent(value: float) -> str:
    """0.8312 -> 83.1 %."""
    return f"{100 * value:.1f} %"


def _short(name: str) -> str:
    return name if len(name) <= 48 else "…" + name[-47:]
