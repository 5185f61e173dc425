"""Reading the tables of a sweep's config: what may stand where, which axes there are, and whom each concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kheads.blocks.fields import Count, check_value
from kheads.lab.jobs.job import AMOUNTS, OF_BUDGETS, ONLY_PRUNING, Job, unread
from kheads.lab.options import Option, check, options_of, suggestion
from kheads.methods.registry import UNPRUNED, find

JOB_OPTIONS = options_of(Job)

# Fields of a job that the grid gives, and where else they stand in a config.
GRID_FIELDS = {
    **{name: name for name in AMOUNTS},
    "seed": "seeds",
    "method": "methods",
    "pipelined": "pipelined",
}


@dataclass(frozen=True)
class Config:
    """The tables of a sweep's config.

    Attributes:
        name: The sweep's name; by default the file's.
        job: Fields of a job that all runs share.
        methods: Fields of each method that differ from its defaults.
        grid: One table or several: methods, k or a budget (speedup, smaller, flops, max_ms), seeds, pipelined, and
            further axes.
        keep_models: Keep the models of finished runs.
    """

    name: str | None = None
    job: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] = ()
    keep_models: bool = False


def base_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that all jobs share, checked."""
    known = {
        name: option for name, option in JOB_OPTIONS.items() if name not in {"method_options", "at_most", *GRID_FIELDS}
    }
    if "model" not in job:
        raise ValueError("[job] needs `model`: a folder, a hub name, or minilm.")
    return checked(job, known, "[job]", GRID_FIELDS)


def method_tables(methods: Mapping[str, Any]) -> dict[str, Any]:
    """The options of each method, checked."""
    return {name: checked(options, method_options(name), f"[methods.{name}]") for name, options in methods.items()}


def checked(
    given: Mapping[str, Any], known: Mapping[str, Option], where: str, moved: Mapping[str, str] = {}
) -> dict[str, Any]:
    """The values of a table, each of its option's type; a key that is not known is refused, or told its place."""
    check_keys(given, known, where, moved)
    return {name: check(known[name], value, f"{name} in {where}") for name, value in given.items()}


def check_keys(given: Mapping[str, Any], known: Iterable[str], where: str, moved: Mapping[str, str] = {}) -> None:
    """Refuses a key that is not known, or says where it belongs."""
    for key in given:
        if key in moved:
            raise ValueError(f"`{key}` does not belong in {where}; give `{moved[key]}` in [grid].")
        if key not in known:
            raise ValueError(f"{where} has no `{key}`; it has {', '.join(sorted(known))}.{suggestion(key, known)}")


def listed(grid: Mapping[str, Any], name: str, hint: Any, default: Any = None) -> list[Any]:
    """The values that a grid lists under a name, without repetition, each of which is what the hint allows."""
    if name not in grid and default is None:
        raise ValueError(f"[grid] needs `{name}`.")
    values = _values(name, grid.get(name, default))
    for value in values:
        check_value(hint, value, f"{name} in [grid]")
    return values


def amounts_of(grid: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """How much is to stay in the runs of a grid: K or a budget, by the name of its field, and its values."""
    named = [name for name in AMOUNTS if name in grid]
    if len(named) > 1:
        told = " and ".join(f"`{name}`" for name in named)
        raise ValueError(f"{told} in one [grid] each say how much may stay; give one of them, or two grids.")
    name = named[0] if named else "k"
    return name, listed(grid, name, Count | None if name == "k" else JOB_OPTIONS[name].hint, default=[None])


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
        if name in GRID_FIELDS.values():
            continue
        flat |= (
            {f"{name}.{key}": inner for key, inner in values.items()} if isinstance(values, Mapping) else {name: values}
        )
    return dict(_axis(name, values, methods) for name, values in flat.items())


def _axis(name: str, values: Any, methods: Sequence[str]) -> tuple[str, list[Any]]:
    owner, _, key = name.rpartition(".")
    if not owner and name not in JOB_OPTIONS:
        owner, key = "method_options", name
    if owner == "method_options" and not any(key in method_options(method) for method in methods):
        known = sorted({option for method in methods for option in method_options(method)})
        raise ValueError(
            f"The axis {name!r} is neither a field of a job nor of a method here ({', '.join(known)})."
            f"{suggestion(key, [*known, *JOB_OPTIONS])}"
        )
    if owner not in ("", "method_options", "data", "constraints"):
        raise ValueError(f"The axis {name!r} must be a field of a job, of its data, or of a method.")
    if name in GRID_FIELDS:
        raise ValueError(f"The axis {name!r} is called `{GRID_FIELDS[name]}` in a grid.")
    return f"{owner}.{key}" if owner else key, _values(name, values)


def concerns(axis: str, method: str, pipelined: bool) -> bool:
    """Whether the axis changes anything for the method; if not, the method runs once for all its values."""
    owner, _, key = axis.rpartition(".")
    if method == UNPRUNED:
        return (owner or axis) not in (*ONLY_PRUNING, *OF_BUDGETS)
    if owner == "method_options":
        return key in method_options(method)
    return axis not in unread(Job("any", k=1, method=method, pipelined=pipelined))


def method_options(method: str) -> dict[str, Option]:
    """The options that a method has."""
    return {} if method == UNPRUNED else options_of(find(method))
