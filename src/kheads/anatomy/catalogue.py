"""The tables of supported models and of refusals, as Markdown; docs/models.md shows them."""

from __future__ import annotations

from kheads.anatomy.feed_forwards import MIXTURES
from kheads.anatomy.layout import Layout
from kheads.anatomy.table import LAYOUTS, REFUSED, TYPES


def supported() -> str:
    """Every model type, by kind of model."""
    lines = ["| kind | types | model types |", "|---|---|---|"]
    for kind, types in TYPES.items():
        names = ", ".join(f"{name}{_marks(name, classes)}" for name, classes in types.items())
        lines.append(f"| {kind} | {len(types)} | {names} |")
    total = sum(len(types) for types in TYPES.values())
    return "\n".join([*lines, f"| all | {total} | |"])


def refused() -> str:
    """Every class on the list of refusals, with its reason."""
    return "\n".join(["| class | why not |", "|---|---|", *(f"| `{name}` | {why} |" for name, why in REFUSED.items())])


def _marks(kind: str, classes: tuple[str, ...]) -> str:
    layouts = [layout for name in classes for layout in LAYOUTS[name]]
    marks = {
        "¹": any(_shares(layout) for layout in layouts),
        "²": any(layout.selected for layout in layouts),
        "³": any(name.endswith(".OpenAttention") for name in classes),
        "⁴": kind in MIXTURES,
    }
    return "".join(mark for mark, there in marks.items() if there)


def _shares(layout: Layout) -> bool:
    """Whether query heads of the class may share keys and values."""
    return "group" in layout.counts.values() or any("{" in text for text in layout.rows.values())
