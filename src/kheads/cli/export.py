"""kheads export: a pruned model for places without kheads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def export(
    folder: Annotated[Path, typer.Argument(help="A folder that kheads saved.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    to: Annotated[
        str, typer.Option(help="What for: hub (transformers with trust_remote_code), onnx (onnxruntime and OpenVINO).")
    ] = "hub",
    overwrite: Annotated[bool, typer.Option(help="Replace an output folder that kheads made.")] = False,
    int8: Annotated[
        bool | None, typer.Option("--int8/--no-int8", help="onnx: also write files with weights of 8 bits.")
    ] = None,
) -> None:
    """Turn a pruned model into a folder that loads without kheads.

    Example: `kheads export pruned --to hub -o for-the-hub`
    """
    from kheads.lab import terminal
    from kheads.storage.export import exporting

    remarks: list[str] = []
    compared: list[str] = []
    options: dict[str, Any] = {name: value for name, value in {"int8": int8}.items() if value is not None}
    with terminal.waiting("exporting, and trying it in a new process"):
        out = exporting.export(folder, output, to, overwrite, say=remarks.append, tell=compared.append, **options)
    for remark in remarks:
        terminal.console(stderr=True).print(remark, soft_wrap=True, markup=False)
    found = "; ".join(compared)
    terminal.console().print(f"{out} works without kheads. Compared in a new process: {found}.", soft_wrap=True)
