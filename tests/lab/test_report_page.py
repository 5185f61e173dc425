"""The page is whole and self-contained, and says what was run."""

import csv
import io
import itertools
import json
import re
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import plotly.graph_objects
import pytest

from kheads.blocks.site import ATTENTIONS
from kheads.lab.report import page, run_page, sweep_page
from kheads.lab.report.claims import all_claims
from kheads.lab.report.drawing import Figure, Heat, Panel, figure_csv
from kheads.lab.report.findings import findings
from kheads.lab.report.interactive import specs
from kheads.lab.report.quality import quality_figure
from kheads.lab.report.results import Results, read, read_run
from kheads.lab.report.static import svg
from kheads.lab.report.style import ON_WHITE, PALETTE, colour_of
from report_results import changed, figures_of, only, series
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
    assert len(rows) == sum(len(line.x) for one in figure.data if isinstance(one, Panel) for line in one.series)
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


def test_a_page_that_ends_in_md_is_markdown_with_the_same_files_beside_it(
    sweep: Results, written: list[Path], tmp_path: Path
) -> None:
    built = sweep_page.sweep_page(sweep)
    files = page.write(built, tmp_path / "of mine.md")
    text = files[0].read_text()
    assert [path.name for path in files[1:]] == [path.name for path in written[1:]]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert {unquote(link) for link in links} == {str(path.relative_to(tmp_path)) for path in files[1:]}
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [
        *(section.title for section in built.shown()),
        "What was run",
    ]
    claims = text.partition("## Claims")[2].partition("## ")[0]
    assert all(f"| {finding.claim.says} |" in claims for finding in all_claims(sweep).findings)
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert all(len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1 for lines in tables)


def test_in_markdown_too_what_records_say_is_text(sweep: Results, tmp_path: Path) -> None:
    failed = {"id": "a|b", "reason": "<img src=x> ![x](https://example.org/x.svg)\n# big `code`"}
    text = page.write(sweep_page.sweep_page(replace(sweep, failed=(failed,))), tmp_path / "r.md")[0].read_text()
    assert "| a\\|b | \\<img src=x> !\\[x\\](https://example.org/x.svg) # big \\`code\\` |" in text


def test_only_a_page_of_kheads_is_written_over(sweep: Results, tmp_path: Path) -> None:
    built, mine = sweep_page.sweep_page(sweep), tmp_path / "README.md"
    page.write(built, tmp_path / "r.md")
    page.write(built, tmp_path / "r.md")
    mine.write_text("# mine")
    with pytest.raises(FileExistsError, match="is no page of kheads"):
        page.write(built, mine)
    assert mine.read_text() == "# mine"


def test_what_was_run_is_said_once_and_not_under_every_figure(sweep: Results, written: list[Path]) -> None:
    run = "synthetic-nli, synthetic-mini (72 heads), 600 steps of batch 32, seeds 0, 1 and 2, on 2 cores and 2 threads."
    built = sweep_page.sweep_page(sweep)
    assert built.lead.endswith(run) and ("Runs", run) in built.facts
    for figure in figures_of(sweep):
        assert run not in figure.caption and ("cores" in figure.caption) == (figure.key == "efficiency"), figure.key


def test_captions_say_what_differs_from_the_common_setting(sweep: Results) -> None:
    some = only(sweep, lambda run: run.annealed or run.seed == 0)
    pairs = [figure.caption for figure in figures_of(some) if figure.key.startswith("dynamics")]
    assert pairs and not any("Here:" in caption for caption in pairs)  # these have every seed with annealing
    fewer = only(sweep, lambda run: run.key != "voita" or run.seed == 0)
    (caption,) = [figure.caption for figure in figures_of(fewer) if figure.key == "penalty"]
    assert caption.endswith("Here: seed 0.")


def test_the_page_opens_with_what_was_found_then_quality_and_the_claims_come_last(sweep: Results) -> None:
    built = sweep_page.sweep_page(sweep)
    assert [section.key for section in built.shown()] == [
        "quality",
        "penalty",
        "efficiency",
        "heads",
        "dynamics",
        "claims",
        "failed",
    ]
    best, ahead, sure = built.findings
    assert best.startswith("Unpruned, accuracy on mismatched is 82.50 %. The best pruned models: ")
    assert "Joint DSP with 12, " in best and "points worse" in best and best.count(" with ") == 3
    assert ahead.startswith("Ahead of the next best: Joint DSP at K = 1, 3, 6") and "mean over 3 seeds" in sure


def test_the_findings_follow_from_the_numbers(sweep: Results) -> None:
    def lift(record: dict[str, Any]) -> None:
        if record["look"]["key"] == "ste":
            for found in record["metrics"]["pruned"].values():
                found["accuracy"] = 0.9

    best, ahead, _ = findings(changed(sweep, lift))
    assert "STE with 48 of 72 heads, 7.50 points better" in best and "Joint DSP" not in ahead
    two = only(sweep, lambda run: run.seed < 2)
    assert "mean over 2 seeds, which is too few to be sure" in findings(two)[-1]
    assert "one run" in findings(only(sweep, lambda run: run.seed == 0))[-1]
    alone = findings(only(sweep, lambda run: run.key == "ste"))
    assert "unpruned" not in " ".join(alone).lower() and len(alone) == 2
    speed = Results(sweep.folder, {}, (), (), sweep.efficiency, "")
    assert findings(speed)[0].startswith("With 12 of 72 heads, the model is 1.3")


def test_less_is_better_where_it_is(sweep: Results) -> None:
    def perplexity(record: dict[str, Any]) -> None:
        record["metric"] = "perplexity"
        for stage in record["metrics"].values():
            for found in stage.values():
                found["perplexity"] = 1 / found["accuracy"]

    best, ahead, _ = findings(changed(sweep, perplexity))
    assert "perplexity on mismatched is 1.21" in best and "Perplexity worse" in best
    assert ahead.startswith("Ahead of the next best: Joint DSP at K = 1, 3, 6")


def test_figures_of_the_paper_are_called_the_papers(written: list[Path]) -> None:
    numbers = re.findall(r'<span class="paper">(.*?)</span>', written[0].read_text().partition("claims-list")[0])
    assert "the paper's Fig. 2" in numbers and "the paper's Tab. 3" in numbers
    assert all(number.startswith("the paper's ") for number in numbers)


def test_claims_without_data_are_folded(written: list[Path]) -> None:
    folded = written[0].read_text().partition("<details>")[2].partition("</details>")[0]
    assert "2 claims these results say nothing about" in folded and folded.count("<li>") == 2
    assert "Cross-attention heads" in folded and "Pipelined DSP is better" not in folded


def test_one_colour_for_each_method_in_every_figure(sweep: Results) -> None:
    colours: dict[str, set[str]] = {}
    for look in itertools.chain.from_iterable(figure.legend() for figure in figures_of(sweep)):
        colours.setdefault(look.label, set()).add(colour_of(look))
    assert all(len(found) == 1 for found in colours.values())
    methods = [colour_of(look) for look in sweep.looks.values()]
    assert methods == list(PALETTE[:7]) and len(set(PALETTE)) == len(PALETTE)


def test_every_colour_of_the_palette_can_be_seen_on_a_light_and_on_a_dark_page() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in PALETTE:
        for page_colour in ("#ffffff", "#171b22"):
            dark, light = sorted((luminance(colour), luminance(page_colour)))
            assert (light + 0.05) / (dark + 0.05) >= 3, (colour, page_colour)


@pytest.mark.parametrize("kinds", [("encoder",), ATTENTIONS], ids=["encoder", "encoder-decoder"])
def test_one_run_has_a_page_of_its_own(kinds: tuple[str, ...], tmp_path: Path) -> None:
    folder = write_run(tmp_path / "pruned", kinds)
    run, measured = read_run(folder)
    built = run_page.run_page(run, measured, folder)
    assert [section.key for section in built.shown()] == ["heads", "result", "dynamics", "latency"]
    (figure,) = [item for item in built.sections[0].items if isinstance(item, Figure)]
    heat = figure.panels[0]
    assert isinstance(heat, Heat) and len(heat.marks) == 12 and len(heat.rows) == 6 * len(kinds)
    assert [label.split()[-1] for label in heat.rows] == [str(layer) for _ in kinds for layer in range(6)]
    assert heat.columns[0] == "0"  # heads and layers as the command line counts them
    values = [value for row in heat.values for value in row if value is not None]
    kept = [heat.values[row][column] or 0.0 for row, column in heat.marks]
    assert sorted(kept) == pytest.approx(sorted(values)[-12:])  # the dots are on the highest scores
    files = page.write(built, tmp_path / "page.html")
    assert f"kept 12 of {len(values)} heads" in files[0].read_text()


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
