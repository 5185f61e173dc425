"""Reads labelled texts from files, and names the file and the line of whatever is wrong with them.

| extension | what a file holds |
|---|---|
| .jsonl, .json, .ndjson | one JSON object on each line |
| .csv | comma-separated, a header, quotes as spreadsheets write them |
| .tsv | tab-separated, a header, no quoting: a quote is a character of the text, as in GLUE's own files |
| .parquet | a table |
| .txt | a text on each line; only for training without labels |

Text files are UTF-8 and may be compressed (.gz). A line, and so a text, has at most `MOST_BYTES`: a tokenizer needs two
hundred times the memory of what it reads at once.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

ROLES = ("text", "text_pair", "label")
PAIR_NAMES = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
)
TEXT_NAMES = ("sentence", "text")
LABEL_NAMES = ("label", "labels", "gold_label", "score")

MOST_BYTES = 2**20
PARQUET_ROWS = 1024
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}(\.0*)?")

Numbered = Iterator[tuple[int, Any]]


class DataError(ValueError):
    """Data that cannot be used, with the file, the line and the reason in one sentence."""


@dataclass(frozen=True)
class Columns:
    """The columns of one file that hold the texts and the label; None for what it does not have."""

    text: str
    text_pair: str | None
    label: str | None


@dataclass(frozen=True)
class Table:
    """The texts and labels of one file, labels as the words that stand there.

    Attributes:
        origin: the file, as errors name it.
        unit: what its rows are called: "line" or "row".
        columns: the columns that were read.
        texts: the text, or the first of two, of each row.
        pairs: the second text of each row; None if the file has one text a row.
        labels: the label of each row, none if the file has no labels; whole numbers without sign, zeros or point that
            say nothing ("1", never "+01.0").
        first_seen: the number of the first row with each label.
    """

    origin: str
    unit: str
    columns: Columns
    texts: list[str]
    pairs: list[str] | None
    labels: list[str]
    first_seen: dict[str, int]

    @property
    def labelled(self) -> bool:
        """Whether the file has labels."""
        return self.columns.label is not None

    def where(self, label: str) -> str:
        """The place of the first row with this label."""
        return f"{self.origin}, {self.unit} {self.first_seen[label]}"


def read_table(path: str | Path, columns: Mapping[str, str] | None = None, labelled: bool = True) -> Table:
    """Reads a file of texts and labels.

    Args:
        path: a file with one of the extensions above.
        columns: which columns hold "text", "text_pair" and "label"; those not named are found by their usual names.
        labelled: whether there must be labels.
    """
    path = Path(path)
    if not labelled and _is_plain(path):
        return tabulate(_text_rows(path), str(path), "line", labelled=False)
    return tabulate(read_rows(path), str(path), unit_of(path), columns, labelled)


def read_rows(path: Path) -> Numbered:
    """The numbered rows of a file with one of the extensions above, not checked yet."""
    kind = format_of(path)
    check_file(path, f" with the extension {_listed_formats()}")
    return _READERS[kind](path)


def unit_of(path: Path) -> str:
    """What the rows of a file are called."""
    return "row" if format_of(path) == ".parquet" else "line"


def check_file(path: Path, expected: str = "") -> None:
    """Raises if there is no such file."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a file.")
    if not path.is_file():
        raise DataError(f"{path} does not exist; give a file{expected}.")


def stem(path: str | Path) -> str:
    """The name of a data file without its extensions: "train" for data/train.jsonl.gz."""
    path = Path(path)
    return path.name.removesuffix("".join(_extensions(path)))


def tabulate(
    rows: Iterable[tuple[int, Any]],
    origin: str,
    unit: str = "row",
    columns: Mapping[str, str] | None = None,
    labelled: bool = True,
) -> Table:
    """Takes texts and labels from numbered rows, after checking every one of them.

    Args:
        rows: pairs of a row's number and a mapping from column names to values.
        origin: where the rows come from, as errors name it.
        unit: what the numbers count: "line" or "row".
        columns: as for `read_table`.
        labelled: as for `read_table`.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{origin} has no rows; give at least one.")
    try:
        chosen = choose_columns(list(_mapping(first[1])), columns, labelled)
    except DataError as error:
        # Where there is a header, it stands there, whichever line the first row has.
        raise DataError(f"{origin}, {unit} 1: {error}") from None
    texts: list[str] = []
    pairs: list[str] = []
    labels: list[str] = []
    first_seen: dict[str, int] = {}
    for number, row in chain([first], rows):
        try:
            row = _mapping(row)
            texts.append(_text(row, chosen.text))
            if chosen.text_pair is not None:
                pairs.append(_text(row, chosen.text_pair))
            if chosen.label is not None:
                labels.append(_label(row, chosen.label))
                first_seen.setdefault(labels[-1], number)
            elif _has_label(row, (columns or {}).get("label")):
                raise DataError("there is a label, and the first row has none; label all rows or none.")
        except DataError as error:
            raise DataError(f"{origin}, {unit} {number}: {error}") from None
    return Table(origin, unit, chosen, texts, pairs if chosen.text_pair is not None else None, labels, first_seen)


def choose_columns(names: Sequence[str], columns: Mapping[str, str] | None = None, labelled: bool = True) -> Columns:
    """Finds the columns of the texts and the label among `names`, whatever their case.

    Args:
        names: the columns of a file.
        columns: the user's choice, as for `read_table`. If it names "text" and no "text_pair", there is one text a row.
        labelled: whether there must be a label.
    """
    given = dict(columns or {})
    for role in given:
        if role not in ROLES:
            raise ValueError(f"`columns` may name {listed(ROLES)}; got {role!r}.")
    if "text_pair" in given and "text" not in given:
        raise ValueError("`columns` names 'text_pair' but not 'text'; name both.")
    found = {name.lower(): name for name in reversed(names)} | {name: name for name in names}
    bare = not labelled and not _has_label(found, given.get("label"))
    for role, name in given.items():
        if name not in found and name.lower() not in found and not (bare and role == "label"):
            raise DataError(f"no column {name!r} for `{role}`; the columns are {listed(names)}, name one of them.")
        given[role] = found.get(name, found.get(name.lower(), name))
    text, pair = (given["text"], given.get("text_pair")) if "text" in given else _usual_texts(names, found)
    label = None if bare else given["label"] if "label" in given else _usual_label(names, found)
    return Columns(text, pair, label)


def _has_label(names: Container[str], named: str | None) -> bool:
    """Whether the column that the user named is there; one of another name would hold something else."""
    return any(name in names for name in (LABEL_NAMES if named is None else (named, named.lower())))


def _usual_texts(names: Sequence[str], found: Mapping[str, str]) -> tuple[str, str | None]:
    matches: list[tuple[str, ...]] = [pair for pair in PAIR_NAMES if all(name in found for name in pair)]
    matches = matches or [(name,) for name in TEXT_NAMES if name in found]
    if not matches:
        usual = ", ".join([*map("/".join, PAIR_NAMES), *TEXT_NAMES])
        raise DataError(
            f"no text column; the columns are {listed(names)}, the usual names {usual}; name yours, such as "
            f"columns={{'text': {names[0]!r}}}."
        )
    if len(matches) > 1:
        raise DataError(
            f"the texts may be {' or '.join(map('/'.join, matches))}; say which, such as "
            f"columns={dict(zip(ROLES, matches[0], strict=False))}."
        )
    texts = [found[name] for name in matches[0]]
    return texts[0], texts[1] if len(texts) > 1 else None


def _usual_label(names: Sequence[str], found: Mapping[str, str]) -> str:
    for name in LABEL_NAMES:
        if name in found:
            return found[name]
    raise DataError(
        f"no label column; the columns are {listed(names)}, the usual names {', '.join(LABEL_NAMES)}; "
        f"name yours, such as columns={{'label': {names[-1]!r}}}."
    )


def _mapping(row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise DataError(f"a row must map column names to values; got {quoted(row)}.")
    return row


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        found = "is missing" if column not in row else f"must be a text; got {quoted(value)}"
        raise DataError(f"column {column!r} {found}; correct the row or remove it.")
    if not value or value.isspace():
        raise DataError(f"column {column!r} is empty; give a text or remove the row.")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        # JSON can spell half of a surrogate pair, which no tokenizer takes.
        raise DataError(f"column {column!r} holds half of a character ({quoted(value)}); correct the row or remove it.")
    return value


def _label(row: Mapping[str, Any], column: str) -> str:
    """The label as a word; whole numbers look the same whether they were 1, 1.0, "1" or "01"."""
    value = row.get(column)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value.strip():
        word = value.strip()
        return str(int(word.partition(".")[0])) if _WHOLE_NUMBER.fullmatch(word) else word
    if value is None or value == "" or isinstance(value, str):
        raise DataError(f"column {column!r} has no label; give one, or -1 to leave the row out.")
    raise DataError(f"column {column!r} must hold a word or a number; got {quoted(value)}.")


def _text_rows(path: Path) -> Numbered:
    check_file(path)
    for number, line in read_lines(path):
        if line.strip():
            yield number, {"text": line.rstrip("\r\n")}


def _json_rows(path: Path) -> Numbered:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            reason = f"{error.msg} at column {error.colno}"
            raise DataError(
                f"{path}, line {number}: broken JSON ({reason}); write one whole object on each line."
            ) from None
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
        except (ValueError, RecursionError):
            why = "numbers that are too long, or too much inside each other"
            raise DataError(f"{path}, line {number}: JSON that cannot be read ({why}).") from None
        yield number, row


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in which no name may stand twice: one of the values would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two values are called {twice!r}; rename one.")
    return found


def _csv_rows(path: Path) -> Numbered:
    reader = csv.reader((line for _, line in read_lines(path)), strict=True)
    yield from _under_header(path, _csv_cells(path, reader))


def _csv_cells(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Cells with the number of their first line; a quoted cell may go over several."""
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{path}, line {number}: broken csv ({error}); check the quotes.") from None
        if cells:
            yield number, cells


def _tsv_rows(path: Path) -> Numbered:
    lines = ((number, line.rstrip("\r\n")) for number, line in read_lines(path))
    yield from _under_header(path, ((number, line.split("\t")) for number, line in lines if line))


def _under_header(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Numbered:
    number, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    for name in header:
        if name and header.count(name) > 1:
            raise DataError(f"{path}, line {number}: two columns are called {name!r}; rename one.")
    for number, cells in rows:
        if len(cells) != len(header):
            raise DataError(
                f"{path}, line {number}: a row must have {len(header)} cells, as the header has; got {len(cells)}."
            )
        yield number, dict(zip(header, cells, strict=True))


def _parquet_rows(path: Path) -> Numbered:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            flat = [field.name for field in file.schema_arrow if not pyarrow.types.is_nested(field.type)]
            for batch in file.iter_batches(columns=flat, batch_size=PARQUET_ROWS):
                _check_cells(path, batch, number)
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}, row {number + 1}: not a whole parquet file ({gist(error)}).") from error


def _check_cells(path: Path, batch: Any, number: int) -> None:
    """Refuses a text that is too long while it is still compressed: a small file can hold it thousands of times."""
    import pyarrow
    from pyarrow import compute

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        column = column.dictionary if pyarrow.types.is_dictionary(column.type) else column
        if any(is_text(column.type) for is_text in _text_types(pyarrow.types)):
            longest = compute.max(compute.binary_length(column)).as_py() or 0
            if longest > MOST_BYTES:
                raise DataError(f"{path}, after row {number}: column {name!r} holds {too_long(longest)}")


def _text_types(types: Any) -> tuple[Callable[[Any], bool], ...]:
    return types.is_string, types.is_large_string, types.is_binary, types.is_large_binary


def too_long(size: int) -> str:
    """What is said of a text of that many bytes, or more."""
    return f"a text of {size:,} bytes or more; at most {MOST_BYTES:,} are read, so cut it or split it."


def limited_lines(stream: Any, origin: str) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a stream of bytes; one that is too long is refused before it is read."""
    number = 0
    while raw := stream.readline(MOST_BYTES + 1):
        number += 1
        if len(raw) > MOST_BYTES:
            raise DataError(f"{origin}, line {number}: {too_long(len(raw))}")
        yield number, raw


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a UTF-8 file, compressed or not, with their line ends."""
    number = 0
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            for number, raw in limited_lines(file, str(path)):
                line = raw.decode("utf-8")
                # Some programs begin a file with a byte order mark.
                yield number, line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"{path}, line {number}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}, line {number + 1}: not a whole gzip file ({error}); compress it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}).") from error


_READERS: dict[str, Callable[[Path], Numbered]] = {
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".ndjson": _json_rows,
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".parquet": _parquet_rows,
}


def _extensions(path: Path) -> list[str]:
    """The extension that says the format, and .gz if it follows."""
    return path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]


def _is_plain(path: Path) -> bool:
    """Whether the extension says that the file is plain text."""
    return [extension.lower() for extension in _extensions(path)] in ([".txt"], [".txt", ".gz"])


def holds_rows(path: Path) -> bool:
    """Whether the extension says that the file is a table of texts, not plain text."""
    return any(extension.lower() in _READERS for extension in _extensions(path))


def format_of(path: Path) -> str:
    """The extension that says the format, without .gz; raises if it is none of the table's."""
    extensions = [extension.lower() for extension in _extensions(path)]
    if not extensions or extensions[0] not in _READERS or extensions == [".parquet", ".gz"]:
        raise DataError(f"{path} must have the extension {_listed_formats()}; got {''.join(extensions) or 'none'!r}.")
    return extensions[0]


def _listed_formats() -> str:
    return f"{', '.join(_READERS)} (or .gz after a text one)"


def listed(words: Iterable[str], limit: int = 8) -> str:
    """Words in quotes for an error, the first few of them."""
    words = list(words)
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return (", ".join(map(quoted, words[:limit])) or "none") + more


def quoted(value: Any, limit: int = 60) -> str:
    """A value as Python writes it, in one line and cut where it gets long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def gist(error: Exception) -> str:
    """The first sentence of another library's error, to stand inside one of ours."""
    return re.split(r"\.\s|\n", str(error).strip())[0].rstrip(".") or type(error).__name__
