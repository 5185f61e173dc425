"""kheads data: prepare data that has to be downloaded by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kheads.lab import terminal
from kheads.tasks import iwslt14 as preparation

data = typer.Typer(no_args_is_help=True, help="Prepare data. Example: `kheads data iwslt14 de-en.tgz -o iwslt14`")


@data.callback()
def _several() -> None:
    """Makes each data set a command of its own."""


@data.command()
def iwslt14(
    raw: Annotated[Path, typer.Argument(help="The raw archive de-en.tgz, or a folder that holds it or its files.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    overwrite: Annotated[bool, typer.Option(help="Replace what is in the output folder.")] = False,
) -> None:
    """Make the paper's split of IWSLT14 German to English: Moses tokens, lower case, cleaned.

    Example: `kheads data iwslt14 de-en.tgz -o iwslt14`
    """
    counts = preparation.prepare(raw, output, overwrite)
    console = terminal.console()
    rows = [(name, f"{count:,}") for name, count in counts.items()]
    console.print(terminal.rows_table(str(output), ("set", "pairs"), rows))
    console.print(
        f"Next: kheads prune iwslt --task translation --tokenized --max-length 256 -k 12 -o pruned\n"
        f"  --train-source {output}/train.de --train-target {output}/train.en\n"
        f"  --eval-source valid={output}/valid.de --eval-target valid={output}/valid.en\n"
        f"  --eval-source test={output}/test.de --eval-target test={output}/test.en",
        soft_wrap=True,
    )
