"""Training dynamics of joint runs with and without annealing (the paper's Figures 7 and 8)."""

from __future__ import annotations

from collections.abc import Sequence

from kheads.lab.report.drawing import Axis, Figure, Panel, Series, file_name, log_axis
from kheads.lab.report.pooling import band
from kheads.lab.report.results import Results, Run, Variant, heads_in
from kheads.lab.report.setting import differing
from kheads.lab.report.style import ACCENT, MUTED, metric_name, scale
from kheads.methods.look import Look

QUALITY = Look("Quality", slot=0, marker="")
SHARE = Look("Heads already as in the end", marker="", colour=ACCENT)
TEMPERATURE = Look("Temperature τ", marker="", dash="dot", colour=MUTED)
MOST = 3


def joint_runs(results: Results, annealed: bool) -> list[Run]:
    """Runs that train the model with a temperature, and whose log says which heads were chosen at each moment."""
    return [
        run
        for run in results.runs
        if run.anneals and run.trains_model and run.annealed == annealed and len(chosen_shares(run)) > 1
    ]


def chosen_shares(run: Run) -> dict[int, float]:
    """By step: the share of the heads chosen then that are kept in the end."""
    final = run.kept
    heads_of = {column.site for column in run.columns}
    logged = [(int(entry["step"]), entry["kept"]) for entry in run.log() if "kept" in entry]
    entries = [(step, heads_in({site: kept[site] for site in kept if site in heads_of})) for step, kept in logged]
    return {step: len(heads & final) / len(heads) for step, heads in entries if heads}


def qualities(run: Run, evaluation: str) -> dict[int, float]:
    """By step: the headline metric, where the run was evaluated while it trained."""
    metric = run.record["metric"]
    keys = (f"eval_{evaluation}_{metric}", f"eval_{metric}", f"{evaluation}_{metric}")
    return {int(entry["step"]): float(entry[key]) for entry in run.log() for key in keys if key in entry}


def dynamics_figures(results: Results) -> list[Figure]:
    """One figure for each K that ran both ways; one K if none did. The paper's K = H / 12 comes first."""
    groups: dict[tuple[int, Variant], list[Run]] = {}
    for run in (*joint_runs(results, True), *joint_runs(results, False)):
        groups.setdefault((run.k, run.variant), []).append(run)
    both = [runs for runs in groups.values() if len({run.annealed for run in runs}) == 2]
    chosen = sorted(both or groups.values(), key=lambda runs: abs(runs[0].k - results.total / 12))
    shown = chosen[: MOST if both else 1]
    several = len({runs[0].key for runs in shown}) > 1
    keys = ["-".join(_words(runs[0], several)) for runs in shown]
    return [_figure(results, runs, file_name(key), key != keys[0]) for key, runs in zip(keys, shown, strict=True)]


def _words(run: Run, several: bool) -> list[str]:
    """What sets a figure apart: its K, its method where there are several, and its settings."""
    return ["dynamics", str(run.k), *[run.key] * several, *[word for pair in run.variant.apart for word in pair]]


def _figure(results: Results, runs: Sequence[Run], key: str, further: bool) -> Figure:
    k, variant = runs[0].k, runs[0].variant
    named = [
        ("With annealing", [run for run in runs if run.annealed]),
        ("Without annealing", [run for run in runs if not run.annealed]),
    ]
    panels = [panel(title, some, results.evaluation) for title, some in named if some]
    evaluated = any(qualities(run, results.evaluation) for run in runs)
    caption = (
        f"{results.look(variant).label} with K = {k}. "
        + "Of the heads chosen at each moment, the share that is kept in the end"
        + (f", and {metric_name(results.metric)} on {results.evaluation}" if evaluated else "")
        + "; mean over seeds, with the range of seeds as a band. The temperature has the axis on the right. "
        + ("" if evaluated else "These runs were not evaluated while they trained, so there is no line of quality. ")
        + differing(results, runs)
    )
    return Figure(key, f"Training dynamics, K = {k}", panels, caption, "Fig. 8" if further else "Fig. 7")


def panel(title: str, runs: Sequence[Run], evaluation: str) -> Panel:
    """Quality and chosen heads over the steps, the temperature on the second axis."""
    metric = runs[0].record["metric"]
    lines = [
        _mean(SHARE, [chosen_shares(run) for run in runs], 100),
        _mean(QUALITY, [qualities(run, evaluation) for run in runs], scale(metric)),
        _mean(TEMPERATURE, [_temperatures(run) for run in runs], second=True),
    ]
    # The share and the usual metrics live on one scale from 0 to 100.
    name = "Share (%)" if lines[1] is None else f"Share and {metric_name(metric)}"
    shown = [line for line in lines if line is not None]
    second = None
    if lines[2] is not None:
        second = log_axis("Temperature τ", [value for value in lines[2].y if value])
    last = max(step for run in runs for step in chosen_shares(run))
    return Panel(title, Axis("Step", span=(0, last)), Axis(name, span=(0, 104)), shown, second)


def _temperatures(run: Run) -> dict[int, float]:
    return {int(entry["step"]): float(entry["temperature"]) for entry in run.log() if "temperature" in entry}


def _mean(style: Look, lines: Sequence[dict[int, float]], factor: float = 1.0, second: bool = False) -> Series | None:
    lines = [line for line in lines if line]
    if not lines:
        return None
    steps = sorted(set.intersection(*[set(line) for line in lines]))
    return band(style, steps, [[factor * line[step] for step in steps] for line in lines], second) if steps else None
