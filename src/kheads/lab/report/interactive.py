"""Figures for the page: plotly's own description, with the page's colours left open (@ink and so on)."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from plotly.offline import get_plotlyjs

from kheads.lab.report.drawing import Axis, Figure, Heat, Number, Panel, Series, lines_of
from kheads.lab.report.style import ACCENT, GRID, INK, MUTED, PAPER, colour_of

HEIGHT, ALONE, ROW, HEAT_MARGIN = 340, 420, 26, 110  # a panel beside others, one alone, a row of a heat map
MARGIN = {"l": 56, "r": 14, "t": 12, "b": 48}
SHORT = 3  # letters of a label that need not be turned
FAINT = "1f"  # two hexadecimal digits: the opacity of a band


def library() -> str:
    """The source of plotly.js, which goes into the page once."""
    return str(get_plotlyjs())


def specs(figure: Figure) -> list[dict[str, Any]]:
    """One plot for each panel."""
    height = HEIGHT if len(figure.panels) > 1 else ALONE
    return [_heat(panel) if isinstance(panel, Heat) else _panel(panel, height) for panel in figure.panels]


def _panel(panel: Panel, height: int) -> dict[str, Any]:
    drawn = zip(panel.series, panel.drawn_x(), strict=True)
    traces = [trace for series, x in drawn for trace in _traces(series, x)]
    layout = _layout(height)
    layout["xaxis"] = _axis(panel.x)
    layout["yaxis"] = _axis(panel.y)
    if panel.second is not None:
        layout["yaxis2"] = {**_axis(panel.second), "overlaying": "y", "side": "right", "showgrid": False}
        layout["margin"] = {**MARGIN, "r": 60}
    return {"data": traces, "layout": layout}


def _layout(height: int) -> dict[str, Any]:
    return {
        "height": height,
        "margin": MARGIN,
        "showlegend": False,
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "@font", "size": 13, "color": INK},
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": GRID, "font": {"family": "@font", "size": 13, "color": INK}},
    }


def _axis(axis: Axis) -> dict[str, Any]:
    built: dict[str, Any] = {
        "title": {"text": axis.title, "font": {"size": 13, "color": MUTED}, "standoff": 8},
        "gridcolor": GRID,
        "linecolor": GRID,
        "tickfont": {"color": MUTED},
        "zeroline": False,
        "automargin": True,
    }
    if axis.span is not None:
        built["range"] = [math.log10(end) if axis.log else end for end in axis.span]
    if axis.ticks:
        built |= {"tickmode": "array", "tickvals": list(axis.ticks)}
    if axis.log:
        texts = [f"10<sup>{_power(tick)}</sup>" if axis.powers else f"{tick:g}" for tick in axis.ticks]
        built |= {"type": "log", "ticktext": texts}
    return built


def _power(value: float) -> str:
    return str(round(math.log10(value))).replace("-", "−")


def _traces(series: Series, x: Sequence[float]) -> list[dict[str, Any]]:
    look, colour = series.look, colour_of(series.look)
    line = {"color": colour, "width": 2, "dash": look.dash}
    if series.steps:
        line["shape"] = "hv"
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": look.label,
        "legendgroup": look.label,
        "mode": "+".join(["lines"] * series.line + ["markers"] * bool(look.marker)),
        "x": list(x),
        "y": list(series.y),
        "line": line,
        "hovertemplate": _hover(series),
        "customdata": _custom(series),
        "yaxis": "y2" if series.second else "y",
    }
    if look.marker:
        trace["marker"] = {
            "symbol": look.marker,
            "size": 10 if "triangle" in look.marker else 8,
            "color": colour,
            "line": {"width": 1.5},
        }
        if look.marker.endswith("-open"):
            trace["marker"]["line"]["color"] = colour
        else:
            trace["marker"]["line"] = {"width": 1, "color": PAPER}
    if series.band:
        return [*_band(series), trace]
    if any(value is not None for value in series.low):
        trace["error_y"] = _bars(series)
    return [trace]


def _bars(series: Series) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [_gap(high, y) for high, y in zip(series.high, series.y, strict=True)],
        "arrayminus": [_gap(y, low) for low, y in zip(series.low, series.y, strict=True)],
        "thickness": 1.2,
        "width": 3,
        "color": colour_of(series.look),
    }


def _gap(more: Number, less: Number) -> float:
    return 0.0 if more is None or less is None else max(0.0, more - less)


def _band(series: Series) -> list[dict[str, Any]]:
    colour = colour_of(series.look)
    common = {
        "type": "scatter",
        "mode": "lines",
        "x": list(series.x),
        "line": {"width": 0, "color": colour},
        "legendgroup": series.look.label,
        "name": series.look.label,
        "hoverinfo": "skip",
        "yaxis": "y2" if series.second else "y",
    }
    fill = {"fill": "tonexty", "fillcolor": "rgba(128,128,128,.12)" if colour.startswith("@") else colour + FAINT}
    return [{**common, "y": list(series.low)}, {**common, "y": list(series.high), **fill}]


def _hover(series: Series) -> str:
    interval = " [%{customdata[0]}]" if any(value is not None for value in series.low) else ""
    note = "<br>%{customdata[1]}" if series.notes else ""
    label = html.escape(series.look.label)
    return f"<b>{label}</b><br>%{{customdata[2]}}: %{{y:.4~g}}{interval}{note}<extra></extra>"


def _custom(series: Series) -> list[list[str]]:
    def ends(index: int) -> str:
        if not series.low or series.low[index] is None or series.high[index] is None:
            return "one run"
        return f"{series.low[index]:.4g} to {series.high[index]:.4g}"

    notes = series.notes or [""] * len(series.x)
    return [[ends(index), notes[index], f"{x:.6g}"] for index, x in enumerate(series.x)]


def _heat(heat: Heat) -> dict[str, Any]:
    columns, rows = list(range(len(heat.columns))), list(range(len(heat.rows)))
    low, high = heat.span
    trace = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": [list(row) for row in heat.values],
        "zmin": low,
        "zmax": high,
        # From nothing to the accent, so that one scale serves a light and a dark page.
        "colorscale": [[at, _faded(alpha)] for at, alpha in heat.shades],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "customdata": [list(row) for row in heat.notes] or [["" for _ in columns] for _ in rows],
        "text": [list(row) for row in heat.texts] or [["" for _ in columns] for _ in rows],
        "texttemplate": "%{text}",
        "textfont": {"color": INK, "size": 12 if len(columns) <= 8 else 10},
        "hovertemplate": "%{customdata}<extra></extra>",
        "hoverongaps": False,
    }
    layout = _layout(ROW * max(4, len(rows)) + HEAT_MARGIN)
    layout["xaxis"] = _category(heat.columns, heat.axes[0])
    layout["xaxis"]["tickangle"] = 0 if max(map(len, heat.columns)) <= SHORT else -35
    layout["yaxis"] = {**_category(heat.rows, heat.axes[1]), "autorange": "reversed"}
    layout["shapes"], layout["annotations"] = _groups(heat.groups)
    layout["margin"] = {**MARGIN, "t": 30 if heat.groups else 8}
    data = [trace]
    if heat.marks:
        data.append(_marks(heat.marks))
    return {"data": data, "layout": layout}


def _faded(alpha: float) -> str:
    red, green, blue = (int(ACCENT[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def _category(labels: Sequence[str], title: str) -> dict[str, Any]:
    axis = _axis(Axis(title))
    return {
        **axis,
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": ["<br>".join(map(html.escape, lines_of(label))) for label in labels],
        "showgrid": False,
        "fixedrange": True,
    }


def _groups(groups: Sequence[tuple[str, int]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A line between kinds of attention, and their names above."""
    lines, names, begin = [], [], 0
    for name, count in groups:
        names.append(
            {
                "text": name,
                "x": begin + (count - 1) / 2,
                "xref": "x",
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12, "color": MUTED},
            }
        )
        if begin:
            edge = begin - 0.5
            style = {"color": MUTED, "width": 1}
            lines.append({"type": "line", "x0": edge, "x1": edge, "y0": 0, "y1": 1.06, "yref": "paper", "line": style})
        begin += count
    return lines, names


def _marks(cells: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [column for _, column in cells],
        "y": [row for row, _ in cells],
        "marker": {"symbol": "circle", "size": 9, "color": INK, "line": {"width": 1.5, "color": PAPER}},
        "name": "kept",
        "hoverinfo": "skip",
    }
