"""The colours of everything, and how metrics are written.

Methods bring a look of their own (`kheads.methods.look`), with a place in the palette here. Its colours keep apart for
people who do not see all of them, and have a contrast of three or more to both a white and a dark page; markers and
dashes say the same again. Colours that start with @ are the page's own and follow its theme.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kheads.lab.terminal import PLAIN_METRICS
from kheads.methods.look import Look

INK, MUTED, GRID, PAPER = "@ink", "@muted", "@grid", "@paper"
# The page's own colours on white, for files that are looked at elsewhere.
ON_WHITE = {INK: "#1d2330", MUTED: "#6b7280", GRID: "#e5e7eb", PAPER: "#ffffff"}
# Methods name the first eight by number; the others are for methods from elsewhere.
PALETTE = (
    "#d55e00",
    "#b07d00",
    "#1b9e77",
    "#3b78c2",
    "#a05aa8",
    "#d4114b",
    "#8a8f98",
    "#5b8c2a",
    "#7a5cff",
    "#c0508c",
)
# For what is no method.
ACCENT, SECOND = "#0e8a9c", "#96643c"
UNPRUNED = Look("Unpruned", marker="", dash="dash", colour=INK)
# Shades of heat maps, from the least value to the greatest: how much of the accent.
SHADES = ((0.0, 0.05), (1.0, 1.0))
# The same for counts: they rise fast at first, so that one head among twelve can be told from none.
COUNT_SHADES = ((0.0, 0.05), (0.04, 0.2), (0.12, 0.36), (0.3, 0.56), (0.6, 0.78), (1.0, 1.0))

MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "cross")
DASHES = ("solid", "dash", "dot", "dashdot")
HEX = re.compile("#[0-9a-fA-F]{6}")


def look_in(said: Mapping[str, Any], key: str) -> Look:
    """The look that a record gives its run; what cannot be drawn is left to the report.

    Args:
        said: the record's `look`.
        key: the name to fall back on.
    """
    slot, colour = said.get("slot"), said.get("colour")
    marker, dash = str(said.get("marker", "circle")), said.get("dash")
    return Look(
        str(said.get("label") or key),
        slot if isinstance(slot, int) and 0 <= slot < len(PALETTE) else None,
        marker if marker.removesuffix("-open") in ("", *MARKERS) else "circle",
        str(dash) if dash in DASHES else "solid",
        colour if isinstance(colour, str) and HEX.fullmatch(colour) else None,
    )


def with_colours(looks: Mapping[str, Look]) -> dict[str, Look]:
    """Gives each look that has neither colour nor slot one that is free; the palette starts again when none is."""
    taken = {look.slot for look in looks.values() if look.colour is None}
    free = [slot for slot in range(len(PALETTE)) if slot not in taken] or list(range(len(PALETTE)))
    without = [key for key, look in looks.items() if look.colour is None and look.slot is None]
    slots = {key: free[number % len(free)] for number, key in enumerate(without)}
    return {key: replace(look, slot=slots.get(key, look.slot)) for key, look in looks.items()}


def colour_of(look: Look) -> str:
    """Its own colour, or that of its slot."""
    return look.colour or PALETTE[look.slot or 0]


def hollow(look: Look, label: str) -> Look:
    """The same under another name, hollow and dotted."""
    marker = f"{look.marker.removesuffix('-open')}-open" if look.marker else ""
    return replace(look, label=label, marker=marker, dash="dot")


def scale(metric: str) -> float:
    """What to multiply a metric by: shares are shown in percent."""
    return 1.0 if metric in PLAIN_METRICS else 100.0


def metric_name(metric: str) -> str:
    """A metric with its unit, as an axis has it."""
    return plain_name(metric) if metric in PLAIN_METRICS else f"{plain_name(metric)} (%)"


def plain_name(metric: str) -> str:
    """A metric as a sentence names it."""
    names = {"bleu": "BLEU", "bleu_moses": "BLEU", "f1": "F1", "matthews": "Matthews correlation"}
    return names.get(metric, metric.replace("_", " ").capitalize())
