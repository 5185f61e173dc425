"""kheads preview: what each budget, or each K, would give, before anything is trained."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kheads.blocks.budget import read_batch
from kheads.blocks.fields import NotNegative, check_value
from kheads.cli.allocation import keep_freed_memory
from kheads.cli.app import JsonOption
from kheads.cli.flags import command, extra, flag
from kheads.cli.front import DATA, NAMES, SHAPED
from kheads.cli.prune import data
from kheads.cli.report import check_installed
from kheads.lab.jobs.catalogue import LabelledFiles, Sentences
from kheads.lab.jobs.job import Job
from kheads.lab.options import options_of
from kheads.lab.preview.request import Request
from kheads.storage import strict_json

if TYPE_CHECKING:
    from kheads.lab.preview.advice import Advice
    from kheads.lab.preview.found import Preview

TEXT = """Show in minutes what ten budgets would give: blocks are chosen, cut and repaired, and nothing is trained.

Heads alone, and beside it heads and neurons; with -k, numbers of heads. For a model that can do the task already. The
last line is the command that makes the smaller model.

Example: `kheads preview my-model --train train.jsonl --eval dev.jsonl --at-most 1`
"""
FIELDS = ("method", *DATA, "batch_size", "seed")  # of a job, and of its data
PANEL = "What to look at"
HELP = {**SHAPED, "method": {"help": "How to choose the heads: one that scores them once for every K."}}


def _parameters() -> list[inspect.Parameter]:
    declared = {**options_of(Job), **options_of(Sentences), **options_of(LabelledFiles)}
    model = Annotated[str, typer.Argument(help="A folder or a hub name.", show_default=False)]
    return [
        inspect.Parameter("model", inspect.Parameter.KEYWORD_ONLY, annotation=model),
        *_own(),
        *(
            flag(declared[name], PANEL if name == "method" else "Data", *NAMES.get(name, ()), **HELP.get(name, {}))
            for name in FIELDS
        ),
        extra("sets", list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set any other field.")),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
    ]


def _own() -> list[inspect.Parameter]:
    """Flags of the command alone."""

    def option(*names: str, **details: Any) -> Any:
        return typer.Option(*names, rich_help_panel=PANEL, show_default=False, **details)

    at_most = "Name the smallest that is at most this many points worse; percent where lower is better."
    at = option("--at", metavar="BATCHxTOKENS", help="Measure speed on this batch, by default 8 usual texts.")
    return [
        extra("budgets", str | None, option("--budgets", help="Budgets of params, flops or speedup [params].")),
        extra("parts", str | None, option("--parts", help="What may go: heads, ffn or all; heads beside all.")),
        extra("ks", list[int] | None, option("-k", help="Look at this number of heads instead; may be repeated.")),
        extra("at_most", float | None, option("--at-most", help=at_most)),
        extra("at", str | None, at),
        extra("no_speed", bool, option("--no-speed", help="Do not measure speed."), False),
        extra("output", Path | None, option("--output", "-o", help="Also write this page.")),
    ]


def _run(given: Mapping[str, Any]) -> None:
    from kheads.cli.settings import make_job

    check_value(NotNegative | None, given["at_most"], "--at-most")
    asked, output = _request(given), given["output"]
    fields = {name: given[name] for name in ("model", *FIELDS) if name in options_of(Job)}
    job = make_job({**fields, "data": data(given)}, given["sets"] or ())
    if output is not None:
        _check_page(output)
    keep_freed_memory()
    from kheads.cli.preview_table import show
    from kheads.lab.preview.advice import advise
    from kheads.lab.preview.amounts import options

    found = _look(job, asked)
    advice = advise(found, given["at_most"])
    prune = prune_command(given, options(advice.point.budget, advice.point.parts))
    if output is not None:
        _write(found, advice, prune, output)
    if given["as_json"]:
        print(strict_json.dumps(_plain(found, advice, prune, output)))
    else:
        show(found, advice, prune, output)


preview = command(_parameters(), _run, "preview", TEXT)


def _request(given: Mapping[str, Any]) -> Request:
    """What the user wants to look at."""
    named = {name: given[name] for name in ("budgets", "parts") if given[name] is not None}
    if given["ks"] and named:
        raise ValueError(f"`-k` counts heads, and `--{min(named)}` is for budgets; give one of them.")
    at = None if given["at"] is None else read_batch(given["at"], "--at")
    return Request(**named, ks=given["ks"] or (), timed=not given["no_speed"], at=at)


def _look(job: Job, asked: Request) -> Preview:
    from kheads.lab import terminal
    from kheads.lab.preview.looking import preview as look
    from kheads.lab.preview.ready import ready

    settled, prepared = ready(job)
    with terminal.counting() as tell:
        return look(settled, prepared, asked, tell)


def _check_page(output: Path) -> None:
    """What a page needs is there, before minutes of work."""
    check_installed()
    from kheads.lab.report.page import check_place

    check_place(output)


def _write(found: Preview, advice: Advice, prune: str, output: Path) -> None:
    # Only here, because the libraries that draw are an extra.
    from kheads.lab import terminal
    from kheads.lab.report.page import write
    from kheads.lab.report.preview_page import preview_page

    with terminal.waiting("drawing"):
        write(preview_page(found, advice, prune), output)


def prune_command(given: Mapping[str, Any], amount: Sequence[str]) -> str:
    """The command that makes the smaller model, with what the user gave.

    Args:
        given: what the user gave.
        amount: the words that say how much may stay.
    """
    words = ["kheads", "prune", given["model"], *amount]
    for name in FIELDS:
        (written, *_) = NAMES.get(name, (f"--{name.replace('_', '-')}",))
        words += [word for value in _several(given[name]) for word in (written, str(value))]
    words += [word for text in given["sets"] or () for word in ("--set", text)]
    return shlex.join([*words, "-o", "small"])


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _plain(found: Preview, advice: Advice, prune: str, output: Path | None) -> dict[str, Any]:
    from kheads.lab.preview.found import plain_asked

    chosen = {**plain_asked(advice.point), "holds": advice.holds, "why": advice.why, "command": prune}
    return {**found.to_dict(), "chosen": chosen, "page": None if output is None else str(output)}
