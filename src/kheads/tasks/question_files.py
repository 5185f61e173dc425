"""Reads questions, contexts and answers from files, and names the place of whatever is wrong with them.

| extension | what a file holds |
|---|---|
| .json | what SQuAD's files hold, versions 1 and 2; or rows, as below |
| .jsonl, .ndjson | one JSON object on each line: `context`, `question` and `answers`, or `answer` and `answer_start` |

`answers` are a list of objects with `text` and `answer_start`, or one object with a list of each; an empty list says
that the context does not answer. In training data they may be missing altogether. Files are UTF-8 and may be compressed
(.gz).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kheads.tasks.files import MOST_BYTES, DataError, check_file, format_of, quoted, read_rows

FORMATS = (".json", ".jsonl", ".ndjson")
MOST_OF_A_FILE = 2**28  # SQuAD has a sixth of that; a small compressed file can hold anything
SQUAD = "an object with `data`, a list of articles, in which `paragraphs` have a `context` and `qas`"


@dataclass(frozen=True)
class Question:
    """A question and where its answers are.

    Attributes:
        place: where it stands, as errors name it.
        question: the question.
        context: the text with the answer.
        answers: the answers, each of which is right; none if the context does not answer.
        starts: the first character of each in the context.
        labelled: whether anybody says what the answers are.
    """

    place: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    labelled: bool = True


def read_questions(path: str | Path, labelled: bool = True) -> list[Question]:
    """Reads a file of questions.

    Args:
        path: the file.
        labelled: whether there must be answers.
    """
    path = Path(path)
    if not any(extension.lower() in FORMATS for extension in path.suffixes[-2:]):
        raise DataError(f"{path} must have the extension {', '.join(FORMATS)} (or .gz after it).")
    kind = format_of(path)
    check_file(path)
    found = list(_from_document(path) if kind == ".json" else _from_rows(path))
    if not found:
        raise DataError(f"{path} has no questions; give a file with some.")
    if labelled or any(question.labelled for question in found):
        _check_answers(found)
    return found


def _check_answers(questions: Sequence[Question]) -> None:
    for question in questions:
        if not question.labelled:
            raise DataError(
                f"{question.place}: no `answers`; give a list of `text` and `answer_start`, empty where there is no "
                "answer."
            )


def _from_rows(path: Path) -> Iterator[Question]:
    for number, row in read_rows(path):
        place = f"{path}, line {number}"
        with_context = _mapping(row, place, "a line")
        yield _question(place, with_context, _text(with_context, "context", place))


def _from_document(path: Path) -> Iterator[Question]:
    """The questions of a file that is one JSON object; or else has one on each line."""
    text = _whole(path)
    if not text.strip():
        raise DataError(f"{path} is empty; give a file with questions.")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # more than one object
            yield from _from_rows(path)
            return
        raise DataError(f"{path}, line {error.lineno}: broken JSON ({error.msg} at column {error.colno}).") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: JSON that cannot be read (too much inside each other, or too long).") from None
    if isinstance(found, dict) and "data" not in found and "context" in found:
        yield from _from_rows(path)
        return
    if not isinstance(found, dict) or not isinstance(found.get("data"), list):
        raise DataError(f"{path} is not as SQuAD's files are: {SQUAD}; got {quoted(found)}.")
    yield from _squad(path, found["data"])


def _squad(path: Path, articles: Sequence[Any]) -> Iterator[Question]:
    for article, paragraphs in _inner(articles, "paragraphs", str(path), "article"):
        for place, content in _numbered(paragraphs, article, "paragraph"):
            paragraph = _mapping(content, place, "it")
            context = _text(paragraph, "context", place)
            for where, row in _numbered(_list(paragraph, "qas", place), place, "question"):
                yield _question(where, _mapping(row, where, "it"), context)


def _inner(rows: Sequence[Any], name: str, origin: str, what: str) -> Iterator[tuple[str, list[Any]]]:
    for place, row in _numbered(rows, origin, what):
        yield place, _list(_mapping(row, place, "it"), name, place)


def _numbered(rows: Sequence[Any], origin: str, what: str) -> Iterator[tuple[str, Any]]:
    return ((f"{origin}, {what} {number}", row) for number, row in enumerate(rows, 1))


def _question(place: str, row: Mapping[str, Any], context: str) -> Question:
    question = _text(row, "question", place).strip()
    if not {"answers", "answer", "is_impossible"} & row.keys():
        return Question(place, question, context, (), (), labelled=False)
    pairs = [_answer(place, context, *pair) for pair in _answers(row, place)]
    if pairs and row.get("is_impossible") is True:
        raise DataError(f"{place}: it has an answer, and `is_impossible` says that it has none; correct one of them.")
    return Question(place, question, context, tuple(text for text, _ in pairs), tuple(start for _, start in pairs))


def _answers(row: Mapping[str, Any], place: str) -> list[tuple[Any, Any]]:
    """Pairs of a text and its start, from any of the three ways to write them."""
    if "answers" not in row and "answer" in row:
        return [] if row["answer"] in ("", None) else [(row["answer"], row.get("answer_start", row.get("start")))]
    found = row.get("answers", [] if row.get("is_impossible") is True else None)
    if isinstance(found, Mapping):
        texts, starts = _list(found, "text", place), _list(found, "answer_start", place)
        if len(texts) != len(starts):
            raise DataError(f"{place}: {len(texts)} texts of answers have {len(starts)} starts; give one for each.")
        return list(zip(texts, starts, strict=True))
    if not isinstance(found, list):
        raise DataError(
            f"{place}: `answers` that are {quoted(found)}; give a list of `text` and `answer_start`, empty where "
            "there is no answer."
        )
    answers = [_mapping(answer, place, "an answer") for answer in found]
    return [(answer.get("text"), answer.get("answer_start")) for answer in answers]


def _answer(place: str, context: str, text: Any, start: Any) -> tuple[str, int]:
    """An answer, if it stands where it is said to."""
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{place}: the text of an answer must not be empty; got {quoted(text)}.")
    if isinstance(start, bool) or not isinstance(start, int):
        raise DataError(f"{place}: `answer_start` must be the place of its first character; got {quoted(start)}.")
    if not 0 <= start <= len(context) - len(text):
        raise DataError(
            f"{place}: the answer {quoted(text)} at {start} is outside of the context, which has {len(context)} "
            "characters; correct `answer_start`."
        )
    there = context[start : start + len(text)]
    if there != text:
        raise DataError(
            f"{place}: at {start} the context has {quoted(there)}, not {quoted(text)}; correct one of them."
        )
    return text, start


def _text(row: Mapping[str, Any], name: str, place: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        given = f"no `{name}`" if name not in row else f"a `{name}` that is {quoted(value)}"
        raise DataError(f"{place}: {given}; give a text that is not empty.")
    if len(value) > MOST_BYTES:
        raise DataError(
            f"{place}: a `{name}` of {len(value):,} characters; at most {MOST_BYTES:,} are read, so cut it."
        )
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(f"{place}: `{name}` holds half of a character; correct it.")
    return value


def _list(row: Mapping[str, Any], name: str, place: str) -> list[Any]:
    found = row.get(name)
    if not isinstance(found, list):
        given = f"no `{name}`" if name not in row else f"`{name}` that is {quoted(found)}"
        raise DataError(f"{place}: {given}; it must be a list.")
    return found


def _mapping(row: Any, place: str, what: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise DataError(f"{place}: {what} must be an object; got {quoted(row)}.")
    return row


def _whole(path: Path) -> str:
    """The text of a file, which is one line, often."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            raw = file.read(MOST_OF_A_FILE + 1)
        if len(raw) > MOST_OF_A_FILE:
            raise DataError(f"{path} has more than {MOST_OF_A_FILE:,} bytes; give .jsonl, which is read line by line.")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        byte = error.object[error.start]
        raise DataError(f"{path}, line {line}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file ({error}); compress it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}).") from error
