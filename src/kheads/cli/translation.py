"""Options of --task translation, which `prune` and `eval` share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kheads.cli.app import pairs
from kheads.storage.sizes import SIZES

PANEL = "Translation (--task translation)"

TrainSource = Annotated[
    Path | None, typer.Option(help="Sentences to translate, one a line; also .gz.", rich_help_panel=PANEL)
]
TrainTarget = Annotated[Path | None, typer.Option(help="Their translations, line by line.", rich_help_panel=PANEL)]
EvalSource = Annotated[
    list[str] | None,
    typer.Option(help="The same of an evaluation set: FILE or NAME=FILE; several times.", rich_help_panel=PANEL),
]
EvalTarget = Annotated[
    list[str] | None, typer.Option(help="Its references, under the same name.", rich_help_panel=PANEL)
]
DatasetName = Annotated[
    str | None,
    typer.Option(help="A data set of the hub, NAME or NAME:CONFIG; or numbers (embedded).", rich_help_panel=PANEL),
]
Clean = Annotated[
    bool | None,
    typer.Option("--clean/--no-clean", help="Leave too long or uneven training pairs out.", rich_help_panel=PANEL),
]
Tokenized = Annotated[
    bool | None, typer.Option("--tokenized", help="The texts are Moses tokens already.", rich_help_panel=PANEL)
]
SourceLang = Annotated[
    str | None, typer.Option(help="Source language, as the tokenizer calls it.", rich_help_panel=PANEL)
]
TargetLang = Annotated[str | None, typer.Option(help="Target language; en if not given.", rich_help_panel=PANEL)]
VocabSize = Annotated[
    int | None,
    typer.Option(help=f"Joint BPE of a new model ({', '.join(SIZES)}); 10000.", rich_help_panel=PANEL),
]
BatchTokens = Annotated[
    int | None, typer.Option(help="Tokens per step, padding included; 4096.", rich_help_panel=PANEL)
]
LabelSmoothing = Annotated[float | None, typer.Option(help="Share of label smoothing; 0.1.", rich_help_panel=PANEL)]
Beams = Annotated[int | None, typer.Option(help="Width of the beam search; 5.", rich_help_panel=PANEL)]

# Those that are data options of the task under the same name.
OPTIONS = (
    "train_source",
    "train_target",
    "eval_source",
    "eval_target",
    "dataset",
    "clean",
    "tokenized",
    "source_lang",
    "target_lang",
    "vocab_size",
    "batch_tokens",
    "label_smoothing",
    "beams",
)
# Options of other tasks that mean nothing here, and what to use instead.
FOREIGN = {"batch_size": "--batch-tokens"}


def translation_data(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the task's data; one of another task is refused."""
    for name, instead in FOREIGN.items():
        if given.get(name) is not None:
            raise ValueError(f"`{_flag(name)}` does not belong to --task translation; use {instead}.")
    data = {name: _plain(given[name]) for name in OPTIONS if given.get(name) is not None}
    for name in ("eval_source", "eval_target"):
        if name in data:
            data[name] = pairs(data[name], "eval")
    return data


def refuse_translation(given: Mapping[str, Any], task: str | None) -> None:
    """Raises if an option of translation was given to another task."""
    for name in OPTIONS:
        if given.get(name) is not None:
            other = f"--task {task}" if task else "labelled files"
            raise ValueError(f"`{_flag(name)}` belongs to --task translation, not to {other}.")


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
