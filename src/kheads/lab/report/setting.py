"""What was run, in words: the end of every caption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from kheads.lab.report.results import Results, Run


def setting(results: Results, runs: Sequence[Run] | None = None) -> str:
    """Task, model, steps, seeds and machine of some runs; of all if none are given."""
    runs = results.runs if runs is None else runs
    if not runs:
        return ""
    parts = [_task(results.sweep, runs), _models(runs), steps(runs), seeds(runs)]
    return f"Setting: {', '.join(part for part in parts if part)}; {machines(run.record for run in runs)}."


def steps(runs: Iterable[Run]) -> str:
    """How long training was, such as 600 steps of batch 32."""
    runs = list(runs)
    trained = [run for run in runs if "unpruned" not in run.record["metrics"]] or runs  # others learn gates alone
    lengths = _span({run.steps for run in trained if run.steps})
    batches = _span({int(run.record["settings"]["batch_size"]) for run in runs if "batch_size" in _settings(run)})
    return f"{lengths} steps" + (f" of batch {batches}" if batches else "") if lengths else ""


def seeds(runs: Iterable[Run]) -> str:
    """Which seeds."""
    numbers = sorted({run.seed for run in runs})
    return f"{'seed' if len(numbers) == 1 else 'seeds'} {', '.join(map(str, numbers))}"


def machines(records: Iterable[Mapping[str, Any]]) -> str:
    """What it ran on, each machine once."""
    found = []
    for record in records:
        machine = record.get("machine", {})
        device, cores, threads = (machine.get(key) for key in ("device", "cores", "threads"))
        text = f"{cores} cores" if device in (None, "cpu") else str(device)
        found.append(text + (f", {threads} thread{'s'[: threads != 1]}" if device == "cpu" and threads else ""))
    return " and ".join(dict.fromkeys(found)) or "machine not recorded"


def model_name(run: Run) -> str:
    """The model's name without its folder."""
    return PurePath(str(_settings(run).get("model", "model"))).name


def _task(sweep: Mapping[str, Any], runs: Sequence[Run]) -> str:
    told = sweep.get("task")
    if isinstance(told, str):
        return told
    named = {str(_settings(run)["task"]) for run in runs if _settings(run).get("task")}
    return ", ".join(sorted(named)) or "files"


def _models(runs: Sequence[Run]) -> str:
    # Runs that share one trained model name its folder; the model is that of the others.
    fresh = [run for run in runs if not _settings(run).get("trained")] or runs
    names = sorted({model_name(run) for run in fresh})
    return f"{', '.join(names)} ({runs[0].total} heads)"


def _settings(run: Run) -> Mapping[str, Any]:
    return run.record.get("settings", {})


def _span(numbers: set[int]) -> str:
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
