"""What was run, in words: once for the page, and in a caption only where some runs differ from the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from kheads.lab.report.pooling import listed
from kheads.lab.report.results import Results, Run


def setting(results: Results) -> str:
    """Task, model, steps, seeds and machine of all runs."""
    return f"{', '.join(_parts(results, results.finished))}." if results.finished else ""


def differing(results: Results, runs: Sequence[Run]) -> str:
    """What of the setting of some runs is not that of all; nothing where they are alike."""
    common = _parts(results, results.runs)
    own = [part for part in _parts(results, runs) if part not in common]
    return f"Here: {', '.join(own)}." if own else ""


def steps(runs: Iterable[Run]) -> str:
    """How long training was, such as 600 steps of batch 32."""
    runs = list(runs)
    trained = [run for run in runs if "unpruned" not in run.record["metrics"]] or runs  # others learn gates alone
    lengths = _span({run.steps for run in trained if run.steps})
    return f"{lengths} steps{_batches(runs)}" if lengths else ""


def _batches(runs: Sequence[Run]) -> str:
    """How large they were, in tokens or in examples."""
    tokens = {int(size) for run in runs if (size := (run.settings.get("data") or {}).get("batch_tokens"))}
    examples = {int(size) for run in runs if (size := run.settings.get("batch_size"))}
    if tokens:
        return f" of {_span(tokens)} tokens"
    return f" of batch {_span(examples)}" if examples else ""


def seeds(runs: Iterable[Run]) -> str:
    """Which seeds."""
    numbers = sorted({run.seed for run in runs})
    return f"{'seed' if len(numbers) == 1 else 'seeds'} {listed(numbers)}"


def machines(records: Iterable[Mapping[str, Any]]) -> str:
    """What it ran on, each machine once."""
    found = []
    for record in records:
        machine = record.get("machine", {})
        device, cores, threads = (machine.get(key) for key in ("device", "cores", "threads"))
        text = f"{cores} cores" if device in (None, "cpu") else str(device)
        found.append(text + (f" and {threads} thread{'s'[: threads != 1]}" if device == "cpu" and threads else ""))
    return "; ".join(dict.fromkeys(found)) or "machine not recorded"


def model_name(run: Run) -> str:
    """The model's name without its folder."""
    return PurePath(str(run.settings.get("model", "model"))).name


def _parts(results: Results, runs: Sequence[Run]) -> list[str]:
    machine = f"on {machines(run.record for run in runs)}"
    parts = [_task(results.sweep, runs), _models(runs), steps(runs), seeds(runs), machine]
    return [part for part in parts if part]


def _task(sweep: Mapping[str, Any], runs: Sequence[Run]) -> str:
    told = sweep.get("task")
    if isinstance(told, str):
        return told
    named = {str(run.settings["task"]) for run in runs if run.settings.get("task")}
    return ", ".join(sorted(named)) or "files"


def _models(runs: Sequence[Run]) -> str:
    # Runs that share one trained model name its folder; the model is that of the others.
    fresh = [run for run in runs if not run.settings.get("trained")] or runs
    names = sorted({model_name(run) for run in fresh})
    return f"{', '.join(names)} ({runs[0].total} heads)"


def _span(numbers: set[int]) -> str:
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
