"""Figures of the mathematics, drawn with the functions that they explain. They take the colour of the page's text."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure

from kheads import DSP, Goal, Moment, Site
from kheads.subset import gumbel, hard_concrete, logistic, soft_top_k

matplotlib.use("svg")
INK, FAINT = "#010203", "#888888"  # INK stands for the colour of the text until the figure is on its page
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}
STEPS = 400


@matplotlib.rc_context(STYLE)
def relaxations() -> str:
    """How the gates of twelve heads, four of which are to stay, settle as the temperature falls."""
    figure, panels = _panels(2, "temperature", "gate")
    logits = gumbel(12, torch.Generator().manual_seed(173))
    kept = set(logits.topk(4).indices.tolist())
    taus = torch.logspace(2, -2, 200, dtype=torch.float64).tolist()
    for panel, name in zip(panels, ("successive", "threshold"), strict=True):
        gates = torch.stack([soft_top_k(logits, 4, tau, name) for tau in taus])
        for head in range(12):
            colour, order = (COLOURS[0], 2) if head in kept else (FAINT, 1)
            panel.plot(taus, gates[:, head], color=colour, linewidth=1.3, zorder=order)
        panel.set(xscale="log", title=name)
        panel.invert_xaxis()
    return _inline(figure, "relaxations", "Gates of 12 heads against the temperature; 4 reach 1")


@matplotlib.rc_context(STYLE)
def schedules() -> str:
    """Temperature and number of open heads in the course of training, for each preset."""
    figure, (heat, count) = _panels(2, "share of training", "")
    goal = Goal(12, tuple(Site(f"layer {index}", "encoder", 12, 32) for index in range(6)))
    for colour, name in zip(COLOURS, ("paper", "short", "frozen"), strict=False):
        dsp = DSP.configured({"preset": name})
        moments = [Moment(step, STEPS) for step in range(STEPS)]
        shares = [moment.step / STEPS for moment in moments]
        heat.plot(shares, [dsp.temperature(moment) for moment in moments], color=colour, label=name)
        count.plot(shares, [float(dsp.budget(goal, moment)) for moment in moments], color=colour, label=name)
    heat.set(yscale="log", title="temperature")
    count.set(ylim=(0, 75), title="sum of the gates, K = 12 of 72")
    count.legend()
    return _inline(figure, "schedules", "Temperature and sum of the gates in training, by preset")


@matplotlib.rc_context(STYLE)
def hard_concretes() -> str:
    """What Voita's gates look like: much of their mass lies exactly at 0 and 1."""
    figure, panels = _panels(3, "gate", "share of samples")
    noise = logistic(100_000, torch.Generator().manual_seed(0))
    for panel, start in zip(panels, (-2.0, 0.0, 2.0), strict=True):
        gates = hard_concrete(torch.full_like(noise, start), noise)
        panel.hist(gates.tolist(), bins=25, range=(0, 1), weights=[1 / len(gates)] * len(gates), color=COLOURS[0])
        panel.set(ylim=(0, 1), title=f"parameter {start:g}")
    return _inline(figure, "hard-concretes", "Histograms of hard concrete gates for three values of their parameter")


def _panels(count: int, x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    panels = figure.subplots(1, count, sharey=count == 3)
    for panel in panels:
        panel.set_xlabel(x)
    panels[0].set_ylabel(y)
    return figure, panels


def _inline(figure: Figure, name: str, description: str) -> str:
    """The figure as an element of the page, so that it takes the page's colours and fonts."""
    written = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = written.getvalue().decode()
    drawn = drawn[drawn.index("<svg") :].replace(INK, "currentColor")
    drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%" role="img"', drawn, count=1)
    drawn = drawn.replace("<defs>", f"<title>{description}</title>\n<defs>", 1)
    return f'<figure class="drawn">\n{_without_empty_lines(drawn)}\n</figure>'


def _without_empty_lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip())
