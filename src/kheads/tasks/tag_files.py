"""Reads words and their tags from files, and names the file and the line of whatever is wrong with them.

| extension | what a file holds |
|---|---|
| .jsonl, .json, .ndjson | one JSON object on each line, with a list of words and a list of tags |
| any other, such as .conll or .txt | on each line a word and its tag, maybe with other columns between them |

Training data may go without tags: rows of words alone, or a word on each line.

In files of columns, a blank line ends a sentence. Columns are separated by tabs, or by blanks. Lines that begin with
-DOCSTART- say nothing. Files are UTF-8 and may be
compressed (.gz).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kheads.tasks.files import (
    MOST_BYTES,
    DataError,
    check_file,
    format_of,
    holds_rows,
    listed,
    quoted,
    read_lines,
    read_rows,
)

ROLES = ("words", "tags")
WORD_NAMES = ("words", "tokens")
TAG_NAMES = ("tags", "ner_tags", "pos_tags", "labels")
JSON = (".jsonl", ".json", ".ndjson")
DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class Sentences:
    """The sentences of one file.

    Attributes:
        origin: the file, as errors name it.
        words: the words of each sentence.
        tags: their tags, as they stand there; none of a sentence without labels.
        lines: the line on which each sentence begins.
        first_seen: the first line with each tag.
    """

    origin: str
    words: Sequence[Sequence[str]]
    tags: Sequence[Sequence[str]]
    lines: Sequence[int]
    first_seen: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def labelled(self) -> bool:
        """Whether the file has tags."""
        return bool(self.first_seen)

    def select(self, places: Iterable[int]) -> Sentences:
        """Some of the sentences."""
        places = list(places)
        words, tags = ([column[place] for place in places] for column in (self.words, self.tags))
        return Sentences(self.origin, words, tags, [self.lines[place] for place in places], self.first_seen)

    def where(self, tag: str) -> str:
        """The place of the first word with this tag."""
        return f"{self.origin}, line {self.first_seen[tag]}"


Numbered = tuple[int, list[str], list[str], list[int]]  # the line of a sentence, its words, tags, and their lines


def read_sentences(path: str | Path, columns: Mapping[str, str] | None = None, labelled: bool = True) -> Sentences:
    """Reads a file of words and tags.

    Args:
        path: the file.
        columns: which columns hold "words" and "tags"; by name in JSON, otherwise by number, from 1. By default the
            usual names; the first column and the last.
        labelled: whether there must be tags.
    """
    path, named = Path(path), dict(columns or {})
    for role in named:
        if role not in ROLES:
            raise ValueError(f"`columns` may name {listed(ROLES)}; got {role!r}.")
    kind = _format(path)
    check_file(path)
    found = list((_from_rows if kind in JSON else _from_columns)(path, named, labelled))
    if not found:
        raise DataError(f"{path} has no sentences; give a file with some.")
    first_seen: dict[str, int] = {}
    for _, _, tags, lines in found:
        for tag, line in zip(tags, lines, strict=False):  # there may be no tags
            first_seen.setdefault(tag, line)
    numbers, words, all_tags, _ = zip(*found, strict=True)
    return Sentences(str(path), words, all_tags, numbers, first_seen)


def _format(path: Path) -> str:
    """The extension of a file with rows; nothing for one of columns."""
    kind = format_of(path) if holds_rows(path) else ""
    if kind not in (*JSON, ".tsv", ""):
        raise DataError(f"{path} must be {', '.join(JSON)}, or a text file of columns (.conll, .txt, .tsv).")
    if ".conllu" in path.suffixes:
        raise DataError(f"{path} is CoNLL-U, whose tags are not in the last column; write words and tags alone.")
    return kind


# ------------------------------------------------------------------------------------------------------------- columns


def _from_columns(path: Path, named: Mapping[str, str], labelled: bool) -> Iterator[Numbered]:
    """The sentences of a file of columns; a file of words alone has one."""
    word, tag = (_number(named, role, usual) for role, usual in zip(ROLES, (0, -1), strict=True))
    least = 2 if labelled or "tags" in named else 1
    count: tuple[int, int] | None = None  # columns, and the line that has as many
    words: list[str] = []
    tags: list[str] = []
    lines: list[int] = []
    for number, cells in _cells(path):
        if cells:
            count = count or _first(path, number, cells, (word, tag), least)
            _check_count(path, number, cells, count)
            words.append(cells[word])
            tags += [cells[tag]] if len(cells) > 1 else []
            lines.append(number)
        elif words:
            yield _checked(path, words, tags, lines)
            words, tags, lines = [], [], []
    if words:
        yield _checked(path, words, tags, lines)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line; none between sentences."""
    for number, line in read_lines(path):
        line = line.rstrip("\r\n")
        if "\x00" in line:
            raise DataError(f"{path}, line {number}: a NUL, which no text has; give a text file.")
        if not line.strip() or line.startswith(DOCUMENT):
            yield number, []
        else:
            # A blank that does not break a line is a part of its word, as in numbers of several parts.
            yield number, [cell.strip(" ") for cell in line.split("\t")] if "\t" in line else re.findall("[^ ]+", line)


def _number(named: Mapping[str, str], role: str, usual: int) -> int:
    if role not in named:
        return usual
    if not named[role].isdecimal() or not 1 <= int(named[role]) < 1000:
        raise ValueError(f"`columns` must name the column of the {role} by its number, from 1; got {named[role]!r}.")
    return int(named[role]) - 1


def _first(path: Path, number: int, cells: Sequence[str], used: tuple[int, int], least: int) -> tuple[int, int]:
    """How many columns a file has, from its first line of any."""
    if len(cells) < least or max(used) >= len(cells):
        needed = max(2, 1 + max(used))
        raise DataError(
            f"{path}, line {number}: a line must have a word and its tag, {needed} columns or more; got {len(cells)}."
        )
    return len(cells), number


def _check_count(path: Path, number: int, cells: Sequence[str], count: tuple[int, int]) -> None:
    if len(cells) != count[0]:
        raise DataError(
            f"{path}, line {number}: a line must have {count[0]} columns, as line {count[1]} has; got {len(cells)}; "
            "correct it, or put a blank line between sentences."
        )
    if not all(cells):
        raise DataError(f"{path}, line {number}: a column is empty; correct the line or remove it.")


# ---------------------------------------------------------------------------------------------------------------- rows


def _from_rows(path: Path, named: Mapping[str, str], labelled: bool) -> Iterator[Numbered]:
    """The sentences of a file with one on each line; where there need be no tags, the first says whether there are."""
    bare: bool | None = False if labelled else None
    for number, row in read_rows(path):
        try:
            if not isinstance(row, Mapping):
                raise DataError(f"a line must be an object with words and tags; got {quoted(row)}.")
            words = [_word(word) for word in _listed(row, "words", named, WORD_NAMES)]
            without = not _names(row, "tags", named, TAG_NAMES)
            bare = without if bare is None else bare
            if bare and not without:
                raise DataError("there are tags, and the lines before have none; give tags to all of them, or to none.")
            tags = [] if bare else [_tag(tag) for tag in _listed(row, "tags", named, TAG_NAMES)]
            if not bare and len(words) != len(tags):
                raise DataError(f"there must be one tag for each word; got {len(words)} words and {len(tags)} tags.")
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
        yield _checked(path, words, tags, [number] * len(words))


def _listed(row: Mapping[str, Any], role: str, named: Mapping[str, str], usual: Sequence[str]) -> list[Any]:
    names = _names(row, role, named, usual)
    if len(names) > 1:
        raise DataError(
            f"the {role} may be {' or '.join(names)}; say which, such as columns={{{role!r}: {names[0]!r}}}."
        )
    if not names:
        raise DataError(f"no column of {role}; the columns are {listed(row)}, the usual names {', '.join(usual)}.")
    found = row[names[0]]
    if not isinstance(found, list) or not found:
        raise DataError(f"column {names[0]!r} must be a list, of one or more; got {quoted(found)}.")
    return found


def _names(row: Mapping[str, Any], role: str, named: Mapping[str, str], usual: Sequence[str]) -> list[str]:
    """The columns of a row that may have the role."""
    return [name for name in ([named[role]] if role in named else usual) if name in row]


def _word(word: Any) -> str:
    if not isinstance(word, str) or not word.strip():
        raise DataError(f"a word must be a text that is not empty; got {quoted(word)}.")
    if any("\ud800" <= character <= "\udfff" for character in word):
        raise DataError(f"a word holds half of a character ({quoted(word)}); correct the line or remove it.")
    return word


def _tag(tag: Any) -> str:
    if isinstance(tag, bool) or not isinstance(tag, str | int) or not str(tag).strip():
        raise DataError(f"a tag must be a word or a whole number; got {quoted(tag)}.")
    return str(tag).strip()


def _checked(path: Path, words: list[str], tags: list[str], lines: list[int]) -> Numbered:
    """A sentence, if a tokenizer can take it at once."""
    size = sum(len(word) + 1 for word in words)
    if size > MOST_BYTES:
        raise DataError(
            f"{path}, line {lines[0]}: a sentence of {size:,} characters; at most {MOST_BYTES:,} are read at once, so "
            "put blank lines between sentences."
        )
    return lines[0], words, tags, lines
