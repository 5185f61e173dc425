"""kheads preview: what each K would give, before anything is trained."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kheads.blocks.fields import NotNegative, check_value
from kheads.cli.allocation import keep_freed_memory
from kheads.cli.app import JsonOption
from kheads.cli.flags import command, extra, flag
from kheads.cli.front import DATA, NAMES, SHAPED
from kheads.cli.prune import data
from kheads.cli.report import check_installed
from kheads.lab.jobs.catalogue import LabelledFiles
from kheads.lab.jobs.job import Job
from kheads.lab.options import options_of
from kheads.storage import strict_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kheads.lab.preview import Preview
    from kheads.lab.preview_words import Advice

TEXT = """Show in minutes what each K would give: heads are chosen, cut and repaired, and nothing is trained.

For a model that can do the task already. The last line is the command that makes the smaller model.

Example: `kheads preview my-model --train train.jsonl --eval dev.jsonl --at-most 1`
"""
FIELDS = ("method", *DATA, "batch_size", "seed")  # of a job, and of its data
PANEL = "What to look at"
HELP = {**SHAPED, "method": {"help": "How to choose the heads: one that scores them once for every K."}}
REPAIRED, CUT = "●", "○"


def _parameters() -> list[inspect.Parameter]:
    declared = {**options_of(Job), **options_of(LabelledFiles)}
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

    at_most = "Name the smallest K at most this many points worse; percent where lower is better."
    at = option("--at", metavar="BATCHxTOKENS", help="Measure speed on this batch, by default 8 usual texts.")
    return [
        extra("ks", list[int] | None, option("-k", help="Look at this K; may be repeated. By default about eight.")),
        extra("at_most", float | None, option("--at-most", help=at_most)),
        extra("at", str | None, at),
        extra("no_speed", bool, option("--no-speed", help="Do not measure speed."), False),
        extra("output", Path | None, option("--output", "-o", help="Also write this page.")),
    ]


def _run(given: Mapping[str, Any]) -> None:
    from kheads.cli.settings import make_job

    check_value(NotNegative | None, given["at_most"], "--at-most")
    at, output = _shape(given["at"]), given["output"]
    fields = {name: given[name] for name in ("model", *FIELDS) if name in options_of(Job)}
    job = make_job({**fields, "data": data(given)}, given["sets"] or ())
    if output is not None:
        _check_page(output)
    keep_freed_memory()
    from kheads.lab import preview as previews
    from kheads.lab import terminal
    from kheads.lab.preview_words import advise

    job, prepared = previews.ready(job)
    with terminal.counting() as tell:
        asked = previews.Request(given["ks"] or (), not given["no_speed"], at)
        found = previews.preview(job, prepared, asked, tell)
    advice = advise(found, given["at_most"])
    prune = _prune(given, advice.k)
    if output is not None:
        _write(found, advice, prune, output)
    if given["as_json"]:
        print(strict_json.dumps(_plain(found, advice, prune, output)))
        return
    _tell(found, advice, prune, output)


preview = command(_parameters(), _run, "preview", TEXT)


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    numbers = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if numbers is None:
        raise ValueError(f"`--at` must be BATCHxTOKENS, such as 8x128; got {text!r}.")
    return int(numbers[1]), int(numbers[2])


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


def _prune(given: Mapping[str, Any], k: int) -> str:
    """The command that makes the smaller model, with what the user gave."""
    words = ["kheads", "prune", given["model"], "-k", str(k)]
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
