"""What a sweep consists of: a config file becomes runs, each with a readable name and a job."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kheads.blocks.fields import Seed, Text
from kheads.lab.jobs.catalogue import data_of
from kheads.lab.jobs.job import AMOUNTS, DEFAULTS, FOR_TIMES, OF_BUDGETS, Job, unread
from kheads.lab.options import build, check
from kheads.lab.reading import read_toml
from kheads.lab.sweep.config import JOB_OPTIONS, Config, amounts_of, axes_of, base_job, concerns, listed, method_tables
from kheads.methods.phases import starts_from_trained
from kheads.methods.registry import UNPRUNED, find


@dataclass(frozen=True)
class Run:
    """One job of a sweep.

    Attributes:
        id: its name, made of what distinguishes it: `dsp-k12-s0-pipelined-annealed_false`, `surgeon-speedup2-s0`.
        job: what was asked.
        axes: values of the further axes that concern it.
        model_from: the run whose trained model it starts from; None trains its own.
        scores_from: the run whose scores it selects from; None finds its own.
        whole_from: the run whose model, trained along with those scores, it takes as it was before heads were removed.
        shared: other runs start from its model, which is therefore kept.
    """

    id: str
    job: Job
    axes: Mapping[str, Any] = field(default_factory=dict)
    model_from: str | None = None
    scores_from: str | None = None
    whole_from: str | None = None
    shared: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs that have to be done before."""
        return tuple(dict.fromkeys(name for name in (*self.starts_from, self.scores_from) if name is not None))

    @property
    def starts_from(self) -> tuple[str, ...]:
        """The runs whose models it needs."""
        return tuple(name for name in (self.model_from, self.whole_from) if name is not None)

    @property
    def gives_whole(self) -> bool:
        """Whether others start from its model as it is before heads are removed."""
        return self.shared and self.job.method != UNPRUNED

    @property
    def series(self) -> str:
        """What it has in common with the runs at other K, budgets and seeds."""
        words = [f"{name}={_word(value)}" for name, value in self.axes.items()]
        return " ".join([*(["pipelined"] if self.job.pipelined else []), self.job.method_name, *words])


@dataclass(frozen=True)
class Sweep:
    """All runs of a config, in an order in which each comes after those it needs."""

    name: str
    runs: tuple[Run, ...]
    config: Mapping[str, Any]
    keep_models: bool = False

    def describe(self) -> dict[str, Any]:
        """The head of the results: what was swept."""
        axes: dict[str, list[Any]] = {}
        for run in self.runs:
            values = {
                "method": run.job.method_name,
                **{name: getattr(run.job, name) for name in AMOUNTS},
                "seed": run.job.seed,
                "pipelined": run.job.pipelined,
            }
            for name, value in {**values, **run.axes}.items():
                if value is not None and value not in axes.setdefault(name, []):
                    axes[name].append(value)
        task = self.runs[0].job.task
        return {"name": self.name, "task": task, "axes": axes, "config": self.config, "runs": [r.id for r in self.runs]}


def read(path: str | Path) -> Sweep:
    """Reads a config file and expands it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give the TOML file of a sweep.")
    config = read_toml(path)
    try:
        return expand(config, path.stem)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def expand(config: Mapping[str, Any], name: str = "sweep") -> Sweep:
    """Turns a config into runs, and checks that every job can be built.

    Args:
        config: `job`, fields of `Job` that all runs share; `methods`, fields of each method that differ from its
            defaults; `grid`, one table or several of `methods`, `k` or a budget, `seeds`, `pipelined`, and any field of
            a job or a method as a further axis; `name`; `keep_models`.
        name: the sweep's name where the config has none.
    """
    asked = build(Config, config, "a sweep")
    grids = [asked.grid] if isinstance(asked.grid, Mapping) else asked.grid
    if not grids:
        raise ValueError("A sweep needs a [grid] with methods, k or a budget, and seeds.")
    base = base_job(asked.job)
    options = method_tables(asked.methods)
    found: dict[str, Run] = {}
    for grid in grids:
        for run in _expand_grid(base, options, grid):
            if run.id in found and found[run.id].job != run.job:
                raise ValueError(f"Two grids ask for {run.id} with different settings; name the difference as an axis.")
            found.setdefault(run.id, run)
    for of_times in FOR_TIMES:
        if base.get(of_times) is not None and all(getattr(run.job, of_times) is None for run in found.values()):
            raise ValueError(
                f"`{of_times}` in [job] is for budgets of FLOPs or time, and no grid has one; leave it out."
            )
    runs = _shared(_with_scores(found))
    return Sweep(asked.name or name, tuple(runs), dict(config), asked.keep_models)


def _expand_grid(base: Mapping[str, Any], options: Mapping[str, Any], grid: Mapping[str, Any]) -> Iterable[Run]:
    methods = listed(grid, "methods", Text)
    learning = {method for method in methods if method != UNPRUNED and find(method).pipelines}
    seeds = listed(grid, "seeds", Seed, default=[0])
    amount, amounts = amounts_of(grid)
    kinds = listed(grid, "pipelined", bool, default=[False])
    axes = axes_of(grid, methods)
    for seed, method, pipelined in itertools.product(seeds, methods, kinds):
        if pipelined and method not in learning:
            if False not in kinds:
                raise ValueError(f"`pipelined` is for methods that learn; {method!r} does not.")
            continue
        concerned = {axis: values for axis, values in axes.items() if concerns(axis, method, pipelined)}
        for value, *values in itertools.product(amounts if method != UNPRUNED else [None], *concerned.values()):
            given = {**base, "seed": seed, "method": method, amount: value, "pipelined": pipelined}
            yield from _runs(given, options.get(method, {}), dict(zip(concerned, values, strict=True)))


def _runs(given: dict[str, Any], options: Mapping[str, Any], axes: Mapping[str, Any]) -> Iterable[Run]:
    """The run, and before it the unpruned one whose model it starts from."""
    own = _job(given, options, axes)
    if own.method == UNPRUNED or own.trained or not starts_from_trained(own.phases()):
        yield Run(_id(own, axes), own, _named(axes))
        return
    axes_before = {axis: value for axis, value in axes.items() if concerns(axis, UNPRUNED, False)}
    whole = {**given, **dict.fromkeys(AMOUNTS), "method": UNPRUNED, "pipelined": False}
    before = _job(whole, {}, axes_before)
    unpruned = Run(_id(before, axes_before), before, _named(axes_before))
    yield unpruned
    yield Run(_id(own, axes), own, _named(axes), model_from=unpruned.id)


def _job(given: Mapping[str, Any], options: Mapping[str, Any], axes: Mapping[str, Any]) -> Job:
    fields: dict[str, Any] = {**given, "method_options": dict(options)}
    for axis, value in axes.items():
        owner, _, key = axis.rpartition(".")
        if owner:
            fields[owner] = {**fields.get(owner, {}), key: value}
        else:
            fields[axis] = value
    if fields["method"] == UNPRUNED:
        fields |= dict.fromkeys(OF_BUDGETS)  # nothing is chosen from a model that keeps all
    elif fields.get("k") is not None:
        fields |= dict.fromkeys(name for name in FOR_TIMES if name not in axes)  # what all share is for other grids
    job = Job(**{name: check(JOB_OPTIONS[name], value, name) for name, value in fields.items()})
    job.chosen()
    data_of(job.task, job.data)
    return dataclasses.replace(job, **{name: DEFAULTS[name] for name in unread(job)})


def _with_scores(runs: Mapping[str, Run]) -> dict[str, Run]:
    """Lets one run serve those that ask for the same at another K, where the method says that it can."""
    series: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs.values():
        if _serves_every_k(run.job):
            series.setdefault((run.series, run.job.seed, run.model_from), []).append(run)
    sources = {run.id: min(group, key=lambda one: one.job.k or 0).id for group in series.values() for run in group}
    changed = {
        name: _served(run, sources[name]) if sources.get(name, name) != name else run for name, run in runs.items()
    }
    return dict(sorted(changed.items(), key=lambda item: item[1].scores_from is not None))


def _serves_every_k(job: Job) -> bool:
    """Whether its scores are right for other K, too; those of a budget go by what blocks cost, and are its own."""
    if job.k is None:
        return False
    method = job.chosen()
    return method is not None and method.serves_every_k(bool(job.constraints), job.eval_steps is not None)


def _served(run: Run, source: str) -> Run:
    return dataclasses.replace(run, scores_from=source, whole_from=source if run.model_from is None else None)


def _shared(runs: Mapping[str, Run]) -> list[Run]:
    wanted = {name for run in runs.values() for name in run.starts_from}
    return [dataclasses.replace(run, shared=run.id in wanted) for run in runs.values()]


def _named(axes: Mapping[str, Any]) -> dict[str, Any]:
    """Axes by their short name; a field of a method that is also one of a job keeps its path."""
    return {_short(axis): value for axis, value in axes.items()}


def _short(axis: str) -> str:
    owner, _, key = axis.rpartition(".")
    return axis if owner and key in JOB_OPTIONS else key


def _id(job: Job, axes: Mapping[str, Any]) -> str:
    asked = [(name, value) for name in AMOUNTS if (value := getattr(job, name)) is not None]
    parts = [_word(job.method_name), *(f"{name}{_word(value).removesuffix('.0')}" for name, value in asked)]
    parts.append(f"s{job.seed}")
    parts += ["pipelined"] if job.pipelined else []
    parts += [f"{_short(axis)}_{_word(value)}" for axis, value in axes.items()]
    return "-".join(parts)


def _word(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    return re.sub(r"[^\w.+]+", "_", text)
