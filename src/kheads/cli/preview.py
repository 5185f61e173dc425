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
from kheads.storage import strict_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kheads.lab.jobs.prepared import Prepared
    from kheads.lab.preview import Preview
    from kheads.lab.preview_words import Advice

TEXT = """Show in minutes what ten budgets would give: blocks are chosen, cut and repaired, and nothing is trained.

Heads alone, and beside it heads and neurons; with -k, numbers of heads. For a model that can do the task already. The
last line is the command that makes the smaller model.

Example: `kheads preview my-model --train train.jsonl --eval dev.jsonl --at-most 1`
"""
FIELDS = ("method", *DATA, "batch_size", "seed")  # of a job, and of its data
PANEL = "What to look at"
HELP = {**SHAPED, "method": {"help": "How to choose the heads: one that scores them once for every K."}}
REPAIRED, CUT = "●", "○"


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
    at, output = None if given["at"] is None else read_batch(given["at"], "--at"), given["output"]
    _check_kinds(given)
    fields = {name: given[name] for name in ("model", *FIELDS) if name in options_of(Job)}
    job = make_job({**fields, "data": data(given)}, given["sets"] or ())
    if output is not None:
        _check_page(output)
    keep_freed_memory()
    from kheads.lab import preview as previews

    if given["ks"]:
        _over_heads(given, *previews.ready(job), at)
        return
    from kheads.cli import budget_preview

    asked = budget_preview.request(given, at)
    budget_preview.show(asked, *previews.ready(job), given, lambda words: prune_command(given, words))


preview = command(_parameters(), _run, "preview", TEXT)


def _check_kinds(given: Mapping[str, Any]) -> None:
    for name in ("budgets", "parts"):
        if given["ks"] and given[name] is not None:
            raise ValueError(f"`-k` counts heads, and `--{name}` is for budgets; give one of them.")


def _over_heads(given: Mapping[str, Any], job: Job, prepared: Prepared, at: tuple[int, int] | None) -> None:
    """The preview of numbers of heads."""
    from kheads.lab import preview as previews
    from kheads.lab import terminal
    from kheads.lab.preview_words import advise

    output: Path | None = given["output"]
    with terminal.counting() as tell:
        asked = previews.Request(given["ks"], not given["no_speed"], at)
        found = previews.preview(job, prepared, asked, tell)
    advice = advise(found, given["at_most"])
    prune = prune_command(given, ["-k", str(advice.k)])
    if output is not None:
        _write(found, advice, prune, output)
    if given["as_json"]:
        print(strict_json.dumps(_plain(found, advice, prune, output)))
        return
    _tell(found, advice, prune, output)


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
    chosen = {"k": advice.k, "holds": advice.holds, "why": advice.why, "command": prune}
    return {**found.to_dict(), "chosen": chosen, "page": None if output is None else str(output)}


def _tell(found: Preview, advice: Advice, prune: str, output: Path | None) -> None:
    from kheads.lab import terminal
    from kheads.lab.preview_words import LIMIT, columns, quality_of, rows, timing

    title = f"preview of {found.model} by {found.method}: {quality_of(found)}"
    told = (*found.remarks, *([] if output is None else [f"Wrote {output}."]), advice.why)
    names = [name.replace(" ", "\n") for name in columns(found)]  # so that it fits into 80 columns
    shown = terminal.console()
    shown.print(terminal.rows_table(title, names, rows(found)))
    for text in (f"{LIMIT} {timing(found)}", "", _figure(found), "", *told):
        shown.print(text, markup=False)
    shown.print(prune, markup=False, soft_wrap=True)


def _figure(found: Preview) -> RenderableType:
    from rich.text import Text

    from kheads.lab.chart import LINE, chart
    from kheads.lab.terminal import metric

    points = found.points[::-1]
    marks = {stage: [found.quality(getattr(point, stage)) for point in points] for stage in ("cut", "repaired")}
    whole = found.quality(found.unpruned)
    drawn = chart(
        [str(point.k) for point in points],
        {CUT: marks["cut"], REPAIRED: marks["repaired"]},
        whole,
        lambda value: metric(found.metric, value),
        log=found.lower_is_better,
    )
    legend = f"{REPAIRED} repaired   {CUT} right after the cut   {LINE * 3} unpruned, {metric(found.metric, whole)}"
    return Text(f"{found.metric} on {found.evaluation} against K, the heads kept\n\n{drawn}\n\n{legend}", no_wrap=True)
