"""Reading what runs left behind: a results folder of a sweep, or the folder of one run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kheads.lab.report.sites import Column, columns_of
from kheads.training.recording import NAME

# Where a task has several evaluation sets, the first of these that is there is the one to report.
REPORTED_SETS = ("mismatched", "test")
LOWER_IS_BETTER = ("perplexity", "loss")
# Axes of a sweep that do not make another method: figures of their own show them, or they only say how often to look.
SHOWN_ELSEWHERE = ("weight", "lambda", "annealed", "anneal")
LOOKING = ("eval_steps", "logging_steps")


@dataclass(frozen=True)
class Variant:
    """What is compared: a method, joint or pipelined, with the settings of a sweep that set it apart."""

    method: str
    pipelined: bool = False
    apart: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Such as dsp, dsp-pipelined or michel, which is always pipelined."""
        return f"{self.method}-pipelined" if self.pipelined and self.method in ("dsp", "ste", "voita") else self.method


@dataclass(frozen=True)
class Run:
    """One finished run: its record, and what figures ask of it."""

    record: Mapping[str, Any]

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """The sweep's own words on the run; those of its settings where it was run alone."""
        settings = self.record.get("settings", {})
        alone = {key: settings.get(key) for key in ("k", "seed", "pipelined")}
        return {"id": "run", "axes": {}, **alone, "method": self.record["method"]["name"], **self.record.get("run", {})}

    @cached_property
    def variant(self) -> Variant:
        """What it is an example of."""
        apart = sorted(
            (name.rpartition(".")[2], str(value))
            for name, value in self.about["axes"].items()
            if name.rpartition(".")[2] not in SHOWN_ELSEWHERE + LOOKING
        )
        return Variant(self.about["method"], bool(self.about["pipelined"]), tuple(apart))

    @property
    def total(self) -> int:
        """The heads of the unpruned model, H."""
        return int(self.record["before"]["heads"])

    @property
    def k(self) -> int:
        """How many heads were asked for; all of them for the unpruned baseline."""
        return self.total if self.about["k"] is None else int(self.about["k"])

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.about["seed"] or 0)

    @property
    def annealed(self) -> bool:
        """Whether the temperature fell; True where there is none."""
        return bool(self.record["method"].get("annealed", True))

    @property
    def kept(self) -> set[tuple[str, int]]:
        """The heads that stay."""
        return heads_in(self.record["kept"])

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Its attention modules by layer and kind."""
        return columns_of(self.record)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Durations by phase."""
        return self.record.get("report", {}).get("seconds", {})

    @property
    def own_heads(self) -> tuple[float, int] | None:
        """Voita's lambda and the number of heads it led to by itself; None for other methods."""
        said = self.record.get("report", {}).get("method", {})
        return (said["lambda"], said["natural_heads"]) if "natural_heads" in said else None

    @property
    def steps(self) -> int:
        """Optimizer steps of the main phase; those before and after the cut where a method trains on after it."""
        said = self.record.get("report", {}).get("method", {})
        if "steps_after_cut" in said:
            return int(said["steps_before_cut"] + said["steps_after_cut"])
        return max((int(entry.get("step", 0)) for log in self._main_logs() for entry in log), default=0)

    def _main_logs(self) -> Iterator[Sequence[Mapping[str, Any]]]:
        history = self.record.get("history", {})
        yield from (history[phase] for phase in ("train", "gates") if phase in history)

    def log(self, phase: str = "gates") -> list[Mapping[str, Any]]:
        """The log entries of a phase."""
        return list(self.record.get("history", {}).get(phase, []))

    def quality(self, evaluation: str, stage: str = "pruned") -> float | None:
        """The headline metric of a stage; None where it was not measured."""
        value = self.record["metrics"].get(stage, {}).get(evaluation, {}).get(self.record["metric"])
        return None if value is None or not math.isfinite(value) else float(value)


@dataclass(frozen=True)
class Results:
    """A results folder.

    Attributes:
        folder: where it is.
        sweep: the sweep's expanded config.
        runs: the finished runs.
        failed: what the sweep says of those that failed.
        efficiency: efficiency experiments, one for each model.
        evaluation: the evaluation set that figures and claims report.
    """

    folder: Path
    sweep: Mapping[str, Any]
    runs: tuple[Run, ...]
    failed: tuple[Mapping[str, Any], ...]
    efficiency: tuple[Mapping[str, Any], ...]
    evaluation: str

    @property
    def metric(self) -> str:
        """The headline metric."""
        return str(self.runs[0].record["metric"]) if self.runs else "quality"

    @property
    def total(self) -> int:
        """The heads of the unpruned model; 0 without runs."""
        return self.runs[0].total if self.runs else 0

    @cached_property
    def compared(self) -> dict[Variant, list[Run]]:
        """The runs of each method that stand for it: annealed, and with Voita's lambda that comes nearest to K."""
        best: dict[tuple[Variant, int, int], Run] = {}
        for run in self.runs:
            if run.variant.method == "none" or not run.annealed:
                continue
            place = (run.variant, run.k, run.seed)
            if place not in best or _adjusted(run) < _adjusted(best[place]):
                best[place] = run
        found: dict[Variant, list[Run]] = {}
        for (variant, _, _), run in best.items():
            found.setdefault(variant, []).append(run)
        return found

    @cached_property
    def main(self) -> dict[Variant, list[Run]]:
        """Of the compared ones, those that no setting sets apart, wherever a method has such runs."""
        plain = {variant.key for variant in self.compared if not variant.apart}
        return {one: runs for one, runs in self.compared.items() if not one.apart or one.key not in plain}

    def of(self, key: str) -> list[Run]:
        """The runs that stand for a method by key, such as dsp-pipelined; none where settings leave several."""
        found = [runs for variant, runs in self.main.items() if variant.key == key]
        return found[0] if len(found) == 1 else []

    def qualities(self, runs: Iterable[Run], stage: str = "pruned") -> dict[tuple[int, int], float]:
        """The headline metric by K and seed."""
        values = {(run.k, run.seed): run.quality(self.evaluation, stage) for run in runs}
        return {place: value for place, value in values.items() if value is not None}

    def unpruned(self) -> dict[int, float]:
        """The headline metric of the unpruned model by seed."""
        shared = {run.seed: run.quality(self.evaluation, "unpruned") for run in self.runs}
        trained = {run.seed: run.quality(self.evaluation) for run in self.runs if run.variant.method == "none"}
        return {seed: value for seed, value in {**shared, **trained}.items() if value is not None}


def read(folder: Path, evaluation: str | None = None, efficiency: Sequence[Path] = ()) -> Results:
    """Reads a results folder.

    Args:
        folder: what `kheads sweep` wrote.
        evaluation: the evaluation set to report; the usual one if not given.
        efficiency: further efficiency experiments: files, or folders with `efficiency.json`.
    """
    if not is_results(folder):
        raise ValueError(
            f"{folder} is not a results folder: it has no runs/*.json and no efficiency.json. "
            "Give the folder of a sweep, or one that `kheads prune -o` wrote."
        )
    records = [_load(path) for path in sorted((folder / "runs").glob("*.json"))]
    failed = tuple(record["run"] for record in records if record.get("run", {}).get("state") == "failed")
    runs = tuple(Run(record) for record in records if record.get("run", {}).get("state", "done") == "done")
    sweep = _load(folder / "sweep.json") if (folder / "sweep.json").exists() else {"name": folder.name}
    files = [path / "efficiency.json" if path.is_dir() else path for path in efficiency]
    measured = tuple(_load(path) for path in (*sorted(folder.glob("efficiency*.json")), *files))
    return Results(folder, sweep, runs, failed, measured, _reported(runs, evaluation))


def is_results(folder: Path) -> bool:
    """Whether a folder holds the results of a sweep."""
    return any((folder / "runs").glob("*.json")) or any(folder.glob("efficiency*.json"))


def is_run(folder: Path) -> bool:
    """Whether a folder holds one pruned model with its record."""
    return (folder / NAME).exists()


def read_run(folder: Path) -> tuple[Run, Mapping[str, Any] | None]:
    """Reads the record of one run, and what `kheads measure` found of it."""
    measured = folder / "measure.json"
    return Run(_load(folder / NAME)), _load(measured) if measured.exists() else None


def heads_in(kept: Mapping[str, Sequence[int]]) -> set[tuple[str, int]]:
    """`{site: [head, ...]}` as a set of heads."""
    return {(site, head) for site, heads in kept.items() for head in heads}


def reported_set(names: Sequence[str]) -> str:
    """The evaluation set to report: the held-out one by its usual name, otherwise the last."""
    usual = [name for wanted in REPORTED_SETS for name in names if wanted in name]
    return (usual or list(names))[0 if usual else -1]


def _reported(runs: Sequence[Run], asked: str | None) -> str:
    names = list(dict.fromkeys(name for run in runs for stage in run.record["metrics"].values() for name in stage))
    if asked is not None and asked not in names:
        raise ValueError(
            f"`--set` must be one of {', '.join(names) or '(none: nothing was evaluated)'}; got {asked!r}."
        )
    return asked or (reported_set(names) if names else "")


def _adjusted(run: Run) -> int:
    """How many heads had to be added or dropped to reach K."""
    return abs(run.own_heads[1] - run.k) if run.own_heads else 0


def _load(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}); delete it and run it again.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold one JSON object; got {type(found).__name__}.")
    return found
