"""What is read of a folder: regular files that lie in it. A folder may come from anywhere, and say anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LARGEST = 2**26  # bytes of a JSON file; the largest records of heads have about 2**20


class CheckpointError(ValueError):
    """A folder that cannot be loaded, with the reason in one sentence."""


def own_file(folder: Path, name: str) -> Path | None:
    """The file of that name, or None.

    Raises:
        CheckpointError: it is no regular file, or a link that leads out of the folder.
    """
    path = folder / name
    if not path.exists() and not path.is_symlink():
        return None
    if is_foreign(folder, path):
        raise CheckpointError(f"{path} is a link to a place outside the folder; put the file itself there.")
    if not path.is_file():
        raise CheckpointError(f"{path} is not a file; the folder is damaged.")
    return path


def is_foreign(folder: Path, path: Path) -> bool:
    """Whether the path leads out of the folder.

    A folder in the cache of the Hugging Face hub consists of links to the blobs beside it, and these belong to it.
    """
    root, target = folder.resolve(), path.resolve()
    places = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    return not any(target.is_relative_to(place) for place in places)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    if path.stat().st_size > LARGEST:
        raise CheckpointError(
            f"{path} has {path.stat().st_size:,} bytes, too many for a config; the folder is damaged."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); the folder is damaged.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is not a JSON object; the folder is damaged.")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes JSON as transformers does."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
