"""kheads measure: what a model costs, next to another one."""

from __future__ import annotations

from typing import Annotated

import typer

from kheads.cli.app import JsonOption, ModelArgument

REPEATS = 20


def measure(
    model: ModelArgument,
    against: Annotated[str | None, typer.Option(help="The model to compare with, usually the unpruned one.")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch size; several times. Default: 1 and 8.")] = None,
    length: Annotated[list[int] | None, typer.Option(min=1, help="Tokens; several times. Default: 32 and 128.")] = None,
    new_tokens: Annotated[int, typer.Option(min=0, help="Tokens to generate, if the model generates; 0: none.")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds of timing.")] = REPEATS,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the CPU.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to run; the accelerator, or else the CPU.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure parameters, bytes, FLOPs, memory and time, next to another model and to the limit without attention.

    Example: `kheads measure pruned --against bert-base-uncased`
    """
    from kheads.cli.measure_table import Request, show

    asked = Request(batch, length, new_tokens, repeats, threads, device)
    show(model, against, asked, as_json)
