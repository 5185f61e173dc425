"""What each method costs and gives (the paper's Table 1), computed from the records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kheads.lab.report.drawing import Table
from kheads.lab.report.pooling import scaled
from kheads.lab.report.quality import ordered
from kheads.lab.report.results import Results, Run, Variant
from kheads.lab.report.setting import setting
from kheads.lab.report.style import look, metric_name, scale
from kheads.measuring.statistics import Interval, mean_interval

COLUMNS = (
    "Method",
    "Extra gradients (examples)",
    "Extra seconds",
    "Heads off K by itself",
    "Heads off K in the end",
)


def comparison_table(results: Results) -> Table | None:
    """One row for each method; quality over the K that all of them have."""
    variants = ordered(results)
    if not variants:
        return None
    common = sorted(set.intersection(*[{run.k for run in results.main[variant]} for variant in variants]))
    rows = [_row(results, variant, common) for variant in variants]
    quality = f"{metric_name(results.metric)}, mean over K"
    ks = ", ".join(map(str, common))
    caption = (
        "Extra gradients and seconds are those beyond training the unpruned model, mean over runs; seconds over those "
        "that did not take this work over from another K. Seconds of joint methods and of prune-and-retrain are their "
        "training minus that of the unpruned model of the same seed. Heads off K by itself: how far the method's own "
        "choice was from the asked K before heads were added or dropped. "
        + (f"Quality is over the K that all methods have ({ks}), with its 95 % interval over seeds. " if ks else "")
        + setting(results)
    )
    return Table("comparison", "Cost, control and quality", [*COLUMNS, quality], rows, caption, "Tab. 1")


def epoch_examples(results: Results) -> float | None:
    """How many training examples there are, from the log of any run that trained; None if there is none."""
    for run in results.runs:
        for entry in run.log("train") + ([] if run.about["pipelined"] else run.log("gates")):
            if entry.get("epoch") and entry.get("step") and "batch_size" in run.record["settings"]:
                return run.record["settings"]["batch_size"] * entry["step"] / entry["epoch"]
    return None


def extra_gradients(run: Run, epoch: float | None = None) -> float | None:
    """Examples whose gradient was computed only to choose heads; None where that is not known.

    Args:
        run: the run.
        epoch: how many training examples there are.
    """
    batch = run.record.get("settings", {}).get("batch_size")
    phases = run.record.get("history", {})
    if run.variant.method == "random":
        return 0.0
    if run.variant.method == "michel":
        return _estimated(run, epoch)
    if run.variant.method == "retrain":
        return run.record["settings"].get("estimate_examples") or epoch
    searches = [phase for phase in phases if phase.startswith("search-")]
    alone = (["gates"] if run.about["pipelined"] else []) + searches
    if batch is None or any(phase not in phases for phase in alone):
        return None
    return float(sum(batch * _last_step(phases[phase]) for phase in alone))


def _estimated(run: Run, epoch: float | None) -> float | None:
    """Michel looks at its examples once for all heads, and again after every round."""
    examples = run.record["settings"].get("estimate_examples") or epoch
    per_round = run.record["method"].get("per_round")
    if not examples or not per_round:
        return None
    return float(examples * (math.ceil((run.total - run.k) / per_round) + 1))


def _last_step(log: Sequence[Mapping[str, float]]) -> int:
    return max((int(entry.get("step", 0)) for entry in log), default=0)


def training_seconds(results: Results) -> dict[int, float]:
    """How long the unpruned model trained, by seed."""
    trained = [run for run in results.runs if run.variant.method == "none" and "train" in run.seconds]
    return {run.seed: run.seconds["train"] for run in trained}


def extra_seconds(run: Run, unpruned: Mapping[int, float]) -> float | None:
    """Time beyond training the unpruned model; None where that is not known."""
    spent = run.seconds
    searching = sum(seconds for phase, seconds in spent.items() if phase.startswith("search-"))
    if run.variant.method in ("michel", "random"):
        return spent.get("estimate")
    if run.variant.method == "retrain":
        parts = ("train", "estimate", "retrain")
        known = run.seed in unpruned and all(part in spent for part in parts)
        return sum(spent[part] for part in parts) - unpruned[run.seed] if known else None
    if "gates" not in spent:
        return None
    if run.about["pipelined"]:
        return spent["gates"] + searching
    return spent["gates"] - unpruned[run.seed] + searching if run.seed in unpruned else None


def mean_quality(results: Results, runs: Sequence[Run], ks: Sequence[int]) -> Interval | None:
    """Over seeds, of each seed's mean over K; seeds that lack a K are left out."""
    found = results.qualities(runs)
    seeds = [seed for seed in sorted({run.seed for run in runs}) if all((k, seed) in found for k in ks)]
    return mean_interval([sum(found[k, seed] for k in ks) / len(ks) for seed in seeds]) if ks and seeds else None


def _row(results: Results, variant: Variant, ks: Sequence[int]) -> list[str]:
    runs = results.main[variant]
    unpruned, epoch = training_seconds(results), epoch_examples(results)
    own = [abs(run.own_heads[1] - run.k) if run.own_heads else 0 for run in runs]
    off = [abs(len(run.kept) - run.k) for run in runs]
    quality = mean_quality(results, runs, ks)
    return [
        look(variant).name,
        _mean([extra_gradients(run, epoch) for run in runs], "{:,.0f}"),
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
