"""Parallel text: two files line by line, two columns of one file, or a data set of the hub; and its cleaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from kheads.tasks.files import DataError, check_file, format_of, gist, listed, quoted, read_lines, read_rows, unit_of

ROLES = ("source", "target")
COLUMN_NAMES = (("source", "target"), ("src", "tgt"), ("de", "en"))
NESTED = "translation"  # the hub's column that holds a mapping from languages to texts


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs, and where each of them stands.

    Attributes:
        origins: the files of the two sides, as errors name them; one name twice where one file holds both.
        sources: the sentences to translate.
        targets: their translations.
        numbers: the line or row of each pair.
        unit: what the numbers count.
    """

    origins: tuple[str, str]
    sources: list[str]
    targets: list[str]
    numbers: list[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, places: Iterable[int]) -> Pairs:
        """The pairs at these places."""
        places = list(places)
        sources, targets = ([side[place] for place in places] for side in (self.sources, self.targets))
        return Pairs(self.origins, sources, targets, [self.numbers[place] for place in places], self.unit)

    def empty_side(self, place: int) -> str | None:
        """Where an empty side of a pair stands; None if both have words."""
        for origin, text in zip(self.origins, (self.sources[place], self.targets[place]), strict=True):
            if not text:
                return f"{origin}, {self.unit} {self.numbers[place]}"
        return None

    def check_complete(self) -> Pairs:
        """Raises if a side of a pair is empty: an evaluation set has to stay as it is."""
        for place in range(len(self)):
            if where := self.empty_side(place):
                raise DataError(f"{where}: the side is empty; give a sentence or remove the pair from both sides.")
        return self


@dataclass(frozen=True)
class Cleaning:
    """Which training pairs stay. Words are what white space separates, so tokenised text counts as in Moses.

    Attributes:
        shortest: the least words on each side.
        longest: the most words on each side.
        ratio: the most words of the longer side for each word of the shorter one.
    """

    shortest: int = 1
    longest: int = 175
    ratio: float = 1.5

    def __call__(self, pairs: Pairs) -> tuple[Pairs, tuple[str, ...]]:
        """Returns the pairs that stay, and a sentence about those that do not."""
        counts = dict.fromkeys(("empty", "short", "long", "uneven"), 0)
        stay, first_empty = [], None
        for place in range(len(pairs)):
            reason = self.reason(pairs.sources[place], pairs.targets[place])
            if reason is None:
                stay.append(place)
                continue
            counts[reason] += 1
            first_empty = first_empty or pairs.empty_side(place)
        if not stay:
            raise DataError(f"No pair of {pairs.origins[0]} and {pairs.origins[1]} is left after cleaning.")
        return pairs.select(stay), self._notes(len(pairs), counts, first_empty)

    def reason(self, source: str, target: str) -> str | None:
        """Why a pair is left out; None if it stays."""
        short, long = sorted((len(source.split()), len(target.split())))
        if short == 0:
            return "empty"
        if short < self.shortest:
            return "short"
        if long > self.longest:
            return "long"
        return "uneven" if long > self.ratio * short else None

    def _notes(self, total: int, counts: Mapping[str, int], first_empty: str | None) -> tuple[str, ...]:
        words = {
            "empty": f"with an empty side (the first: {first_empty})",
            "short": f"shorter than {self.shortest} words",
            "long": f"longer than {self.longest} words",
            "uneven": f"with sides longer than {self.ratio:g} to 1",
        }
        parts = [f"{counts[reason]:,} {text}" for reason, text in words.items() if counts[reason]]
        out = sum(counts.values())
        return (f"train: {out:,} of {total:,} pairs were left out: {', '.join(parts)}.",) if out else ()


def read_parallel(source: str | Path, target: str | Path) -> Pairs:
    """Reads two UTF-8 files, also .gz, in which each line translates the same line of the other."""
    paths = Path(source), Path(target)
    for path in paths:
        check_file(path)
    sides: tuple[list[str], list[str]] = [], []
    number = 0
    for one, other in zip_longest(*map(read_lines, paths)):
        number += 1
        if one is None or other is None:
            shorter, longer = paths if one is None else paths[::-1]
            raise DataError(
                f"{longer}, line {number}: {shorter} has only {number - 1} lines; both files must have the same number."
            )
        for side, (_, line) in zip(sides, (one, other), strict=True):
            side.append(one_line(line))
    if not number:
        raise DataError(f"{paths[0]} and {paths[1]} have no lines; give at least one pair.")
    return Pairs((str(source), str(target)), *sides, list(range(1, number + 1)))


def read_pairs(path: str | Path, columns: Mapping[str, str] | None = None) -> Pairs:
    """Reads pairs from one file: jsonl, csv, tsv or parquet, the text ones also .gz.

    A tsv file may do without a header: then each line is a source, a tab and a target.

    Args:
        path: the file.
        columns: which columns hold "source" and "target"; otherwise they have one of the pairs of usual names.
    """
    path = Path(path)
    if format_of(path) == ".tsv" and not columns and not _has_header(path):
        return _from_rows(_plain_tsv(path), str(path), "line", {"source": "source", "target": "target"})
    return _from_rows(read_rows(path), str(path), unit_of(path), columns)


def read_hub(name: str, columns: Mapping[str, str] | None = None) -> dict[str, Pairs]:
    """Reads the splits of a data set of the hub, or a folder that `datasets` reads, given as NAME or NAME:CONFIG."""
    import datasets  # takes a second; pairs in files do without

    place, _, config = name.partition(":")
    try:
        splits = datasets.load_dataset(place, config or None)
    # What can go wrong on the way to the hub has no common class; the way out is the same.
    except Exception as error:
        raise DataError(
            f"The data set {name} could not be loaded ({gist(error)}); go online, or give local files: --train-source "
            "FILE --train-target FILE."
        ) from error
    return {
        str(split): _from_rows(enumerate(rows, 1), f"{name} ({split})", "row", columns)
        for split, rows in splits.items()
    }


def one_line(text: str) -> str:
    """The text with single spaces and nothing around it, as the tokenizer gives it back."""
    return " ".join(text.split())


def _from_rows(
    rows: Iterable[tuple[int, Any]], origin: str, unit: str, columns: Mapping[str, str] | None = None
) -> Pairs:
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{origin} has no rows; give at least one pair.")
    found = Pairs((origin, origin), [], [], [], unit)
    chosen: tuple[str, str] | None = None
    for number, row in chain([first], rows):
        try:
            row = _flat(row)
            chosen = chosen or _choose(list(row), columns)
            for name, side in zip(chosen, (found.sources, found.targets), strict=True):
                side.append(_sentence(row, name))
        except DataError as error:
            raise DataError(f"{origin}, {unit} {number}: {error}") from None
        found.numbers.append(number)
    return found


def _flat(row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise DataError(f"a row must map column names to values; got {quoted(row)}.")
    nested = row.get(NESTED)
    return nested if isinstance(nested, Mapping) else row


def _choose(names: Sequence[str], columns: Mapping[str, str] | None) -> tuple[str, str]:
    if columns:
        if sorted(columns) != sorted(ROLES):
            raise DataError(f"name both columns, source=A and target=B; got {listed(columns)}.")
        for name in columns.values():
            if name not in names:
                raise DataError(f"no column {name!r}; the columns are {listed(names)}, name two of them.")
        return columns["source"], columns["target"]
    for pair in COLUMN_NAMES:
        if set(pair) <= set(names):
            return pair
    usual = ", ".join("/".join(pair) for pair in COLUMN_NAMES)
    raise DataError(
        f"which columns are the source and the target? They are {listed(names)}, the usual names {usual}; name yours "
        "with source=A and target=B."
    )


def _sentence(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise DataError(f"column {column!r} must be a text; got {quoted(value)}.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(f"column {column!r} holds half of a character ({quoted(value)}); correct the row or remove it.")
    return one_line(value)


def _has_header(path: Path) -> bool:
    check_file(path)
    first = next(read_lines(path), (1, ""))[1].rstrip("\r\n").split("\t")
    return any(set(pair) <= {cell.strip() for cell in first} for pair in COLUMN_NAMES)


def _plain_tsv(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in read_lines(path):
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) != 2:
            raise DataError(
                f"{path}, line {number}: a line must be a source, a tab and a target; got {len(cells)} cells."
            )
        yield number, {"source": cells[0], "target": cells[1]}
