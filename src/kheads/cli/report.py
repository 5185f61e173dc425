"""kheads report: a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kheads.cli.app import JsonOption

ResultsArgument = Annotated[
    Path,
    typer.Argument(help="The results of a sweep (a folder, or a packed file), or a folder that kheads prune wrote."),
]
EfficiencyOption = Annotated[
    list[Path] | None,
    typer.Option(help="A further efficiency experiment: efficiency.json or its folder. Repeat for more."),
]
SetOption = Annotated[
    str | None,
    typer.Option("--set", help="The evaluation set to report. Default: mismatched or test, if there is one."),
]
NEEDED = ("jinja2", "matplotlib", "plotly")


def report(
    folder: ResultsArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page to write; Markdown if it ends in .md.")
    ] = Path("report.html"),
    evaluation: SetOption = None,
    efficiency: EfficiencyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained page with figures, tables and claims; figures (SVG) and data (CSV) go beside it.

    Example: `kheads report results -o report.html`
    """
    import json

    from kheads.lab import terminal

    check_installed()
    # Only here, because the libraries that draw are an extra.
    from kheads.lab.report import page, run_page, sweep_page
    from kheads.lab.report.results import is_run, read, read_run

    with terminal.waiting("drawing"):
        built = (
            run_page.run_page(*read_run(folder), folder)
            if is_run(folder)
            else sweep_page.sweep_page(read(folder, evaluation, efficiency or ()))
        )
        files = page.write(built, output)
    if as_json:
        print(json.dumps({"page": str(output), "files": [str(path) for path in files[1:]]}))
        return
    beside = f", figures and data in {files[1].parent}" if files[1:] else ""
    terminal.console().print(f"Wrote {output} ({output.stat().st_size / 1e3:,.0f} kB){beside}.")


def check_installed() -> None:
    """Refuses to draw, before any work, where what draws is not installed."""
    import importlib.util

    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"A report needs {', '.join(missing)}; install with: pip install 'kheads[report]'")
