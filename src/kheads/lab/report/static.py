"""Figures for files and for print: SVG by matplotlib, on white, the same bytes at every run."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from kheads.lab.report.drawing import Axis, Figure, Heat, Number, Panel, Series, lines_of
from kheads.lab.report.style import ACCENT, GRID, INK, MUTED, ON_WHITE, PAPER, colour_of
from kheads.methods.look import Look

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so every machine draws the same
    "font.size": 9,
    "svg.hashsalt": "kheads",
    "axes.edgecolor": ON_WHITE[GRID],
    "axes.labelcolor": ON_WHITE[MUTED],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": ON_WHITE[MUTED],
    "ytick.color": ON_WHITE[MUTED],
    "text.color": ON_WHITE[INK],
    "axes.titlecolor": ON_WHITE[INK],
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
}
MARKERS = {
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "triangle-up": "^",
    "triangle-down": "v",
    "pentagon": "p",
    "cross": "P",
}
DASHES: dict[str, Any] = {"solid": "-", "dash": (0, (5, 3)), "dot": (0, (1, 2)), "dashdot": (0, (6, 2, 1, 2))}
WIDTH, ALONE, ROWS_OF, HEIGHT, LINE = 4.6, 6.8, 2, 3.2, 0.2  # inches, but for panels in a row
KEYS = 4  # in a line of the legend


def svg(figure: Figure) -> str:
    """The whole figure as one SVG."""
    count = len(figure.panels)
    across = min(ROWS_OF, count)
    down = math.ceil(count / across)
    heights = [max(_height(panel) for panel in figure.panels[row * across : (row + 1) * across]) for row in range(down)]
    with matplotlib.rc_context(SETTINGS):
        width, height = WIDTH * across if across > 1 else ALONE, sum(heights) + LINE * (1 + _legend_lines(figure))
        canvas = Canvas(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(canvas)
        axes = canvas.subplots(down, across, squeeze=False, height_ratios=heights).flatten()
        for place, panel in zip(axes, figure.panels, strict=False):
            _heat(place, panel) if isinstance(panel, Heat) else _panel(place, panel)
        for place in axes[count:]:
            place.set_axis_off()
        _legend(canvas, figure)
        out = io.StringIO()
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": "kheads"}, facecolor=ON_WHITE[PAPER])
    return out.getvalue()


def _height(panel: Panel | Heat) -> float:
    return 0.9 + 0.24 * max(4, len(panel.rows)) if isinstance(panel, Heat) else HEIGHT


def _legend_lines(figure: Figure) -> int:
    return math.ceil(len(figure.legend()) / KEYS)


def _legend(canvas: Canvas, figure: Figure) -> None:
    keys = [Line2D([], [], label=look.label, **_strokes(look)) for look in figure.legend()]
    if keys:
        canvas.legend(handles=keys, loc="outside upper center", ncols=min(KEYS, len(keys)), frameon=False)


def _panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title)
    axes.grid(color=ON_WHITE[GRID], linewidth=0.8)
    second = axes.twinx() if panel.second is not None else None
    for series, x in zip(panel.series, panel.drawn_x(), strict=True):
        _series(second if series.second and second is not None else axes, series, x)
    _axis(axes, panel.x, "x")
    _axis(axes, panel.y, "y")
    if second is not None and panel.second is not None:
        second.spines["right"].set_visible(False)
        _axis(second, panel.second, "y")


def _axis(axes: Axes, axis: Axis, which: str) -> None:
    settings: dict[str, Any] = {f"{which}label": axis.title}
    if axis.log:
        settings[f"{which}scale"] = "log"
    if axis.span is not None:
        settings[f"{which}lim"] = axis.span
    if axis.ticks:
        settings[f"{which}ticks"] = list(axis.ticks)
    axes.set(**settings)
    if axis.ticks and axis.log and not axis.powers:
        scale = axes.xaxis if which == "x" else axes.yaxis
        scale.set_ticks(list(axis.ticks), [f"{tick:g}" for tick in axis.ticks])
        scale.set_minor_locator(NullLocator())


def _series(axes: Axes, series: Series, x: Sequence[float]) -> None:
    y = [_number(value) for value in series.y]
    strokes = _strokes(series.look)
    if series.steps:
        strokes["drawstyle"] = "steps-post"
    if not series.line:
        strokes["linestyle"] = ""
    if any(value is not None for value in series.low):
        low, high = ([_number(value) for value in ends] for ends in (series.low, series.high))
        if series.band:
            axes.fill_between(x, low, high, color=strokes["color"], alpha=0.13, linewidth=0)
        else:
            axes.vlines(x, low, high, color=strokes["color"], linewidth=1)
    axes.plot(x, y, **strokes)


def _strokes(look: Look) -> dict[str, Any]:
    colour = _colour(colour_of(look))
    marker = MARKERS.get(look.marker.removesuffix("-open"), "")
    hollow = look.marker.endswith("-open")
    return {
        "color": colour,
        "linewidth": 1.6,
        "linestyle": DASHES[look.dash],
        "marker": marker,
        "markersize": 5,
        "markerfacecolor": "white" if hollow else colour,
        "markeredgecolor": colour if hollow else "white",
        "markeredgewidth": 1.1 if hollow else 0.6,
    }


def _heat(axes: Axes, heat: Heat) -> None:
    low, high = heat.span
    shades = LinearSegmentedColormap.from_list("accent", [(at, _on_white(alpha)) for at, alpha in heat.shades])
    cells = [[_number(value) for value in row] for row in heat.values]
    axes.pcolormesh(cells, cmap=shades, vmin=low, vmax=high, edgecolors="white", linewidth=1.5)
    axes.set(xlabel=heat.axes[0], ylabel=heat.axes[1])
    axes.set_title(heat.title, pad=18 if heat.groups else 6)
    turn = 30 if max(map(len, heat.columns)) > 3 else 0
    columns, rows = (["\n".join(lines_of(label)) for label in labels] for labels in (heat.columns, heat.rows))
    axes.set_xticks([index + 0.5 for index in range(len(columns))], columns, rotation=turn)
    axes.set_yticks([index + 0.5 for index in range(len(rows))], rows)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    for spine in axes.spines.values():
        spine.set_visible(False)
    for row, texts in enumerate(heat.texts):
        for column, text in enumerate(texts):
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8)
    for row, column in heat.marks:
        axes.plot(column + 0.5, row + 0.5, "o", color=ON_WHITE[INK], markeredgecolor="white", markersize=5)
    begin = 0
    for name, count in heat.groups:
        axes.text(begin + count / 2, -0.15, name, ha="center", va="bottom", fontsize=8, color=ON_WHITE[MUTED])
        if begin:
            axes.axvline(begin, color=ON_WHITE[MUTED], linewidth=0.8)
        begin += count


def _on_white(alpha: float) -> tuple[float, ...]:
    return tuple(alpha * part + 1 - alpha for part in to_rgb(ACCENT))


def _colour(colour: str) -> str:
    return ON_WHITE.get(colour, colour)


def _number(value: Number) -> float:
    return math.nan if value is None else value
