"""The documents show the tables that the layouts give, and what the example prints."""

import runpy
from pathlib import Path

import pytest

from kheads.anatomy import catalogue

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("document", ["README.md", "docs/your-own-model.md"])
def test_the_models_in_the_documents_are_those_of_the_table(document: str) -> None:
    """To renew them: `python -m kheads.anatomy`."""
    assert catalogue.supported() in (ROOT / document).read_text()


def test_the_refusals_in_the_documents_are_those_of_the_table() -> None:
    assert catalogue.refused() in (ROOT / "docs" / "your-own-model.md").read_text()


def test_the_example_prints_what_the_document_shows(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_model.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "your-own-model.md").read_text()
