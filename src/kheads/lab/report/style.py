"""One look for everything: a colour, a marker and a name for each method, the same in every figure and table.

The colours keep apart for people who do not see all of them, and have a contrast of three or more to both a white and a
dark page; markers and dashes say the same again. Colours that start with @ are the page's own and follow its theme.
"""

from __future__ import annotations

from dataclasses import dataclass

from kheads.lab.report.results import Variant
from kheads.lab.terminal import PLAIN_METRICS

INK, MUTED, GRID, PAPER = "@ink", "@muted", "@grid", "@paper"
# The page's own colours on white, for files that are looked at elsewhere.
ON_WHITE = {INK: "#1d2330", MUTED: "#6b7280", GRID: "#e5e7eb", PAPER: "#ffffff"}
# For what is no method.
ACCENT, SECOND = "#0e8a9c", "#96643c"
# Shades of heat maps, from the least value to the greatest: how much of the accent.
SHADES = ((0.0, 0.05), (1.0, 1.0))
# The same for counts: they rise fast at first, so that one head among twelve can be told from none.
COUNT_SHADES = ((0.0, 0.05), (0.04, 0.2), (0.12, 0.36), (0.3, 0.56), (0.6, 0.78), (1.0, 1.0))


@dataclass(frozen=True)
class Look:
    """How a series looks."""

    name: str
    colour: str
    marker: str = ""
    dash: str = "solid"


LOOKS = {
    "dsp": Look("Joint DSP", "#d55e00", "circle"),
    "dsp-pipelined": Look("Pipelined DSP", "#b07d00", "diamond", "dashdot"),
    "ste": Look("STE", "#1b9e77", "square"),
    "ste-pipelined": Look("Pipelined STE", "#1b9e77", "square-open", "dashdot"),
    "voita": Look("Voita", "#3b78c2", "triangle-up"),
    "voita-pipelined": Look("Pipelined Voita", "#3b78c2", "triangle-up-open", "dashdot"),
    "michel": Look("Michel", "#a05aa8", "triangle-down", "dashdot"),
    "retrain": Look("Prune and retrain", "#d4114b", "pentagon", "dash"),
    "random": Look("Random", "#8a8f98", "cross", "dot"),
    "none": Look("Unpruned", INK, "", "dash"),
}
ORDER = tuple(LOOKS)


def look(variant: Variant) -> Look:
    """The look of a method; settings that set it apart go into its name, and it is drawn hollow and dotted."""
    plain = LOOKS.get(variant.key, Look(variant.key, "#8a8f98", "cross"))
    if not variant.apart:
        return plain
    remark = ", ".join(f"{name} {value}" for name, value in variant.apart)
    marker = f"{plain.marker.removesuffix('-open')}-open" if plain.marker else ""
    return Look(f"{plain.name} ({remark})", plain.colour, marker, "dot")


def rank(variant: Variant) -> tuple[int, tuple[tuple[str, str], ...]]:
    """The order in which methods are listed."""
    return (ORDER.index(variant.key) if variant.key in ORDER else len(ORDER), variant.apart)


def scale(metric: str) -> float:
    """What to multiply a metric with: shares are shown in percent."""
    return 1.0 if metric in PLAIN_METRICS else 100.0


def metric_name(metric: str) -> str:
    """A metric with its unit, as an axis has it."""
    names = {"bleu": "BLEU", "bleu_moses": "BLEU", "f1": "F1", "matthews": "Matthews correlation"}
    name = names.get(metric, metric.replace("_", " ").capitalize())
    return name if metric in PLAIN_METRICS else f"{name} (%)"
