"""The pages of docs/ that `make results` writes say what the committed results say."""

from pathlib import Path

import pytest

from kheads.lab.report import page
from kheads.lab.report.results import read
from kheads.lab.report.sweep_page import sweep_page

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
PAGES = {"mnli": ("mnli_minilm.jsonl.gz", ("efficiency_minilm",))}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_results_is_what_the_results_give_today(name: str, tmp_path: Path) -> None:
    """Its words and the numbers behind its figures; how a figure is drawn differs between releases of what draws it."""
    packed, measured = PAGES[name]
    results = read(EXPERIMENTS / packed, efficiency=[EXPERIMENTS / folder for folder in measured])
    files = page.write(sweep_page(results), tmp_path / f"{name}.md")
    written = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in files if path.suffix != ".svg"}
    told = f"docs/{name}.md is not what the results say; write it again with: make results"
    assert written == {path: (ROOT / "docs" / path).read_text() for path in written}, told
    drawn = {path.name for path in files if path.suffix == ".svg"}
    beside = {path.name for path in (ROOT / "docs" / f"{name}_files").iterdir()}
    assert beside == drawn | {Path(path).name for path in written if "/" in path}, told
    assert packed in (ROOT / "Makefile").read_text()
