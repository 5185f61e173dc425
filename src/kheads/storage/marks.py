"""The mark on what kheads made. Nothing without it is ever replaced or deleted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "kheads.json"
MADE_BY = "kheads"
# What desktops put into a folder by themselves.
BY_THE_WAY = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})


def mark(folder: Path, **facts: Any) -> None:
    """Marks a folder as made by kheads, with a list of everything that is in it now."""
    files = sorted(name for name in _entries(folder) if name != MARK)
    text = json.dumps({"made_by": MADE_BY, "files": files, **facts}, indent=1) + "\n"
    temporary = folder / f"{MARK}.tmp"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / MARK)


def read_mark(folder: Path) -> dict[str, Any] | None:
    """What the mark says; None where there is none."""
    try:
        found = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("made_by") == MADE_BY else None


def added(folder: Path) -> str | None:
    """Something in a marked folder that was not there when it was made."""
    made = read_mark(folder) or {}
    known = {MARK, *made.get("files", ())}
    return next((name for name in _entries(folder) if name not in known and Path(name).name not in BY_THE_WAY), None)


def _entries(folder: Path) -> Iterator[str]:
    """Every file below a folder; links are not followed."""
    for root, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in (*files, *links):
            yield (Path(root) / name).relative_to(folder).as_posix()
