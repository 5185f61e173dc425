"""Reading what runs left behind: the results of a sweep, in their folder or packed, or the folder of one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kheads.lab import packing
from kheads.lab.report.budgets import Asked, budget_of
from kheads.lab.report.sites import Column, columns_of, feeds_of
from kheads.lab.report.style import hollow, look_in, with_colours
from kheads.lab.shape import EACH, EFFICIENCY, NUMBER_OR_NONE, RECORD, RUN, check
from kheads.methods.look import Look

# The record of one run, in the folder that `kheads prune` wrote; named here, because its writer needs transformers.
NAME = "result.json"
# The key of runs that keep every head.
NONE = "none"
# Where a task has several evaluation sets, the first of these that is there is the one to report.
REPORTED_SETS = ("mismatched", "test")
LOWER_IS_BETTER = ("perplexity", "loss")
# Axes of a sweep that only say how often to look.
LOOKING = ("eval_steps", "logging_steps")


@dataclass(frozen=True)
class Variant:
    """What is compared: a series of runs by the key of its look, with the settings of a sweep that set it apart."""

    key: str
    apart: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Run:
    """One finished run: its record, and what figures ask of it."""

    record: Mapping[str, Any]

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """The sweep's own words on the run; those of its settings where it was run alone."""
        alone = {key: self.settings.get(key) for key in ("k", "seed")}
        axes = self.settings.get("method_options") or {}
        return {"id": "run", "axes": axes, **alone, **self.record.get("run", {})}

    @property
    def settings(self) -> Mapping[str, Any]:
        """What was asked for."""
        return self._part("settings")

    @property
    def report(self) -> Mapping[str, Any]:
        """What the run says of itself."""
        return self._part("report")

    @property
    def key(self) -> str:
        """The series it belongs to."""
        return str(self._look.get("key") or self.record["method"]["name"])

    @property
    def look(self) -> Look:
        """How its method wants to be seen."""
        return look_in(self._look, self.key)

    @property
    def rank(self) -> float:
        """Its method's place among the others; the last one if it has none."""
        return float(self._look.get("rank", math.inf))

    @property
    def _look(self) -> Mapping[str, Any]:
        return self._part("look")

    def _part(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record.get(name, {})
        return found

    @cached_property
    def variant(self) -> Variant:
        """What it is an example of."""
        axes = ((name.rpartition(".")[2], str(value)) for name, value in self.about["axes"].items())
        return Variant(self.key, tuple(sorted(pair for pair in axes if pair[0] not in self._shown_elsewhere)))

    @property
    def _shown_elsewhere(self) -> tuple[str, ...]:
        """Axes that do not make another series, because figures of their own show them."""
        penalty = ("weight",) if self.own_heads else ()
        return (*LOOKING, *penalty, *(("annealed",) if self.anneals else ()))

    @property
    def total(self) -> int:
        """The heads of the unpruned model, H."""
        return int(self.record["before"]["heads"])

    @property
    def k(self) -> int:
        """How many heads were asked for; all of them for the unpruned baseline."""
        return self.total if self.about["k"] is None else int(self.about["k"])

    @cached_property
    def budget(self) -> Asked | None:
        """What was asked for, where it is no number of heads."""
        return budget_of(self.record)

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.about["seed"] or 0)

    @property
    def anneals(self) -> bool:
        """Whether its method has a temperature that may fall."""
        return "annealed" in self.record["method"]

    @property
    def annealed(self) -> bool:
        """Whether the temperature fell; True where there is none."""
        return bool(self.record["method"].get("annealed", True))

    @property
    def kept(self) -> set[tuple[str, int]]:
        """The heads that stay."""
        neurons = {column.site for column in self.feeds}
        return heads_in({site: heads for site, heads in self.record["kept"].items() if site not in neurons})

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Its attention modules by layer and kind."""
        return columns_of(self.record)

    @cached_property
    def feeds(self) -> tuple[Column, ...]:
        """Its feed-forward modules by layer, where neurons were chosen from."""
        return feeds_of(self.record)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Durations by phase."""
        found: Mapping[str, float] = self.report.get("seconds", {})
        return found

    @property
    def trains_model(self) -> bool:
        """Whether its training took the place of the unpruned model's."""
        return bool(self.report.get("trains_model"))

    @property
    def took_over(self) -> bool:
        """Whether another run of the sweep did a part of its work."""
        return any(self.about.get(part) for part in ("scores_from", "whole_from"))

    @property
    def own_heads(self) -> tuple[float, int] | None:
        """The weight of a penalty and the number of heads it led to by itself; None where there is no penalty."""
        said = self.report.get("method", {})
        return (float(said["weight"]), int(said["natural_heads"])) if {"weight", "natural_heads"} <= set(said) else None

    @property
    def steps(self) -> int:
        """Optimizer steps of the main phase; those before and after the cut where a method trains on after it."""
        said = self.report.get("method", {})
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
    """The results of a sweep.

    Attributes:
        folder: where they are: a folder, or a packed file.
        sweep: the sweep's expanded config.
        runs: the finished runs that were asked for a number of heads, or for all.
        failed: what the sweep says of those that failed.
        efficiency: efficiency experiments, one for each model.
        evaluation: the evaluation set that figures and claims report.
        budgeted: the finished runs that were asked for a budget of parameters, FLOPs or time.
    """

    folder: Path
    sweep: Mapping[str, Any]
    runs: tuple[Run, ...]
    failed: tuple[Mapping[str, Any], ...]
    efficiency: tuple[Mapping[str, Any], ...]
    evaluation: str
    budgeted: tuple[Run, ...] = ()

    @property
    def finished(self) -> tuple[Run, ...]:
        """All finished runs, whatever they were asked for."""
        return (*self.runs, *self.budgeted)

    @property
    def metric(self) -> str:
        """The headline metric."""
        return str(self.finished[0].record["metric"]) if self.finished else "quality"

    @property
    def sign(self) -> int:
        """1 where more of the metric is better, -1 where less is."""
        return -1 if self.metric in LOWER_IS_BETTER else 1

    @property
    def total(self) -> int:
        """The heads of the unpruned model; 0 without runs."""
        return self.finished[0].total if self.finished else 0

    @cached_property
    def looks(self) -> dict[str, Look]:
        """Each method's look by key, in their usual order; every one has a colour."""
        first: dict[str, Run] = {}
        for run in self.finished:
            first.setdefault(run.key, run)
        ordered = sorted(first.values(), key=lambda run: (run.rank, run.key))
        return with_colours({run.key: run.look for run in ordered if run.key != NONE})

    def look(self, variant: Variant) -> Look:
        """The look of a method; settings that set it apart go into its name, and it is drawn hollow and dotted."""
        plain = self.looks[variant.key]
        if not variant.apart:
            return plain
        return hollow(plain, f"{plain.label} ({', '.join(_told(*pair) for pair in variant.apart)})")

    def rank(self, variant: Variant) -> tuple[int, tuple[tuple[str, str], ...]]:
        """The order in which methods are listed."""
        return list(self.looks).index(variant.key), variant.apart

    @cached_property
    def compared(self) -> dict[Variant, list[Run]]:
        """The runs that stand for each method: annealed, and of several penalties the one that comes nearest to K."""
        best: dict[tuple[Variant, int, int], Run] = {}
        for run in self.runs:
            if run.key == NONE or not run.annealed:
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
        """The runs that stand for a method by its key; none where settings leave several."""
        found = [runs for variant, runs in self.main.items() if variant.key == key]
        return found[0] if len(found) == 1 else []

    def qualities(self, runs: Iterable[Run], stage: str = "pruned") -> dict[tuple[int, int], float]:
        """The headline metric by K and seed."""
        values = {(run.k, run.seed): run.quality(self.evaluation, stage) for run in runs}
        return {place: value for place, value in values.items() if value is not None}

    def unpruned(self) -> dict[int, float]:
        """The headline metric of the unpruned model by seed: of runs that keep every head, or else what others say."""
        trained = {run.seed: run.quality(self.evaluation) for run in self.runs if run.key == NONE}
        found = trained or {run.seed: run.quality(self.evaluation, "unpruned") for run in self.finished}
        return {seed: value for seed, value in found.items() if value is not None}


def read(path: Path, evaluation: str | None = None, efficiency: Sequence[Path] = ()) -> Results:
    """Reads the results of a sweep.

    Args:
        path: the folder that `kheads sweep` wrote, or the file that `kheads pack` made of it.
        evaluation: the evaluation set to report; the usual one if not given.
        efficiency: further efficiency experiments: files, or folders with `efficiency.json`.
    """
    if not path.is_file() and not is_results(path):
        raise ValueError(
            f"{path} is not a results folder: it has no runs/*.json and no efficiency.json. "
            "Give the folder of a sweep, the file that `kheads pack` made of it, or what `kheads prune -o` wrote."
        )
    files = packing.load(path)
    records = {name: content for name, content in files.items() if name.startswith("runs/")}
    states = {name: _state(record, f"{path}: {name}") for name, record in records.items()}
    runs = tuple(_run(records[name], f"{path}: {name}") for name, state in states.items() if state == "done")
    failed = tuple(records[name]["run"] for name, state in states.items() if state == "failed")
    sweep = files.get("sweep.json", {"name": path.resolve().name.removesuffix(packing.SUFFIX)})
    measured = [one for found, where in _measured(files, path, efficiency) for one in _efficiency(found, where)]
    counted = tuple(run for run in runs if run.budget is None)
    budgeted = tuple(run for run in runs if run.budget is not None)
    return Results(path, sweep, counted, failed, tuple(measured), _reported(runs, evaluation), budgeted)


def is_results(folder: Path) -> bool:
    """Whether a folder holds the results of a sweep."""
    return any((folder / "runs").glob("*.json")) or any(folder.glob("efficiency*.json"))


def is_run(folder: Path) -> bool:
    """Whether a folder holds one pruned model with its record."""
    return (folder / NAME).exists()


def read_run(folder: Path) -> tuple[Run, Mapping[str, Any] | None]:
    """Reads the record of one run, and what `kheads measure` found of it."""
    measured = folder / "measure.json"
    run = _run(packing.load_json(folder / NAME), str(folder / NAME))
    return run, packing.load_json(measured) if measured.exists() else None


def heads_in(kept: Mapping[str, Sequence[int]]) -> set[tuple[str, int]]:
    """`{site: [head, ...]}` as a set of heads."""
    return {(site, head) for site, heads in kept.items() for head in heads}


def reported_set(names: Sequence[str]) -> str:
    """The evaluation set to report: the held-out one by its usual name, otherwise the last."""
    usual = [name for wanted in REPORTED_SETS for name in names if wanted in name]
    return (usual or list(names))[0 if usual else -1]


def _run(record: Mapping[str, Any], name: str) -> Run:
    check(record, RECORD, name)
    numbers = {EACH: {EACH: {f"{record['metric']}?": NUMBER_OR_NONE}}}
    check(record["metrics"], numbers, f"{name}: `metrics`")
    return Run(record)


def _state(record: Mapping[str, Any], name: str) -> str:
    """How a run ended; one without the words of a sweep was run alone, and is done."""
    check(record, {"run?": RUN}, name)
    state = str(record.get("run", {}).get("state", "done"))
    if state not in ("done", "failed"):
        raise ValueError(f"{name} must say that its run is done or failed; got {state!r}.")
    return state


def _efficiency(files: packing.Files, where: Path) -> list[dict[str, Any]]:
    found = {name: content for name, content in files.items() if name.startswith("efficiency")}
    for name, content in found.items():
        check(content, EFFICIENCY, str(where) if where.suffix == ".json" else f"{where}: {name}")
    return list(found.values())


def _measured(files: packing.Files, path: Path, further: Sequence[Path]) -> Iterator[tuple[packing.Files, Path]]:
    """The files among which efficiency experiments are, and where they come from."""
    yield files, path
    yield from ((_further(one), one) for one in further)


def _further(path: Path) -> packing.Files:
    """An efficiency experiment beside the results, however it is given."""
    if packing.is_packed(path):
        return packing.unpack(path)
    file = path / "efficiency.json" if path.is_dir() else path
    return {"efficiency.json": packing.load_json(file)}


def _reported(runs: Sequence[Run], asked: str | None) -> str:
    names = list(dict.fromkeys(name for run in runs for stage in run.record["metrics"].values() for name in stage))
    if asked is not None and asked not in names:
        raise ValueError(
            f"`--set` must be one of {', '.join(names) or '(none: nothing was evaluated)'}; got {asked!r}."
        )
    return asked or (reported_set(names) if names else "")


def _told(name: str, value: str) -> str:
    """A setting that sets a series apart, in words: `preset paper`, `repair`, `without repair`."""
    return {"True": name, "False": f"without {name}"}.get(value, f"{name} {value}")


def _adjusted(run: Run) -> int:
    """How many heads had to be added or dropped to reach K."""
    return abs(run.own_heads[1] - run.k) if run.own_heads else 0
