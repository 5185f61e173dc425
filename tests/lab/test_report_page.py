"""The page is whole and self-contained, and says what was run."""

import csv
import io
import itertools
import json
import re
import xml.etree.ElementTree
from pathlib import Path

import plotly.graph_objects
import pytest

from kheads.blocks.site import KINDS
from kheads.lab.report import page, run_page, sweep_page
from kheads.lab.report.drawing import Figure, Heat, Panel, figure_csv
from kheads.lab.report.interactive import specs
from kheads.lab.report.quality import quality_figure
from kheads.lab.report.results import Results, read, read_run
from kheads.lab.report.static import svg
from kheads.lab.report.style import LOOKS, ON_WHITE
from report_results import figures_of, series
from synthetic_results import write_run, write_sweep


@pytest.fixture(scope="module")
def written(sweep: Results, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return page.write(sweep_page.sweep_page(sweep), tmp_path_factory.mktemp("page") / "report.html")


def test_the_page_needs_no_network(written: list[Path]) -> None:
    text = written[0].read_text()
    before_library = text.partition("<script>")[0]
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", before_library)
    assert not re.search(r"url\(|@import", before_library)
    assert "default-src 'none'" in before_library and text.count("plotly.js v") == 1


def test_every_figure_is_a_file_and_its_data_too(sweep: Results, written: list[Path]) -> None:
    names = {path.name for path in written[1:]}
    for figure in figures_of(sweep):
        assert {f"{figure.key}.svg", f"{figure.key}.csv"} <= names
    assert {"table-claims.csv", "table-quality.csv", "table-comparison.csv", "table-failed.csv"} <= names
    for path in written[1:]:
        if path.suffix == ".svg":
            assert xml.etree.ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            first, *rest = csv.reader(io.StringIO(path.read_text()))
            assert rest and len({len(row) for row in (first, *rest)}) == 1, path
    assert not list(written[0].parent.rglob("*.tmp"))


def test_the_csv_of_a_figure_has_every_point(sweep: Results) -> None:
    figure = quality_figure(sweep)
    assert figure
    rows = list(csv.DictReader(io.StringIO(figure_csv(figure))))
    assert len(rows) == sum(len(line.x) for one in figure.panels if isinstance(one, Panel) for line in one.series)
    dsp = [float(row["y"]) for row in rows if row["series"] == "Joint DSP" and row["panel"] == "All K"]
    assert dsp == pytest.approx(series(figure, "Joint DSP").y)


def test_figures_are_the_same_bytes_at_every_run(sweep: Results) -> None:
    figure = quality_figure(sweep)
    assert figure and svg(figure) == svg(figure)


def test_plotly_accepts_every_figure(sweep: Results, translation: Results) -> None:
    """The page hands plain data to plotly.js, which overlooks mistakes; the Python library does not."""
    for figure in [*figures_of(sweep), *figures_of(translation)]:
        for spec in specs(figure):
            text = json.dumps(spec, allow_nan=False)
            for name, colour in {**ON_WHITE, "@font": "sans-serif"}.items():
                text = text.replace(f'"{name}"', f'"{colour}"')
            assert '"@' not in text
            plotly.graph_objects.Figure(json.loads(text))


def test_what_records_say_is_text_and_not_markup(written: list[Path]) -> None:
    text = written[0].read_text()
    assert "A made-up &lt;b&gt;reason&lt;/b&gt;." in text and "<b>reason" not in text


def test_captions_say_what_was_run(sweep: Results) -> None:
    run = "synthetic-nli, synthetic-mini (72 heads), 600 steps of batch 32"
    for figure in figures_of(sweep):
        assert ("cores" if figure.key == "efficiency" else run) in figure.caption, figure.key


def test_one_colour_for_each_method_in_every_figure(sweep: Results) -> None:
    colours: dict[str, set[str]] = {}
    for look in itertools.chain.from_iterable(figure.legend() for figure in figures_of(sweep)):
        colours.setdefault(look.name, set()).add(look.colour)
    assert all(len(found) == 1 for found in colours.values())
    methods = [
        LOOKS[key].colour for key in ("dsp", "dsp-pipelined", "ste", "voita", "michel", "retrain", "random", "none")
    ]
    assert len(set(methods)) == len(methods)


@pytest.mark.parametrize("kinds", [("encoder",), KINDS], ids=["encoder", "encoder-decoder"])
def test_one_run_has_a_page_of_its_own(kinds: tuple[str, ...], tmp_path: Path) -> None:
    folder = write_run(tmp_path / "pruned", kinds)
    run, measured = read_run(folder)
    built = run_page.run_page(run, measured, folder)
    assert [section.key for section in built.shown()] == ["heads", "result", "dynamics", "latency"]
    (figure,) = [item for item in built.sections[0].items if isinstance(item, Figure)]
    heat = figure.panels[0]
    assert isinstance(heat, Heat) and len(heat.marks) == 12 and len(heat.rows) == 6 * len(kinds)
    values = [value for row in heat.values for value in row if value is not None]
    kept = [heat.values[row][column] or 0.0 for row, column in heat.marks]
    assert sorted(kept) == pytest.approx(sorted(values)[-12:])  # the dots are on the highest scores
    files = page.write(built, tmp_path / "page.html")
    assert f"12 of {len(values)} heads kept" in files[0].read_text()


def test_latency_says_where_no_difference_was_measured(tmp_path: Path) -> None:
    _, measured = read_run(write_run(tmp_path / "pruned"))
    heat = run_page.latency(measured or {})[0].panels[0]
    assert isinstance(heat, Heat) and "includes 1" in heat.notes[0][0] and "includes 1" not in heat.notes[1][0]


def test_latency_without_another_model_is_milliseconds() -> None:
    grid = [{"batch": 1, "length": 8, "ms": 2.5, "against_ms": None, "ratio": None, "low": None, "high": None}]
    heat = run_page.latency({"grid": grid})[0].panels[0]
    assert isinstance(heat, Heat) and heat.texts == [["2.5 ms"]] and run_page.latency({"grid": []}) == []


def test_damaged_results_are_named(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "results", seeds=1)
    with pytest.raises(ValueError, match="`--set` must be one of mismatched, matched; got 'test'"):
        read(folder, "test")
    broken = next((folder / "runs").glob("dsp*.json"))
    broken.write_text("{")
    with pytest.raises(ValueError, match=rf"{broken.name} cannot be read as JSON"):
        read(folder)
    with pytest.raises(ValueError, match="is not a results folder"):
        read(tmp_path)
