"""Whatever a command is given that cannot be used, it says so in one sentence that names the file or the option."""

import json
import shutil
from pathlib import Path

import pytest

from bad_inputs import Bad, every, verdict
from command import call, place

__all__ = ["place"]

LABELS = ("entailment", "neutral", "contradiction")
# The default run takes one of so many cases, spread over all kinds; `-m slow` takes them all.
ONE_OF = 12
CASES = every()


@pytest.fixture
def ready(place: Path) -> Path:
    """A model that knows the labels of the data, and a copy of it to break."""
    shutil.copytree(place / "tiny", place / "able")
    path = place / "able" / "config.json"
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {word: index for index, word in enumerate(LABELS)}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **names}))
    shutil.copytree(place / "able", place / "broken")
    return place


def check(bad: Bad, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad.put(place)
    if bad.model is not None:
        bad.model(place / "broken")
    code = call(monkeypatch, *bad.words)
    said = capsys.readouterr().err
    assert verdict(bad, code, said) == "refused", (code, said[-500:])


@pytest.mark.parametrize("bad", CASES[::ONE_OF], ids=lambda bad: bad.name)
def test_what_cannot_be_used_is_refused_in_one_sentence(
    bad: Bad, ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(bad, ready, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("bad", CASES, ids=lambda bad: bad.name)
def test_all_of_it(bad: Bad, ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    check(bad, ready, monkeypatch, capsys)
