"""kheads eval: what a pruned model reaches."""

from __future__ import annotations

import json
from typing import Annotated, Any

import torch
import typer

from kheads.cli.app import ColumnOption, EvalOption, JsonOption, TaskOption, pairs, refuse_foreign_data
from kheads.cli.translation import (
    Beams,
    DatasetName,
    EvalSource,
    EvalTarget,
    SourceLang,
    TargetLang,
    Tokenized,
    refuse_translation,
    translation_data,
)
from kheads.lab import jobs, terminal
from kheads.lab.jobs import Job, translation
from kheads.storage import sources
from kheads.storage.model_folder import load


def evaluate(
    folder: Annotated[str, typer.Argument(help="A folder that kheads saved; for clm and image any model.")],
    evaluation: EvalOption = None,
    task: TaskOption = None,
    column: ColumnOption = None,
    max_eval: Annotated[int | None, typer.Option(help="Use so many rows of each evaluation set.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Cut texts to so many tokens; for clm the length of a block. 128 if not given.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step; 64 if not given, 32 for clm.")] = None,
    eval_source: EvalSource = None,
    eval_target: EvalTarget = None,
    dataset: DatasetName = None,
    tokenized: Tokenized = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    beams: Beams = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a pruned model.

    Example: `kheads eval pruned --eval mismatched=dev_mm.jsonl`
    """
    given = dict(locals())
    if _translates(folder, task):
        metrics = _translation(folder, given)
    else:
        refuse_translation(given, task)
        metrics = _by_job(folder, given)
    if as_json:
        print(json.dumps(metrics))
        return
    rows = [(name, key, _shown(key, value)) for name, found in metrics.items() for key, value in found.items()]
    terminal.console().print(terminal.rows_table(folder, ("set", "metric", "value"), rows))


def _translates(folder: str, task: str | None) -> bool:
    """Whether that is the task, or what a pruned model is for where none is named."""
    if task is not None or not sources.is_pruned(folder):
        return task == "translation"
    built = load(folder)
    return bool(built.config.is_encoder_decoder and built.can_generate())


def _translation(folder: str, given: dict[str, Any]) -> dict[str, Any]:
    built: Any = load(folder)
    if torch.accelerator.is_available():
        built.to(torch.accelerator.current_accelerator())
    files = {"eval": pairs(given["evaluation"], "eval"), "columns": pairs(given["column"], "source")}
    options = translation.settings({**files, **translation_data(given)})
    task = translation.load(options).sample(None, given["max_eval"])
    return translation.score(built, sources.tokenizer(folder), task, options)


def _by_job(folder: str, given: dict[str, Any]) -> dict[str, Any]:
    refuse_foreign_data(given["task"], given)
    job = Job(
        model=folder,
        method="none",
        task=given["task"],
        data={"eval": pairs(given["evaluation"], "eval"), "columns": pairs(given["column"], "text")},
        max_eval=given["max_eval"],
        max_length=Job.max_length if given["max_length"] is None else given["max_length"],
    )
    return jobs.evaluate(jobs.prepare_evaluation(job), given["batch_size"], quiet=given["as_json"])


def _shown(key: str, value: Any) -> str:
    return terminal.metric(key, value) if isinstance(value, float) else str(value)
