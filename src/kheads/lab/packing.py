"""A sweep's results as one compressed file, which is read wherever their folder is.

The file is gzip. Each line in it is a JSON object: the first says what the file is, every other one holds a JSON file
of the folder with its path. The same results give the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kheads.lab.reading import read_json

FORMAT, VERSION = "kheads results", 1
SUFFIX = ".jsonl.gz"
MAGIC = b"\x1f\x8b"
# What a results folder is made of; models, checkpoints and logs are not packed.
PATTERNS = ("sweep.json", "efficiency*.json", "runs/*.json")
# Unpacked, about twenty thousand runs. A small file can claim to be endless; reading stops here.
MOST_BYTES = 256 * 2**20
AGAIN = "delete it and run it again"

# The JSON files of a results folder by their path in it.
Files = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Packed:
    """What was packed.

    Attributes:
        path: the file.
        runs: how many runs are in it.
        failed: how many of these failed.
        size: its bytes.
        loose: the bytes of the files that went into it.
    """

    path: Path
    runs: int
    failed: int
    size: int
    loose: int


def pack(folder: Path, target: Path | None = None, overwrite: bool = False) -> Packed:
    """Packs a results folder, which stays as it is; the file is there whole and checked, or not at all.

    Args:
        folder: what `kheads sweep` wrote.
        target: the file to write; the folder's name with `.jsonl.gz` if not given.
        overwrite: replace a file that is there.
    """
    target = target or folder.with_name(folder.resolve().name + SUFFIX)
    _check_folder(folder)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; give --overwrite, or another file with -o.")
    if target.exists() and not is_packed(target):
        raise FileExistsError(f"{target} was not packed by kheads and is not replaced; give another file with -o.")
    files = gather(folder)
    runs = [content for path, content in files.items() if path.startswith("runs/")]
    size = _write(files, target)
    failed = sum(_state(content) == "failed" for content in runs)
    return Packed(target, len(runs), failed, size, sum((folder / path).stat().st_size for path in files))


def load(path: Path) -> Files:
    """The JSON files of a results folder, or of the file it was packed into."""
    return unpack(path) if path.is_file() else gather(path)


def gather(folder: Path) -> Files:
    """The JSON files of a results folder, in the order in which they are packed."""
    found = [path for pattern in PATTERNS for path in sorted(folder.glob(pattern))]
    return {path.relative_to(folder).as_posix(): load_json(path) for path in found}


def unpack(path: Path) -> Files:
    """The JSON files in a packed one. Nothing is written, and no more than `MOST_BYTES` are read."""
    try:
        header, *lines = [json.loads(line) for line in _lines(path)] or [None]
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} cannot be read as packed results ({error}); give a file that `kheads pack` wrote."
        ) from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path} holds no packed results; give a file that `kheads pack` wrote.")
    if header.get("version") != VERSION:
        raise ValueError(f"{path} was packed by another version of kheads; pack the folder again with this one.")
    files = {line["path"]: line["content"] for line in lines if _is_entry(line)}
    if not len(files) == len(lines) == header.get("files"):
        raise ValueError(f"{path} does not hold the files that it says it does; pack the folder again.")
    return files


def is_packed(path: Path) -> bool:
    """Whether a file is compressed as packed results are."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def load_json(path: Path) -> dict[str, Any]:
    """One JSON object from a file."""
    found = read_json(path, AGAIN)
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold one JSON object and holds something else; {AGAIN}.")
    return found


def _check_folder(folder: Path) -> None:
    if folder.is_file():
        raise ValueError(f"{folder} is a file; give the folder of a sweep.")
    if not any((folder / "runs").glob("*.json")):
        raise ValueError(f"{folder} is not the results folder of a sweep: it has no runs/*.json.")


def _write(files: Files, target: Path) -> int:
    """Writes beside the place, reads that back, and renames it."""
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        temporary.write_bytes(_compressed(files))
        if _text(unpack(temporary)) != _text(files):
            raise ValueError(f"{target} could not be read back as it was written; nothing was changed.")
        size = temporary.stat().st_size
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def _compressed(files: Files) -> bytes:
    text, out = _text(files).encode(), io.BytesIO()
    if len(text) > MOST_BYTES:
        raise ValueError(f"The results are {len(text):,} bytes; a packed file may hold {MOST_BYTES:,}.")
    with gzip.GzipFile("", "wb", 9, out, mtime=0) as stream:  # no name and no time, so equal results are equal bytes
        stream.write(text)
    return out.getvalue()


def _text(files: Files) -> str:
    header = {"format": FORMAT, "version": VERSION, "files": len(files)}
    entries = [{"path": path, "content": content} for path, content in files.items()]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (header, *entries))


def _lines(path: Path) -> Iterator[bytes]:
    left = MOST_BYTES
    with gzip.open(path, "rb") as stream:
        while line := stream.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise ValueError(f"more than {MOST_BYTES:,} bytes when unpacked")
            yield line


def _is_entry(line: Any) -> bool:
    return isinstance(line, dict) and isinstance(line.get("path"), str) and isinstance(line.get("content"), dict)


def _state(record: dict[str, Any]) -> Any:
    about = record.get("run")
    return about.get("state") if isinstance(about, dict) else None
