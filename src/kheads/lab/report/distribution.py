"""Where the kept heads are, by layer and kind (the paper's Figure 6), and how far choices agree."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kheads.lab.report.drawing import Figure, Heat
from kheads.lab.report.quality import ordered
from kheads.lab.report.results import Results, Run
from kheads.lab.report.style import COUNT_SHADES
from kheads.measuring.statistics import agreement
from kheads.methods.claims import BY_LOT

MOST_TEXTS = 12  # columns in which numbers can be read on a phone


def distribution_figure(results: Results) -> Figure | None:
    """One heat map for each method: a row for each K, a column for each layer and kind."""
    shown = [variant for variant in ordered(results) if variant.key not in BY_LOT]
    heats = [_heat(results.look(variant).label, results.main[variant]) for variant in shown]
    if not heats:
        return None
    caption = (
        "Heads kept in each attention module, mean over seeds; the stronger the colour, the larger their share of the "
        "module's heads. Rows are K; columns are layers, counted from 0 at the input, kind by kind."
    )
    return Figure("distribution", "Distribution of kept heads", heats, caption, "Fig. 6")


def shares(runs: Sequence[Run]) -> list[float]:
    """How many heads each column keeps, mean over runs."""
    columns = runs[0].columns
    return [sum(len(run.record["kept"].get(column.site, ())) for run in runs) / len(runs) for column in columns]


def _heat(title: str, runs: Sequence[Run]) -> Heat:
    columns = runs[0].columns
    ks = sorted({run.k for run in runs}, reverse=True)
    values = [shares([run for run in runs if run.k == k]) for k in ks]
    notes = [
        [
            f"K = {k}, {column.kind} layer {column.layer}: {value:.2f} of {column.heads} heads"
            for value, column in zip(row, columns, strict=True)
        ]
        for k, row in zip(ks, values, strict=True)
    ]
    groups = [(kind, len(list(found))) for kind, found in itertools.groupby(column.kind for column in columns)]
    return Heat(
        title,
        [str(k) for k in ks],
        [str(column.layer) for column in columns],
        values,
        texts=[[f"{value:.1f}".removesuffix(".0") for value in row] for row in values]
        if len(columns) <= MOST_TEXTS
        else (),
        notes=notes,
        axes=("Layer", "K"),
        groups=groups if len(groups) > 1 else (),
        top=max(column.heads for column in columns),
        shades=COUNT_SHADES,
        unit="heads kept",
    )


def agreement_figure(results: Results) -> Figure | None:
    """How far methods agree on heads, and seeds of one method, averaged over every K that both have."""
    variants = ordered(results)
    names = [results.look(variant).label for variant in variants]
    values = [[_agreement(results.main[a], results.main[b], results.total) for b in variants] for a in variants]
    if not any(value is not None for row in values for value in row):
        return None
    texts = [["" if value is None else f"{value:.2f}".replace("-", "−") for value in row] for row in values]
    notes = [
        [f"{a} and {b}: {text or 'one seed only'}" for b, text in zip(names, row, strict=True)]
        for a, row in zip(names, texts, strict=True)
    ]
    heat = Heat("", names, names, values, texts, notes, top=1.0, unit="agreement")
    caption = (
        "How far two choices of heads agree beyond chance: 1 for the same heads, 0 for what two random choices share. "
        "Off the diagonal: two methods at the same K, over every pair of seeds; on it: two seeds of one method. Mean "
        "over every K below the number of heads."
    )
    return Figure("agreement", "Agreement of kept heads", [heat], caption)


def _agreement(a: Sequence[Run], b: Sequence[Run], total: int) -> float | None:
    found = [
        agreement(one.kept, other.kept, total)
        for one in a
        for other in b
        if one.k == other.k < total and one is not other
    ]
    return sum(found) / len(found) if found else None
