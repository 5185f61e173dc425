"""kheads eval: what a model reaches."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kheads.cli.app import JsonOption
from kheads.cli.flags import command, extra, flag
from kheads.cli.front import NAMES, SHAPED
from kheads.cli.prune import data
from kheads.lab.jobs.catalogue import LabelledFiles, Sentences
from kheads.lab.jobs.job import DEFAULTS, Job
from kheads.lab.options import options_of
from kheads.methods.registry import UNPRUNED
from kheads.storage import strict_json

TEXT = """Evaluate a model with a task head, pruned or not.

Example: `kheads eval pruned --eval mismatched=dev_mm.jsonl`
"""
FRONT = ("task", "eval", "columns", "pooling", "max_eval", "max_length", "batch_size")


def _parameters() -> list[inspect.Parameter]:
    declared = {**options_of(Job), **options_of(Sentences), **options_of(LabelledFiles)}
    folder = Annotated[
        str, typer.Argument(help="A folder, a hub name, or an ONNX file that kheads exported.", show_default=False)
    ]
    sets = typer.Option("--set", metavar="NAME=VALUE", help="Set any other field of the task; repeatable.")
    return [
        inspect.Parameter("folder", inspect.Parameter.KEYWORD_ONLY, annotation=folder),
        *(flag(declared[name], "Data", *NAMES.get(name, ()), **SHAPED.get(name, {})) for name in FRONT),
        extra("sets", list[str] | None, sets),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
    ]


def _run(given: Mapping[str, Any]) -> None:
    from kheads.cli.settings import make_job

    folder = given["folder"]
    job = make_job(
        {
            "model": folder,
            "method": UNPRUNED,
            "task": given["task"] or ("translation" if _translates(folder) else None),
            "data": data(given),
            **{name: given[name] for name in ("max_eval", "max_length", "batch_size")},
        },
        given["sets"] or (),
    )
    metrics = _metrics(job, given["batch_size"], given["as_json"])
    if given["as_json"]:
        print(strict_json.dumps(metrics))
        return
    from kheads.lab import terminal

    rows = [(name, key, _shown(key, value)) for name, found in metrics.items() for key, value in found.items()]
    terminal.console().print(terminal.rows_table(folder, ("set", "metric", "value"), rows))


evaluate = command(_parameters(), _run, "eval", TEXT)


def _metrics(job: Job, batch_size: int | None, quiet: bool) -> dict[str, Any]:
    from kheads.lab.jobs.running import evaluate as evaluate_job
    from kheads.lab.jobs.running import prepare_evaluation
    from kheads.training.bench import not_numbers

    prepared = prepare_evaluation(job)
    found = evaluate_job(prepared, batch_size or _usual(job), quiet=quiet)
    for sentence in (*prepared.notes, *not_numbers(found)):
        print(f"kheads: {sentence}", file=sys.stderr)
    return found


def _usual(job: Job) -> int | None:
    return None if job.batch_size == DEFAULTS["batch_size"] else job.batch_size


def _translates(folder: str) -> bool:
    """Whether a pruned model is an encoder-decoder, so that the task need not be named."""
    from kheads.storage import sources

    if not sources.is_pruned(folder):
        return False
    from kheads.storage.model_folder import load

    built: Any = load(folder)
    return bool(built.config.is_encoder_decoder and built.can_generate())


def _shown(key: str, value: Any) -> str:
    from kheads.lab import terminal

    return terminal.metric(key, value) if isinstance(value, float) else str(value)
