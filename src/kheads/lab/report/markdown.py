"""The page as Markdown, for a repository or a site; its figures are the files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from kheads.lab.report.claims import Claims
from kheads.lab.report.contents import Page, Section
from kheads.lab.report.drawing import Figure, Table

MARK = "<!-- generator: kheads -->"
# What a record says is text: no markup, no link and no picture may come of it.
MARKUP = re.compile(r"[\\`*\[\]<|]")


def render(page: Page, folder: str) -> str:
    """The page as Markdown.

    Args:
        page: what to write.
        folder: the folder beside it with its figures and data.
    """
    folder = quote(folder)
    facts = [f"- **{_text(name)}**: {_text(value)}" for name, value in page.facts]
    blocks = [MARK, f"# {_text(page.title)}", *map(_text, page.findings), _text(page.lead)]
    blocks += [block for section in page.shown() for block in _section(section, folder)]
    blocks += ["## What was run", "\n".join(facts)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _section(section: Section, folder: str) -> Iterator[str]:
    yield f"## {section.title}"
    yield _text(section.text)
    for item in section.items:
        if isinstance(item, Claims):
            yield f"{', '.join(f'{count} {verdict}' for verdict, count in item.counts())}."
            yield from _rows(item.table(), folder)
        else:
            yield f"### {_text(item.title)}" + (f" (the paper's {item.paper})" if item.paper else "")
            yield from _figure(item, folder) if isinstance(item, Figure) else _rows(item, folder)


def _figure(figure: Figure, folder: str) -> Iterator[str]:
    yield f"![{_text(figure.title)}]({folder}/{quote(figure.key)}.svg)"
    yield f"{_text(figure.caption)} [Data]({folder}/{quote(figure.key)}.csv)".strip()


def _rows(table: Table, folder: str) -> Iterator[str]:
    yield "\n".join([_row(table.columns), _row(["---"] * len(table.columns)), *map(_row, table.rows)])
    yield f"{_text(table.caption)} [Data]({folder}/table-{quote(table.key)}.csv)".strip()


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(words: str) -> str:
    """One line of text that is read as it stands."""
    return MARKUP.sub(r"\\\g<0>", " ".join(words.split()))
