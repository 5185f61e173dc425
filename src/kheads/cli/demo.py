"""kheads demo: the whole story in minutes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from kheads.cli.allocation import keep_freed_memory

STORIES = ("inference", "translation", "embed")


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pruned model.")] = Path("kheads-demo"),
    task: Annotated[str, typer.Option(help=f"The story: {', '.join(STORIES)}.")] = STORIES[0],
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")] = 0,
) -> None:
    """Tell the whole story in minutes, with models and tasks of our own; nothing is downloaded.

    Examples: `kheads demo`, `kheads demo --task translation`, `kheads demo --task embed`
    """
    if task not in STORIES:
        raise ValueError(f"`--task` must be one of {', '.join(STORIES)}; got {task!r}.")
    keep_freed_memory()
    importlib.import_module(f"kheads.lab.demos.{task}").run_demo(output, seed)
