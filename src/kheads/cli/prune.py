"""kheads prune: keep K heads of a model, or what fits into a budget; trained already, or trained on the way."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kheads.blocks.constraints import Constraints
from kheads.cli.allocation import keep_freed_memory
from kheads.cli.flags import command, extra, flag, pairs
from kheads.cli.front import DATA, KEEP, NAMES, PANELS, SHAPED, SWITCHES_OFF, TRAINING
from kheads.cli.wording import in_words_of_the_command_line
from kheads.lab.jobs.catalogue import LabelledFiles, Sentences
from kheads.lab.jobs.job import DEFAULTS, Job
from kheads.lab.options import options_of
from kheads.storage import strict_json

if TYPE_CHECKING:
    from kheads.lab.jobs.running import Outcome

OF_TRAINING = ("epochs", "max_steps", "lr", "lr_schedule", "warmup_steps")
TEXT = """Make a model smaller by an amount you name; trained already, or on the way.

Example: `kheads prune mine --speedup 2 --train t.jsonl --eval d.jsonl -o small`
"""


def _parameters() -> list[inspect.Parameter]:
    declared = {**options_of(Job), **options_of(Constraints), **options_of(Sentences), **options_of(LabelledFiles)}
    flags = [
        flag(declared[name], panel, *NAMES.get(name, ()), **SHAPED.get(name, {}))
        for panel, names in PANELS.items()
        for name in names
    ]
    model = Annotated[
        str | None, typer.Argument(help="A folder, a hub name, minilm, or tiny, small, iwslt.", show_default=False)
    ]
    output = Annotated[Path, typer.Option("--output", "-o", help="The folder to make.", show_default=False)]
    return [
        inspect.Parameter("output", inspect.Parameter.KEYWORD_ONLY, annotation=output),
        inspect.Parameter("model", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=model),
        *flags,
        *_own(),
    ]


def _own() -> list[inspect.Parameter]:
    """Flags of the command alone."""

    def option(*names: str, **details: Any) -> Any:
        return typer.Option(*names, rich_help_panel="Run", show_default=False, **details)

    sets = option("--set", metavar="NAME=VALUE", help="Set any other field; may be repeated.")
    config = option("--config", help="Start from a TOML file or a result.json.")
    overwrite = option("--overwrite", help="Replace a folder of kheads and checkpoints.")
    return [
        extra("sets", list[str] | None, sets),
        extra("config", Path | None, config),
        extra("resume", bool, option("--resume", help="Go on from the last checkpoint."), False),
        extra("overwrite", bool, overwrite, False),
        extra("as_json", bool, option("--json", help="Print JSON for machines instead of tables."), False),
    ]


def _run(given: Mapping[str, Any]) -> None:
    from kheads.cli.settings import constraints, make_job

    fields = {name: given[name] for name in (*KEEP, *DATA, *TRAINING) if name in options_of(Job)}
    fields |= {name: False for name in SWITCHES_OFF if given[name]}
    fields |= {"model": given["model"], "constraints": constraints(given), "data": data(given)}
    job = make_job(fields, given["sets"] or (), given["config"])
    output: Path = given["output"]
    keep_freed_memory()
    from accelerate import PartialState

    reads = [given["config"]] if given["config"] else []
    asked = {name: given[name] for name in ("resume", "overwrite")}
    outcome = _carried_out(job, output, reads, quiet=given["as_json"], **asked)
    if PartialState().is_main_process:
        _tell(outcome, output, given["as_json"])


def _carried_out(job: Job, output: Path, reads: Sequence[Path], **how: Any) -> Outcome:
    """Makes the smaller model; where none was named, the smallest that is good enough."""
    if job.at_most is None:
        from kheads.lab.jobs.running import run

        return run(job, output, reads=reads, **how)
    from kheads.lab.searching import search

    if how.pop("resume"):
        raise ValueError("`at_most` looks for a size anew each time; leave out --resume.")
    return search(job, output, reads=reads, **how)


def data(given: Mapping[str, Any]) -> dict[str, Any]:
    """What --train, --eval, --column and --pooling gave."""
    files = {
        "train": given.get("train"),
        "eval": pairs(given["eval"], "eval"),
        "columns": pairs(given["columns"], "text"),
        "pooling": given["pooling"],
    }
    return {name: value for name, value in files.items() if value}


prune = command(_parameters(), _run, "prune", TEXT)


def _tell(outcome: Outcome, output: Path, as_json: bool) -> None:
    """The map of what is kept, and a table of before and after."""
    from rich.console import Group

    from kheads.lab import terminal

    record = outcome.record
    if as_json:
        print(
            strict_json.dumps({key: record[key] for key in ("method", "metrics", "kept", "before", "after", "report")})
        )
        return
    table = terminal.rows_table("before and after", ("", "before", "after"), _rows(outcome))
    use = f"kheads translate {output}" if record["settings"]["task"] == "translation" else f"kheads eval {output} ..."
    said = [*outcome.prepared.notes, *record["report"].get("remarks", ()), *_missing_baseline(outcome)]
    remarks = [*said, *record["report"].get("at_most", {}).get("told", ()), *_not_used(record["settings"])]
    next_steps = f"Saved in {output}. Next: {use}, kheads export {output} -o FOLDER"
    shown = Group(terminal.head_map(outcome.sites, outcome.kept), table, *remarks, next_steps)
    terminal.console().print(shown)


def _rows(outcome: Outcome) -> list[tuple[Any, ...]]:
    from kheads.lab import terminal
    from kheads.lab.report.budgets import budget_of
    from kheads.training.recording import FURTHER, STAGES

    record, metric = outcome.record, outcome.prepared.metric
    before, after, metrics = record["before"], record["after"], record["metrics"]
    rows: list[tuple[Any, ...]] = [
        ("heads", before["heads"], after["heads"]),
        *([("neurons", f"{before['neurons']:,}", f"{after['neurons']:,}")] if "neurons" in after else []),
        ("parameters", f"{before['parameters']:,}", f"{after['parameters']:,}"),
        ("weights", f"{before['bytes'] / 1e6:.1f} MB", f"{after['bytes'] / 1e6:.1f} MB"),
    ]
    if (asked := budget_of(record)) is not None:
        rows.append(("asked for", "", asked.asked))
        rows.append(("reached", "", asked.reached))
    for name in outcome.prepared.evals:
        unpruned = metrics.get("unpruned", {}).get(name, {}).get(metric)
        old = "-" if unpruned is None else terminal.metric(metric, unpruned)
        for stage, remark in {FURTHER: " (all heads, trained on)", **STAGES}.items():
            if name in metrics.get(stage, {}):
                rows.append((f"{metric}, {name}{remark}", old, terminal.metric(metric, metrics[stage][name][metric])))
    return rows


def _missing_baseline(outcome: Outcome) -> tuple[str, ...]:
    """How to get the unpruned model beside the result, where it is not."""
    pruned = outcome.record["after"]["parameters"] < outcome.record["before"]["parameters"]
    if "unpruned" in outcome.record["metrics"] or not outcome.prepared.evals or not pruned:
        return ()
    return ("The model was not trained before, so nothing stands under before; --baseline trains it as long.",)


def _not_used(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """That what was said of a training came to nothing, where none was wanted."""
    given = [name for name in OF_TRAINING if settings[name] != DEFAULTS[name]] if settings["no_training"] else []
    names = in_words_of_the_command_line(", ".join(f"`{name}`" for name in given))
    return (f"Nothing was trained, so {names} had no effect.",) if given else ()
