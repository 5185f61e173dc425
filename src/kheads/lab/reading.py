"""Reading JSON and TOML files that may be damaged, foreign or not there: one sentence, which names the file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_BYTES = 256 * 2**20


def read_json(path: Path, advice: str = "") -> Any:
    """What a JSON file holds.

    Args:
        path: the file.
        advice: what to do if it cannot be read, as the end of a sentence.
    """
    return _read(path, "JSON", json.loads, advice)


def read_toml(path: Path, advice: str = "") -> dict[str, Any]:
    """What a TOML file holds."""
    found: dict[str, Any] = _read(path, "TOML", tomllib.loads, advice)
    return found


def _read(path: Path, kind: str, load: Callable[[str], Any], advice: str) -> Any:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        return load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        end = f"; {advice}" if advice else ""
        raise ValueError(f"{path} cannot be read as {kind} ({_reason(error)}){end}.") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError):
        return error.strerror or "it cannot be opened"
    return str(error).strip().splitlines()[0] or "it is empty"
