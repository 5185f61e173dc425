"""The command line. Each command is a file; here they become one application."""

from kheads.cli.app import app, main
from kheads.cli.choose import choose
from kheads.cli.data import data
from kheads.cli.demo import demo
from kheads.cli.evaluate import evaluate
from kheads.cli.export import export
from kheads.cli.heads import heads
from kheads.cli.measure import measure
from kheads.cli.methods import methods, tasks
from kheads.cli.pack import pack
from kheads.cli.preview import preview
from kheads.cli.prune import prune
from kheads.cli.report import report
from kheads.cli.sweep import sweep
from kheads.cli.translate import translate

__all__ = ["main"]

for command in (
    *(heads, preview, prune, evaluate, measure, export),
    *(methods, tasks, sweep, report, pack, choose, translate, demo),
):
    app.command(name=command.__name__)(command)
app.add_typer(data, name="data")
