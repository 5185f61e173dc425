"""The command line. Each command is a file; here they become one application."""

from kheads.cli.app import app, main
from kheads.cli.choose import choose
from kheads.cli.data import data
from kheads.cli.demo import demo
from kheads.cli.evaluate import evaluate
from kheads.cli.export import export
from kheads.cli.heads import heads
from kheads.cli.measure import measure
from kheads.cli.prune import prune
from kheads.cli.report import report
from kheads.cli.sweep import sweep
from kheads.cli.translate import translate

__all__ = ["main"]

for command in (heads, prune, translate, measure, sweep, report, choose, export, demo):
    app.command()(command)
app.add_typer(data, name="data")
app.command(name="eval")(evaluate)
