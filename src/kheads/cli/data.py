"""kheads data: prepare data that has to be downloaded by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

data = typer.Typer(no_args_is_help=True, help="Prepare data. Example: `kheads data iwslt14 de-en.tgz -o iwslt14`")


@data.callback()
def _several() -> None:
    """Makes each data set a command of its own."""


@data.command()
def iwslt14(
    raw: Annotated[Path, typer.Argument(help="The raw archive de-en.tgz, or a folder that holds it or its files.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    overwrite: Annotated[bool, typer.Option(help="Replace an output folder that kheads made.")] = False,
) -> None:
    """Make the paper's split of IWSLT14 German to English: Moses tokens, lower case, cleaned.

    Example: `kheads data iwslt14 de-en.tgz -o iwslt14`
    """
    from kheads.lab import terminal
    from kheads.tasks import iwslt14 as preparation

    counts = preparation.prepare(raw, output, overwrite)
    console = terminal.console()
    rows = [(name, f"{count:,}") for name, count in counts.items()]
    console.print(terminal.rows_table(str(output), ("set", "pairs"), rows))
    console.print(
        f"Next: kheads prune iwslt --task translation --set tokenized=true --max-length 256 -k 12 -o pruned\n"
        f"  --set train_source={output}/train.de --set train_target={output}/train.en\n"
        f"  --set eval_source=valid={output}/valid.de --set eval_target=valid={output}/valid.en\n"
        f"  --set eval_source=test={output}/test.de --set eval_target=test={output}/test.en",
        soft_wrap=True,
    )
