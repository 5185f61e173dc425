"""From what was given on the command line, and in a config, to a job: every name finds the record that declares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kheads.blocks.constraints import Constraints
from kheads.cli.flags import pairs
from kheads.lab.jobs.catalogue import TASKS, data_of, task_of
from kheads.lab.jobs.job import DEFAULTS, Job, never_read, refuse_unread
from kheads.lab.options import Option, check, options_of, parse, suggestion
from kheads.lab.reading import read_json, read_toml
from kheads.methods.registry import BUILT_IN, DEFAULT, METHODS, UNPRUNED, default, find

JOB = options_of(Job)
# Fields of a job that are records of their own, and the word before the dot by which --set reaches into them.
INNER = {"method": "method_options", "data": "data", "constraints": "constraints"}


def make_job(fields: Mapping[str, Any], sets: Sequence[str] = (), config: Path | None = None) -> Job:
    """A job from a config, flags and --set, each of which goes before the one named first.

    Args:
        fields: what flags gave; `data` and `constraints` as tables; None is not given.
        sets: NAME=VALUE for any field.
        config: a TOML file with the fields of a job, or the result.json of a run.
    """
    values = _merged(read_config(config, fields) if config else {}, fields)
    if "model" not in values:
        raise ValueError("Name the model: kheads prune MODEL, or model = ... in the config.")
    records = _records(values)
    for text in sets:
        owner, option, value = _setting(text, records, values)
        if owner:
            values[owner] = {**values.get(owner, {}), option.name: value}
        else:
            values[option.name] = value
    if values.get("method_options") and values.get("method") is None:
        values["method"] = _owner(values["method_options"])
    job = Job(**{name: _read(JOB[name], value) for name, value in values.items()})
    check_usable(job, values)
    return job


def _read(option: Option, value: Any) -> Any:
    """The value of a field; a number may have come as text, because a flag takes it as in 50%."""
    written = isinstance(value, str) and str not in option.types
    return parse(option, value, option.name) if written else check(option, value, option.name)


def _owner(options: Mapping[str, Any]) -> str:
    """The usual method that has these options, which name it."""
    has = (name for name in (default(False), default(True)) if options.keys() <= options_of(find(name)).keys())
    return next(has, default(False))


def check_usable(job: Job, given: Mapping[str, Any]) -> None:
    """Refuses by name what the task or the method cannot use."""
    label = job.task or "labelled files"
    for name, instead in task_of(job.task).unused.items():
        if given.get(name, DEFAULTS[name]) != DEFAULTS[name]:
            raise ValueError(f"`{name}` does not belong to the task {label}; {_instead(instead)}.")
    data_of(job.task, job.data)
    if job.budget is not None or job.method == UNPRUNED:
        refuse_unread(job, never_read(job))


def read_config(path: Path, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fields of a job from a TOML file, or from the record of a run, which can so be run again."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give a TOML file, or the result.json of a run.")
    found = read_json(path) if path.suffix == ".json" else read_toml(path)
    table = found.get("settings" if path.suffix == ".json" else "job", found) if isinstance(found, dict) else None
    if not isinstance(table, dict):
        raise ValueError(f"{path} does not hold the settings of a run; give a TOML file, or the result.json of a run.")
    if path.suffix == ".json":
        _refuse_foreign_code(path, table, fields or {})
    for name in table:
        if name not in JOB:
            raise ValueError(f"{path} has no field `{name}` of a job.{suggestion(name, JOB)}")
    try:
        return {name: check(JOB[name], value, name) for name, value in table.items()}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _refuse_foreign_code(path: Path, table: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """A record may come from anywhere; code that it names runs only if the user names it, too."""
    named = table.get("method", UNPRUNED)
    if not isinstance(named, str):
        return  # no name of code, and refused as such
    if named not in BUILT_IN and named != UNPRUNED and fields.get("method") != named:
        raise ValueError(f"{path} names the method {named!r}, whose code is not ours; add --method {named} to run it.")


def _merged(before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in fields.items() if value is not None}
    inner = {name: {**before.get(name, {}), **given.get(name, {})} for name in INNER.values()}
    return {**before, **given, **{name: table for name, table in inner.items() if table}}


def _records(values: Mapping[str, Any]) -> dict[str, dict[str, Option]]:
    """The options that --set may name, by the field of the job that holds them; "" is the job itself."""
    method = values.get("method")
    return {
        "": {name: option for name, option in JOB.items() if name not in INNER.values()},
        "method_options": _options(method),
        "data": options_of(task_of(values.get("task")).data),
        "constraints": options_of(Constraints),
    }


def _options(method: str | None) -> dict[str, Option]:
    """The options of a method; of the usual ones, where none is named."""
    if method == UNPRUNED:
        return {}
    names = [default(trained) for trained in (False, True)] if method is None else [method]
    return {key: option for name in reversed(names) for key, option in options_of(find(name)).items()}


def _setting(text: str, records: Mapping[str, dict[str, Option]], values: Mapping[str, Any]) -> tuple[str, Option, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"`--set` must be NAME=VALUE; got {text!r}.")
    prefix, _, key = name.strip().replace("-", "_").rpartition(".")
    if not key:
        raise ValueError(f"`--set` must be NAME=VALUE; got {text!r}.")
    if prefix and prefix not in INNER:
        raise ValueError(f"`--set {name}` must be a name, or one after {', '.join(f'{word}.' for word in INNER)}.")
    owners = [owner for owner, known in records.items() if key in known and (not prefix or owner == INNER[prefix])]
    if not owners:
        raise ValueError(_unknown(key, records, values))
    if len(owners) > 1:
        ways = [f"{word}.{key}" for word, owner in INNER.items() if owner in owners]
        raise ValueError(f"`--set {key}` could mean several fields; write {' or '.join(ways)}.")
    option = records[owners[0]][key]
    if option.kind.startswith("a table") and not value.lstrip().startswith("{"):
        table = {**values.get(owners[0], {}).get(key, {}), **pairs([value], "eval")}
        return owners[0], option, check(option, table, f"--set {key}")
    return owners[0], option, parse(option, value, f"--set {key}")


def _unknown(key: str, records: Mapping[str, dict[str, Option]], values: Mapping[str, Any]) -> str:
    """Whose option it is, if another method's or task's; otherwise what may have been meant."""
    methods = [name for name, cls in METHODS.items() if key in options_of(cls)]
    if methods:
        return f"`{key}` belongs to --method {' or '.join(methods)}, not to {values.get('method') or DEFAULT}."
    tasks = [name for name, task in TASKS.items() if key in options_of(task.data)]
    if tasks:
        return f"`{key}` belongs to --task {' or '.join(tasks)}, not to {values.get('task') or 'labelled files'}."
    known = [name for options in records.values() for name in options]
    return f"There is no option `{key}`.{suggestion(key, known)} `kheads methods` and `kheads tasks` list them."


def _instead(name: str) -> str:
    return f"use `{name}`" if name else "leave it out"


def constraints(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Constraints` that flags asked for."""
    fields = {
        "min_per_site": given["min_per_site"],
        "uniform": given["uniform"],
        "protected": _protected(given["protected"] or []),
        "quotas": _quotas(given["quotas"] or []),
    }
    return {name: value for name, value in fields.items() if value}


def _protected(given: Sequence[str]) -> dict[str, list[int]]:
    heads: dict[str, list[int]] = {}
    for text in given:
        site, _, head = text.rpartition(":")
        if not site or not _is_number(head):
            raise ValueError(
                f"`--protect` must be SITE:HEAD, such as encoder.layer.0.attention:3; got {text[:80]!r}. "
                "`kheads heads MODEL` lists the sites."
            )
        heads.setdefault(site, []).append(int(head))
    return heads


def _quotas(given: Sequence[str]) -> dict[str, int]:
    quotas: dict[str, int] = {}
    for text in given:
        kind, _, count = text.partition("=")
        if not kind or not _is_number(count):
            raise ValueError(f"`--quota` must be KIND=N, such as cross=8; got {text!r}.")
        if kind in quotas:
            raise ValueError(f"`--quota` names the kind {kind!r} twice; give one number.")
        quotas[kind] = int(count)
    return quotas


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
