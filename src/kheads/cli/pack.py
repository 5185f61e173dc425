"""kheads pack: one file for a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kheads.cli.app import JsonOption


def pack(
    folder: Annotated[Path, typer.Argument(help="The results folder of a sweep.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. Default: the folder's name with .jsonl.gz."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Pack the results of a sweep into one compressed file, which `report` and `choose` read like the folder.

    The folder stays as it is; models, checkpoints and logs are not packed.

    Example: `kheads pack results`
    """
    import json

    from kheads.lab import packing, terminal

    done = packing.pack(folder, output, overwrite)
    if as_json:
        told = {"runs": done.runs, "failed": done.failed, "bytes": done.size, "loose_bytes": done.loose}
        print(json.dumps({"file": str(done.path), **told}))
        return
    failed = f" ({done.failed} of them failed)" if done.failed else ""
    terminal.console().print(
        f"Packed {done.runs:,} run{'s'[: done.runs != 1]}{failed} into {done.path}: "
        f"{done.size:,} bytes instead of {done.loose:,}."
    )
