"""One self-contained page: text, tables, interactive figures, and the figures as files inside it and beside it.

Or the same as Markdown, with the figures beside it alone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from kheads.lab.report import markdown
from kheads.lab.report.claims import Claims
from kheads.lab.report.contents import Page
from kheads.lab.report.drawing import Figure, Heat, Table, figure_csv
from kheads.lab.report.interactive import library, specs
from kheads.lab.report.static import svg
from kheads.lab.report.style import colour_of
from kheads.lab.report.verdicts import CONFIRMED, NOT_CONFIRMED, TOO_LITTLE
from kheads.methods.look import Look

MARK = '<meta name="generator" content="kheads">'
SIGNS = {CONFIRMED: "✓", NOT_CONFIRMED: "✗", TOO_LITTLE: "–"}
DASHES = {"solid": "", "dash": "5 3", "dot": "1.5 2.5", "dashdot": "6 2 1.5 2"}
# Outlines of plotly's markers around (0, 0), for the legend.
OUTLINES = {
    "circle": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0Z",
    "square": "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "diamond": "M0 -5L5 0L0 5L-5 0Z",
    "triangle-up": "M0 -4.6L4.6 3.4H-4.6Z",
    "triangle-down": "M0 4.6L4.6 -3.4H-4.6Z",
    "pentagon": "M0 -4.6L4.4 -1.4L2.7 3.7H-2.7L-4.4 -1.4Z",
    "cross": "M-1.5 -4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
}


def write(page: Page, path: Path) -> list[Path]:
    """Writes the page, and its figures (SVG) and data (CSV) into a folder beside it; returns every file.

    Args:
        page: what to write.
        path: the HTML file, or a Markdown file if its name ends in `.md`; the folder has its name with `_files`.
    """
    check_place(path)
    folder = path.with_name(f"{path.stem}_files")
    drawings = {item.key: svg(item) for section in page.shown() for item in section.items if isinstance(item, Figure)}
    texts = {path: markdown.render(page, folder.name) if path.suffix == ".md" else render(page, drawings)}
    texts |= {folder / f"{key}.svg": text for key, text in drawings.items()}
    texts |= {folder / name: text for name, text in _data(page)}
    folder.mkdir(parents=True, exist_ok=True)
    for target, text in texts.items():
        temporary = target.with_name(f"{target.name}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    return list(texts)


def check_place(path: Path) -> None:
    """Refuses to write over what is no page of kheads."""
    if path.exists() and not _is_ours(path):
        raise FileExistsError(f"{path} exists and is no page of kheads; give another file with -o.")


def _is_ours(path: Path) -> bool:
    """Whether a file is a page that was written before, and may be written again."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(1000)
    return any(mark.encode() in begin for mark in (MARK, markdown.MARK))


def render(page: Page, drawings: dict[str, str]) -> str:
    """The page as HTML, with the drawings of its figures by key."""
    source = resources.files("kheads.lab.report").joinpath("data")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"data_uri": _data_uri, "specs": specs, "figure_csv": figure_csv}
    environment.filters |= {"outline": _outline, "colour": _colour}
    environment.tests |= {"figure": _is(Figure), "table": _is(Table), "claims": _is(Claims), "heat": _is(Heat)}
    environment.globals |= {"SIGNS": SIGNS, "DASHES": DASHES, "zip": zip}
    return (
        environment.from_string(source.joinpath("page.html").read_text(encoding="utf-8"))
        .render(
            page=page,
            drawings=drawings,
            css=source.joinpath("page.css").read_text(encoding="utf-8"),
            script=source.joinpath("page.js").read_text(encoding="utf-8"),
            library=library(),
        )
        .lstrip()
    )


def _data(page: Page) -> Iterator[tuple[str, str]]:
    for section in page.shown():
        for item in section.items:
            if isinstance(item, Figure):
                yield f"{item.key}.csv", figure_csv(item)
            else:
                table = item.table() if isinstance(item, Claims) else item
                yield f"table-{table.key}.csv", table.csv()


def _data_uri(text: str, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _outline(look: Look) -> str:
    return OUTLINES.get(look.marker.removesuffix("-open"), "")


def _colour(look: Look) -> str:
    """As CSS has it."""
    colour = colour_of(look)
    return f"var(--{colour[1:]})" if colour.startswith("@") else colour


def _is(kind: type) -> Any:
    return lambda item: isinstance(item, kind)
