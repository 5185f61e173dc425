"""kheads export: a pruned model for places without kheads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    folder: Annotated[Path, typer.Argument(help="A folder that kheads saved.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    to: Annotated[str, typer.Option(help="What for: hub (transformers with trust_remote_code).")] = "hub",
    overwrite: Annotated[bool, typer.Option(help="Replace an output folder that kheads made.")] = False,
) -> None:
    """Turn a pruned model into a folder that loads without kheads.

    Example: `kheads export pruned --to hub -o for-the-hub`
    """
    from kheads.lab import terminal
    from kheads.storage.export import hub

    with terminal.waiting("exporting, and loading it in a new process"):
        remarks: list[str] = []
        out = hub.export(folder, output, to, overwrite, say=remarks.append)
    for remark in remarks:
        terminal.console(stderr=True).print(remark, soft_wrap=True, markup=False)
    terminal.console().print(f"{out} loads without kheads; its outputs were compared in a new process.")
