"""The paper's split of IWSLT14, from a made-up archive with the same files."""

import tarfile
from pathlib import Path

import pytest

from kheads.tasks import iwslt14
from kheads.tasks.files import DataError

HEAD = "<url>http://x</url>\n<talkid>1</talkid>\n<keywords>a, b</keywords>\n"


def raw(folder: Path, pairs: int = 50) -> Path:
    """Training text with its tags, a pair that is too uneven, and two segments for every test set."""
    place = folder / "de-en"
    place.mkdir(parents=True)
    for language, word in (("de", "Wort"), ("en", "word")):
        lines = [f"Das {word}, Nummer {number}." for number in range(pairs)]
        lines[1] = f"<title>{word} title</title>"
        lines[2] = f"<description>{word} &amp; text</description>"
        lines[3] = "eins" if language == "de" else "one two three"
        text = HEAD + "\n".join(lines) + "\n"
        (place / iwslt14.TRAIN.format(language=language)).write_text(text, encoding="utf-8")
        for name in iwslt14.TESTS:
            segments = "".join(
                f'<seg id="{n}"> {name.split(".")[2]} isn\u2019t &quot;{word}&quot; </seg>\n' for n in (1, 2)
            )
            (place / name.format(language=language)).write_text(f"<doc>\n{segments}</doc>\n", encoding="utf-8")
    return folder


def test_the_split(tmp_path: Path) -> None:
    """One pair is uneven; of the 49 left the 23rd and the 46th validate; tests keep their order."""
    counts = iwslt14.prepare(raw(tmp_path / "raw"), tmp_path / "out", quiet=True)
    assert counts == {"train": 47, "valid": 2, "test": 10}
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["kheads.json", "test.de", "test.en", "train.de", "train.en", "valid.de", "valid.en"]
    train = (tmp_path / "out" / "train.de").read_text(encoding="utf-8").splitlines()
    assert train[:3] == ["das wort , nummer 0 .", "wort title", "wort & amp ; text"]
    valid = (tmp_path / "out" / "valid.en").read_text(encoding="utf-8").splitlines()
    assert valid == ["das word , nummer 23 .", "das word , nummer 46 ."]
    test = (tmp_path / "out" / "test.en").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in test[::2]] == ["dev2010", "dev2012", "tst2010", "tst2011", "tst2012"]
    assert test[0] == 'dev2010 isn \'t " word "'


def test_an_archive_gives_the_same(tmp_path: Path) -> None:
    folder = raw(tmp_path / "raw")
    archive = tmp_path / "download" / iwslt14.ARCHIVE
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "de-en", "de-en")
    for number, source in enumerate((folder, archive, archive.parent)):
        iwslt14.prepare(source, tmp_path / str(number), quiet=True)
    texts = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "012"]
    assert texts[0] == texts[1] == texts[2]


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    folder = raw(tmp_path / "raw")
    (folder / "de-en" / iwslt14.TESTS[1].format(language="en")).unlink()
    with pytest.raises(DataError, match=r"has no IWSLT14\.TEDX\.dev2012\.de-en\.en\.xml"):
        iwslt14.prepare(folder, tmp_path / "out", quiet=True)
    english = folder / "de-en" / iwslt14.TRAIN.format(language="en")
    english.write_bytes(english.read_bytes() + b"\xe4\n")
    with pytest.raises(DataError, match=r"train\.tags\.de-en\.en, line 54: not UTF-8 \(byte 0xe4\)"):
        iwslt14.prepare(folder, tmp_path / "out", quiet=True)
    english.write_text("one\n")
    with pytest.raises(DataError, match=r"German side of .* has 50 sentences and the English side 1"):
        iwslt14.prepare(folder, tmp_path / "out", quiet=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds neither train\.tags\.de-en\.de nor de-en\.tgz"):
        iwslt14.prepare(tmp_path / "empty", tmp_path / "out", quiet=True)
    (tmp_path / "broken.tgz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"broken\.tgz is not a whole tar archive"):
        iwslt14.prepare(tmp_path / "broken.tgz", tmp_path / "out", quiet=True)
    with pytest.raises(DataError, match=r"does not exist; give IWSLT14's de-en\.tgz"):
        iwslt14.prepare(tmp_path / "nowhere", tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
