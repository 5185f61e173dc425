"""Reading the tables of a sweep's config: what may stand where, which axes there are, and whom each concerns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kheads import tasks
from kheads.lab.jobs import TASKS, Job
from kheads.methods import METHODS

UNPRUNED = "none"
JOB_FIELDS = {item.name for item in dataclasses.fields(Job)}

# Fields of a job that the grid gives, and where else they stand in a config.
GRID_FIELDS = {"k": "k", "seed": "seeds", "method": "methods", "pipelined": "pipelined"}
# Fields that change nothing in the training of the unpruned model.
ONLY_PRUNING = {"method_options", "gate_steps", "recover_steps", "estimate_examples", "constraints"}


def base_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that all jobs share, checked."""
    check_keys(job, JOB_FIELDS - {"method_options"} - GRID_FIELDS.keys(), "[job]", GRID_FIELDS)
    if "model" not in job:
        raise ValueError("[job] needs `model`: a folder, a hub name, or minilm.")
    task = job.get("task")
    if task is not None and task not in TASKS and task not in tasks.GLUE:
        raise ValueError(f"`task` must be one of {', '.join([*TASKS, *tasks.GLUE])}; got {task!r}.")
    return dict(job)


def method_tables(methods: Mapping[str, Any]) -> dict[str, Any]:
    """The options of each method, checked."""
    for name, options in methods.items():
        if name not in METHODS:
            raise ValueError(f"[methods.{name}] must be one of {', '.join(METHODS)}.")
        check_keys(options, options_of(name), f"[methods.{name}]")
    return dict(methods)


def check_keys(given: Mapping[str, Any], known: Iterable[str], where: str, moved: Mapping[str, str] = {}) -> None:
    """Refuses a key that is not known, or says where it belongs."""
    for key in given:
        if key in moved:
            raise ValueError(f"`{key}` does not belong in {where}; give `{moved[key]}` in [grid].")
        if key not in known:
            raise ValueError(f"{where} has no `{key}`; it has {', '.join(sorted(known))}.")


def listed(grid: Mapping[str, Any], name: str, allowed: Any, default: Any = None) -> list[Any]:
    """The values that a grid lists under a name, without repetition."""
    if name not in grid and default is None:
        raise ValueError(f"[grid] needs `{name}`.")
    values = _values(name, grid.get(name, default))
    if allowed is not None and any(value not in allowed for value in values):
        wrong = next(value for value in values if value not in allowed)
        raise ValueError(f"`{name}` must be among {', '.join(map(str, allowed))}; got {wrong!r}.")
    return values


def _values(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ValueError(f"`{name}` must be a list of values in a grid; got {values!r}.")
    if any(isinstance(value, (list, dict)) for value in values):
        raise ValueError(f"`{name}` must be a list of plain values; got {values!r}.")
    return list(dict.fromkeys(values))


def axes_of(grid: Mapping[str, Any], methods: Sequence[str]) -> dict[str, list[Any]]:
    """Further axes by the path of their field: `lr`, `data.train_rows`, `method_options.weight`."""
    flat: dict[str, Any] = {}
    for name, values in grid.items():
        if name in ("methods", "k", "seeds", "pipelined"):
            continue
        flat |= (
            {f"{name}.{key}": inner for key, inner in values.items()} if isinstance(values, Mapping) else {name: values}
        )
    return dict(_axis(name, values, methods) for name, values in flat.items())


def _axis(name: str, values: Any, methods: Sequence[str]) -> tuple[str, list[Any]]:
    owner, _, key = name.rpartition(".")
    if not owner and name not in JOB_FIELDS:
        owner, key = "method_options", name
    if owner == "method_options" and not any(key in options_of(method) for method in methods):
        known = sorted({option for method in methods for option in options_of(method)})
        raise ValueError(f"The axis {name!r} is neither a field of a job nor of a method here ({', '.join(known)}).")
    if owner not in ("", "method_options", "data", "constraints"):
        raise ValueError(f"The axis {name!r} must be a field of a job, of its data, or of a method.")
    if name in GRID_FIELDS:
        raise ValueError(f"The axis {name!r} is called `{GRID_FIELDS[name]}` in a grid.")
    return f"{owner}.{key}" if owner else key, _values(name, values)


def concerns(axis: str, method: str, pipelined: bool) -> bool:
    """Whether the axis changes anything for the method; if not, the method runs once for all its values."""
    owner, _, key = axis.rpartition(".")
    if owner == "method_options":
        return key in options_of(method)
    if axis == "gate_steps":
        return pipelined
    if axis == "estimate_examples":
        return method in ("michel", "retrain")
    return method != UNPRUNED or (owner or axis) not in ONLY_PRUNING


def options_of(method: str) -> set[str]:
    """The options that a method has."""
    if method == UNPRUNED:
        return set()
    return {item.name for item in dataclasses.fields(METHODS[method])} | ({"preset"} if method == "dsp" else set())
