"""Checkpoints that are known to be whole: a seal, written last, lists every file with its size and a hash.

One without a seal was cut off while it was written; one that differs from its seal was damaged later. A run goes on
from the newest whole one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SEAL = "seal.json"
PREFIX, DAMAGED = "checkpoint-", "damaged-"


class CheckpointsError(ValueError):
    """Checkpoints from which a run cannot go on, with the reason in one sentence."""


def seal(folder: Path, facts: Mapping[str, Any]) -> None:
    """Says that a checkpoint is whole, with facts that are needed when a run goes on from it."""
    files = {path.name: _content(path) for path in _files(folder)}
    temporary = folder / f"{SEAL}.tmp"
    temporary.write_text(json.dumps({"files": files, **facts}, default=str), encoding="utf-8")
    temporary.replace(folder / SEAL)


def read_seal(folder: Path) -> dict[str, Any] | None:
    """What the seal says; None for a checkpoint that was cut off."""
    try:
        found = json.loads((folder / SEAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("files"), dict) else None


def fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint, in a few words; None if it is whole."""
    sealed = read_seal(folder)
    if sealed is None:
        return "it was cut off while it was written"
    for name, content in sealed["files"].items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if _content(folder / name) != content:
            return f"{name} is damaged"
    return None


def newest_checkpoint(directory: str | Path) -> str | None:
    """The newest whole checkpoint in a folder."""
    whole = (path for path in in_order(directory) if fault(path) is None)
    return next(map(str, whole), None)


def in_order(directory: str | Path) -> list[Path]:
    """Every checkpoint in a folder, the newest first."""
    found = [path for path in Path(directory).glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=lambda path: -step_of(path))


def step_of(checkpoint: Path) -> int:
    """After how many steps it was made."""
    return int(checkpoint.name.removeprefix(PREFIX))


def choose(directory: str | Path) -> tuple[Path | None, dict[Path, str]]:
    """The newest whole checkpoint, and what is wrong with each one after it.

    With none that is whole a run starts again, unless there was one: what happened to it is for the user to know.
    """
    faults: dict[Path, str] = {}
    for path in in_order(directory):
        found = fault(path)
        if found is None:
            return path, faults
        faults[path] = found
    damaged = [path for path in faults if read_seal(path) is not None]
    if damaged:
        raise CheckpointsError(
            f"No checkpoint in {directory} can be used: in {damaged[0].name} {faults[damaged[0]]}. Bring it back, or "
            "pass overwrite=True to start again."
        )
    return None, faults


def set_aside(checkpoint: Path) -> Path:
    """Renames a checkpoint that cannot be used, so that nothing counts it among the others."""
    name = checkpoint.name.replace(PREFIX, DAMAGED)
    taken = [checkpoint.with_name(f"{name}{'' if not number else f'-{number}'}") for number in range(1000)]
    return checkpoint.rename(next(path for path in taken if not path.exists()))


def rotate(directory: Path, limit: int | None, keep: Iterable[str | Path | None]) -> None:
    """Deletes the oldest checkpoints beyond a limit, but those to keep.

    Args:
        directory: where they are.
        limit: how many may stay; None or 0 is all.
        keep: checkpoints that stay in any case.
    """
    kept = {Path(path).absolute() for path in keep if path is not None}
    found = sorted(in_order(directory), key=lambda path: (path.stat().st_mtime_ns, step_of(path)))
    others = [path for path in found if path.absolute() not in kept]
    surplus = len(found) - max(limit, len(kept)) if limit else 0
    for path in others[: max(surplus, 0)]:
        shutil.rmtree(path, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(SEAL))


def _content(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]
