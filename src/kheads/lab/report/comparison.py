"""What each method costs and gives (the paper's Table 1), computed from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kheads.lab.report.drawing import Table
from kheads.lab.report.pooling import scaled
from kheads.lab.report.quality import ordered
from kheads.lab.report.results import NONE, Results, Run, Variant
from kheads.lab.report.style import metric_name, scale
from kheads.measuring.statistics import Interval, mean_interval

COLUMNS = (
    "Method",
    "Extra gradients (examples)",
    "Extra seconds",
    "Heads off K by itself",
    "Heads off K in the end",
)
# Training after the choice is no cost of choosing.
AFTERWARDS = "recover"


def comparison_table(results: Results) -> Table | None:
    """One row for each method; quality over the K that all of them have."""
    variants = ordered(results)
    if not variants:
        return None
    common = sorted(set.intersection(*[{run.k for run in results.main[variant]} for variant in variants]))
    qualities = {variant: mean_quality(results, results.main[variant], common) for variant in variants}
    rows = [_row(results, variant, qualities[variant]) for variant in variants]
    caption = (
        "Extra gradients and seconds are those beyond training the unpruned model, mean over runs; seconds over those "
        "that did not take this work over from another K. Where a method trains the model itself, its seconds are its "
        "training minus that of the unpruned model of the same seed. Heads off K by itself: how far the method's own "
        "choice was from the asked K before heads were added or dropped."
        + _quality_told(common, list(qualities.values()))
    )
    columns = [*COLUMNS, f"{metric_name(results.metric)}, mean over K"]
    return Table("comparison", "Cost, control and quality", columns, rows, caption, "Tab. 1")


def _quality_told(ks: Sequence[int], found: Sequence[Interval | None]) -> str:
    if not ks:
        return ""
    ranges = any(quality is not None and quality.is_range for quality in found)
    ends = "the range of the two seeds" if ranges else "its 95 % interval over seeds"
    return f" Quality is over the K that all methods have ({', '.join(map(str, ks))}), in brackets {ends}."


def training_seconds(results: Results) -> dict[int, float]:
    """How long the unpruned model trained, by seed."""
    trained = [run for run in results.runs if run.key == NONE and "train" in run.seconds]
    return {run.seed: run.seconds["train"] for run in trained}


def extra_seconds(run: Run, unpruned: Mapping[int, float]) -> float | None:
    """Time beyond training the unpruned model; None where that is not known.

    Args:
        run: the run.
        unpruned: how long the unpruned model of each seed trained.
    """
    besides = (AFTERWARDS,) if run.trains_model else (AFTERWARDS, "train")
    spent = [seconds for phase, seconds in run.seconds.items() if phase not in besides]
    if not spent or run.took_over or (run.trains_model and run.seed not in unpruned):
        return None
    return sum(spent) - (unpruned[run.seed] if run.trains_model else 0.0)


def mean_quality(results: Results, runs: Sequence[Run], ks: Sequence[int]) -> Interval | None:
    """Over seeds, of each seed's mean over K; seeds that lack a K are left out."""
    found = results.qualities(runs)
    seeds = [seed for seed in sorted({run.seed for run in runs}) if all((k, seed) in found for k in ks)]
    return mean_interval([sum(found[k, seed] for k in ks) / len(ks) for seed in seeds]) if ks and seeds else None


def _row(results: Results, variant: Variant, quality: Interval | None) -> list[str]:
    runs, unpruned = results.main[variant], training_seconds(results)
    own = [abs(run.own_heads[1] - run.k) if run.own_heads else 0 for run in runs]
    off = [abs(len(run.kept) - run.k) for run in runs]
    return [
        results.look(variant).label,
        _mean([run.report.get("extra_gradients") for run in runs], "{:,.0f}"),
        _mean([extra_seconds(run, unpruned) for run in runs], "{:,.1f}"),
        _mean(own, "{:.1f}"),
        _mean(off, "{:.0f}"),
        "–" if quality is None else _with_interval(quality, scale(results.metric)),
    ]


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    text = form.format(sum(known) / len(known)) if known else "–"
    return text.replace("-", "−")


def _with_interval(found: Interval, factor: float) -> str:
    low, high = scaled(found.low, factor), scaled(found.high, factor)
    return f"{factor * found.mean:.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")
