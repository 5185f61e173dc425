"""The paper's split of IWSLT14 German to English, from the raw archive that a user has downloaded.

Training text is tokenised with Moses' rules, cleaned (1 to 175 tokens, 1.5 to 1), and lower-cased; every 23rd pair of
it is the validation set, and the test set is dev2010, dev2012, tst2010, tst2011 and tst2012 one after another. The
usual script leads to 160,239, 7,283 and 6,750 pairs.

Differs: sacremoses stands for Moses' own tokenizer, and characters are not escaped (&apos; stays an apostrophe).
"""

from __future__ import annotations

import html
import re
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from kheads.storage.new_folder import check_free, new_folder
from kheads.tasks.bleu import moses_tools
from kheads.tasks.files import DataError
from kheads.tasks.parallel import Cleaning, Pairs
from kheads.training.progress import progress

LANGUAGES = ("de", "en")
ARCHIVE = "de-en.tgz"
TRAIN = "train.tags.de-en.{language}"
TESTS = tuple(
    f"IWSLT14.{name}.de-en.{{language}}.xml"
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
)
EVERY = 23

_SEGMENT = re.compile(r"<seg id[^>]*>\s*(.*?)\s*</seg>")
_SKIPPED = ("<url>", "<talkid>", "<keywords>")
_TAGS = re.compile(r"</?(title|description)>")


def prepare(raw: str | Path, output: str | Path, overwrite: bool = False, quiet: bool = False) -> dict[str, int]:
    """Writes train, valid and test files, one line a sentence, and returns how many pairs each has.

    Args:
        raw: the archive de-en.tgz, or a folder that holds it or its files.
        output: the folder to make, with train.de, train.en, valid.de and so on.
        overwrite: replace an output folder that kheads made.
        quiet: no progress bars.
    """
    check_free(output, overwrite, inputs=[raw])
    read = _reader(Path(raw))
    train = [_tokenized(_training_lines(read(TRAIN.format(language=lang))), lang, quiet) for lang in LANGUAGES]
    clean, _ = Cleaning()(_pairs(TRAIN, train))
    lines = [[line for name in TESTS for line in _segments(read(name.format(language=lang)))] for lang in LANGUAGES]
    test = _pairs("the test sets", [_tokenized(side, lang, quiet) for side, lang in zip(lines, LANGUAGES, strict=True)])
    valid = [place for place in range(len(clean)) if (place + 1) % EVERY == 0]
    rest = sorted(set(range(len(clean))) - set(valid))
    splits = {"train": clean.select(rest), "valid": clean.select(valid), "test": test}
    with new_folder(output, overwrite, inputs=[raw]) as folder:
        for name, pairs in splits.items():
            for language, side in zip(LANGUAGES, (pairs.sources, pairs.targets), strict=True):
                text = "".join(f"{line.lower()}\n" for line in side)
                (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return {name: len(pairs) for name, pairs in splits.items()}


def _reader(raw: Path) -> Callable[[str], list[str]]:
    """A function that gives the lines of a file by its name, wherever it lies in the folder or the archive."""
    if raw.is_dir():
        found = {path.name: path for path in sorted(raw.rglob("*")) if path.is_file()}
        if TRAIN.format(language="de") in found:
            return lambda name: _lines(name, found[name].read_bytes() if name in found else None, raw)
        if ARCHIVE not in found:
            raise DataError(
                f"{raw} holds neither {TRAIN.format(language='de')} nor {ARCHIVE}; give IWSLT14's raw data."
            )
        raw = found[ARCHIVE]
    if not raw.is_file():
        raise DataError(f"{raw} does not exist; give IWSLT14's {ARCHIVE} or the folder that holds it.")
    return lambda name: _lines(name, _member(raw, name), raw)


def _member(archive: Path, name: str) -> bytes | None:
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and Path(member.name).name == name:
                    file = tar.extractfile(member)
                    return file.read() if file else None
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is not a whole tar archive; download it again.") from error
    return None


def _lines(name: str, content: bytes | None, raw: Path) -> list[str]:
    if content is None:
        raise DataError(f"{raw} has no {name}; give the whole raw archive of IWSLT14 German-English.")
    lines = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise DataError(f"{name}, line {number}: not UTF-8 (byte 0x{byte:02x}); download it again.") from None
    return lines


def _training_lines(lines: list[str]) -> list[str]:
    """The sentences, titles and descriptions, without their tags."""
    return [_TAGS.sub("", line).strip() for line in lines if not any(tag in line for tag in _SKIPPED)]


def _segments(lines: list[str]) -> list[str]:
    found = [_SEGMENT.search(line) for line in lines]
    return [html.unescape(match.group(1)).replace("\u2019", "'") for match in found if match]


def _tokenized(lines: list[str], language: str, quiet: bool) -> list[str]:
    cut = moses_tools().MosesTokenizer(language).tokenize
    shown = progress(lines, f"tokenising {language}", quiet=quiet)
    return [cut(line, escape=False, return_str=True) for line in shown]


def _pairs(what: str, sides: list[list[str]]) -> Pairs:
    counts = [len(side) for side in sides]
    if counts[0] != counts[1]:
        raise DataError(f"The German side of {what} has {counts[0]} sentences and the English side {counts[1]}.")
    names = what.format(language="de"), what.format(language="en")
    return Pairs(names, sides[0], sides[1], list(range(1, counts[0] + 1)))
