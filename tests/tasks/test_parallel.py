"""Parallel text: what is read, what is left out, and one sentence with file and line for what is wrong."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kheads.tasks.files import DataError
from kheads.tasks.parallel import Cleaning, Pairs, read_hub, read_pairs, read_parallel

GERMAN = ["ein Hund", "zwei  Katzen ", "drei Mäuse"]
ENGLISH = ["a dog", "two cats", "three mice"]
BOTH = list(zip(GERMAN, ENGLISH, strict=True))
CLEAN = ["ein Hund", "zwei Katzen", "drei Mäuse"]


def write(path: Path, content: str | bytes) -> Path:
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def tsv(*rows: tuple[str, str]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in rows)


def jsonl(row: Callable[[str, str], Any]) -> str:
    return "".join(json.dumps(row(*pair)) + "\n" for pair in BOTH)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files_line_by_line(suffix: str, tmp_path: Path) -> None:
    source, target = write(tmp_path / f"a.de{suffix}", lines(GERMAN)), write(tmp_path / f"a.en{suffix}", lines(ENGLISH))
    pairs = read_parallel(source, target)
    assert pairs.sources == CLEAN and pairs.targets == ENGLISH and pairs.numbers == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.tsv", tsv(*BOTH), None),
        ("a.tsv.gz", tsv(("source", "target"), *BOTH), None),
        ("a.tsv", tsv(("x", "y"), *BOTH), "xy"),
        ("a.jsonl", jsonl(lambda s, t: {"src": s, "tgt": t}), None),
        ("a.jsonl", jsonl(lambda s, t: {"translation": {"en": t, "de": s}}), None),
        ("a.jsonl.gz", jsonl(lambda s, t: {"y": t, "x": s}), "xy"),
        ("a.csv", "de,en\n" + "".join(f'"{s}",{t}\n' for s, t in BOTH), None),
    ],
)
def test_two_columns_of_one_file(name: str, content: str, columns: str | None, tmp_path: Path) -> None:
    chosen = {"source": columns[0], "target": columns[1]} if columns else None
    pairs = read_pairs(write(tmp_path / name, content), chosen)
    assert pairs.sources == CLEAN and pairs.targets == ENGLISH


def test_a_data_set_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder stands for the hub: `datasets` reads both the same way."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    rows = [{"translation": {"de": s, "en": t}} for s, t in zip(GERMAN, ENGLISH, strict=True)]
    for split in ("train", "test"):
        write(folder / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    splits = read_hub(str(folder))
    assert splits.keys() == {"train", "test"} and splits["test"].sources == CLEAN
    turned = read_hub(str(folder), {"source": "en", "target": "de"})
    assert turned["train"].targets == CLEAN

    def offline(*args: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(
        DataError, match=r"The data set nobody/nothing could not be loaded \(no network\); .*--train-source"
    ):
        read_hub("nobody/nothing")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\n", "a\n", r"s\.txt, line 2: .*t\.txt has only 1 lines"),
        ("a\n", "a\nb\nc\n", r"t\.txt, line 2: .*s\.txt has only 1 lines"),
        ("", "", "have no lines"),
        ("a\n", b"ok\n".replace(b"ok", b"\xe4"), r"t\.txt, line 1: not UTF-8 \(byte 0xe4\)"),
    ],
)
def test_files_that_do_not_fit_each_other(source: str, target: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_parallel(write(tmp_path / "s.txt", source), write(tmp_path / "t.txt", target))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "eins\tone\nzwei\n", "line 2: a line must be a source, a tab and a target; got 1 cells"),
        ("a.jsonl", '{"foo": "a", "bar": "b"}\n', "line 1: which columns are the source and the target"),
        ("a.jsonl", '{"source": "a", "target": 3}\n', "line 1: column 'target' must be a text; got 3"),
        ("a.jsonl", '{"source": "a", "target": "\\ud800"}\n', "line 1: .*half of a character"),
        ("a.jsonl", "[1]\n", r"line 1: a row must map column names to values; got \[1\]"),
        ("a.jsonl", "", "has no rows"),
        ("a.txt", "x", "must have the extension"),
    ],
)
def test_rows_that_are_no_pairs(name: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_pairs(write(tmp_path / name, content))


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"de": "a", "en": "b"}\n')
    with pytest.raises(DataError, match="no column 'fr'; the columns are 'de', 'en'"):
        read_pairs(path, {"source": "fr", "target": "en"})
    with pytest.raises(DataError, match="name both columns"):
        read_pairs(path, {"source": "de"})


def made(*pairs: tuple[str, str]) -> Pairs:
    sources, targets = zip(*pairs, strict=True)
    return Pairs(("x.de", "x.en"), list(sources), list(targets), list(range(1, len(pairs) + 1)))


def test_cleaning_counts_what_it_leaves_out() -> None:
    long = "wort " * 176
    pairs = made(("a b", "c d"), ("", "x"), ("a b c", "d e"), ("a b c d", "e f"), (long, long), ("a", ""), ("a", "b c"))
    kept, notes = Cleaning()(pairs)
    assert kept.sources == ["a b", "a b c"] and kept.numbers == [1, 3]
    assert notes == (
        "train: 5 of 7 pairs were left out: 2 with an empty side (the first: x.de, line 2), 1 longer than 175 words, "
        "2 with sides longer than 1.5 to 1.",
    )
    assert Cleaning()(made(("a", "b")))[1] == ()
    with pytest.raises(DataError, match=r"No pair of x\.de and x\.en is left"):
        Cleaning()(made(("", "x")))


@pytest.mark.parametrize("words", [1, 174, 175, 176])
def test_the_bounds_belong_to_what_stays(words: int) -> None:
    text = "w " * words
    assert (Cleaning().reason(text, text) is None) == (words <= 175)


def test_an_evaluation_set_stays_whole() -> None:
    with pytest.raises(DataError, match=r"x\.en, line 2: the side is empty"):
        made(("a", "b"), ("a", "")).check_complete()
    assert len(made(("a", "b c d e f g")).check_complete()) == 1


def test_pairs_know_their_lines() -> None:
    chosen: Any = made(("a", "b"), ("c", "d"), ("e", "f")).select([2, 0])
    assert (chosen.sources, chosen.targets, chosen.numbers) == (["e", "a"], ["f", "b"], [3, 1])
