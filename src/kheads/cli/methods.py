"""kheads methods and kheads tasks: what there is, and every option of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kheads.cli.app import JsonOption
from kheads.lab.jobs.catalogue import FILES, GLUE, GLUE_NAMES, TASKS, task_of
from kheads.lab.options import Option, options_of
from kheads.methods.registry import METHODS, find

NameArgument = Annotated[str | None, typer.Argument(help="Show the options of this one.", show_default=False)]


def methods(name: NameArgument = None, as_json: JsonOption = False) -> None:
    """List the methods, or the options of one: its fields, their defaults and what they mean.

    Examples: `kheads methods`, `kheads methods dsp`, `kheads methods my.module:Mine`
    """
    if name is None:
        rows = [(key, cls.idea, cls.reference) for key, cls in METHODS.items()]
        _show("methods", ("method", "what it does", "source"), rows, as_json)
        return
    cls = find(name)
    _show_options(f"{name}: {cls.idea}", options_of(cls), as_json)
    if not as_json:
        for preset, values in cls.presets.items():
            print(f"preset {preset}: {', '.join(f'{key}={value}' for key, value in values.items()) or 'the defaults'}")


def tasks(name: NameArgument = None, as_json: JsonOption = False) -> None:
    """List the tasks, or what one of them reads; `files` stands for labelled files.

    Examples: `kheads tasks`, `kheads tasks translation`
    """
    if name is None:
        rows = [("files", FILES.what), *((key, task.what) for key, task in TASKS.items())]
        _show("tasks", ("task", "what it is"), [*rows, (", ".join(GLUE_NAMES), GLUE.what)], as_json)
        return
    task = task_of(None if name == "files" else name)
    _show_options(f"{name}: {task.what}", options_of(task.data), as_json)


def _show_options(title: str, options: Mapping[str, Option], as_json: bool) -> None:
    rows = [(option.name, option.kind, _default(option), option.help) for option in options.values()]
    _show(title, ("option", "value", "default", "meaning"), rows, as_json)


def _default(option: Option) -> str:
    value = option.default
    return str(value).lower() if isinstance(value, bool) else "" if value in (None, {}) else f"{value}"


def _show(title: str, columns: tuple[str, ...], rows: list[Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
        return
    from rich.table import Table

    from kheads.lab.terminal import console

    table = Table(*columns, title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\\[") for cell in row))
    console().print(table)
