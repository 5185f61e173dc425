"""kheads demo: the whole story in minutes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kheads.lab.demos import inference as classification_demo
from kheads.lab.demos import translation as translation_demo

STORIES: dict[str, Callable[[Path, int], None]] = {
    "inference": classification_demo.run_demo,
    "translation": translation_demo.run_demo,
}


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pruned model.")] = Path("kheads-demo"),
    task: Annotated[str, typer.Option(help=f"The story: {', '.join(STORIES)}.")] = "inference",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Tell the whole story in minutes, with models and tasks of our own; nothing is downloaded.

    Examples: `kheads demo`, `kheads demo --task translation`
    """
    if task not in STORIES:
        raise ValueError(f"`--task` must be one of {', '.join(STORIES)}; got {task!r}.")
    STORIES[task](output, seed)
