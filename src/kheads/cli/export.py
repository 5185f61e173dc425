"""kheads export: a pruned model for places without kheads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def export(
    folder: Annotated[Path, typer.Argument(help="A folder that kheads saved.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    to: Annotated[str, typer.Option(help="What for: hub (with trust_remote_code), vanilla, onnx or gguf.")] = "hub",
    overwrite: Annotated[bool, typer.Option(help="Replace an output folder that kheads made.")] = False,
    push: Annotated[str | None, typer.Option(metavar="USER/NAME", help="Upload it to the Hugging Face hub.")] = None,
    int8: Annotated[
        bool | None, typer.Option("--int8/--no-int8", help="onnx: also write files with weights of 8 bits.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="TYPE", help="gguf: the type of its weights, f32 or f16. [f32]")
    ] = None,
) -> None:
    """Turn a pruned model into a folder that loads without kheads.

    Example: `kheads export pruned --to hub -o for-the-hub`
    """
    from kheads.lab import terminal
    from kheads.storage.export import exporting

    remarks: list[str] = []
    compared: list[str] = []
    given = {"push": push, "int8": int8, "dtype": dtype}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with terminal.waiting("exporting, and trying it in a new process"):
        out = exporting.export(folder, output, to, overwrite, say=remarks.append, tell=compared.append, **options)
    for remark in remarks:
        terminal.console(stderr=True).print(remark, soft_wrap=True, markup=False)
    if not compared:
        terminal.console().print(f"{out} was written.", soft_wrap=True)
        return
    found = "; ".join(compared)
    terminal.console().print(f"{out} works without kheads. Compared in a new process: {found}.", soft_wrap=True)
