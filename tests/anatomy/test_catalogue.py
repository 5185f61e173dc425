"""The documents show the tables that the layouts give, and what the example prints."""

import runpy

import pytest

import documents
from documents import DOCS, ROOT
from kheads.anatomy import catalogue


@pytest.mark.parametrize("part", ["models", "refusals"])
def test_the_tables_in_the_documents_are_those_of_the_layouts(part: str) -> None:
    """They are generated, and the page of models shows both."""
    table = {"models": catalogue.supported, "refusals": catalogue.refused}[part]()
    assert documents.generator().PARTS[f"{part}.md"]() == table
    assert f'--8<-- "{part}.md"' in (DOCS / "models.md").read_text()


def test_the_number_of_model_types_in_the_readme_is_that_of_the_table() -> None:
    number = sum(len(types) for types in catalogue.TYPES.values())
    assert f"{number} [model types](docs/models.md)" in (ROOT / "README.md").read_text()
    assert f"`discover` for {number} model types" in (ROOT / "CHANGELOG.md").read_text()


def test_the_example_prints_what_the_document_shows(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_model.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() in (DOCS / "your-own-model.md").read_text()
