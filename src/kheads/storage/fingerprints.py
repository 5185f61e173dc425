"""Whether a file, a folder or a model is still the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

# Above it (4 GiB) files count as the same if their names, sizes and times are: reading them all would take minutes.
LARGE = 4 * 2**30


def of_path(path: str | Path) -> str:
    """A hash of what is in a file, or in all files below a folder."""
    path = Path(path)
    files = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    large = sum(file.stat().st_size for file in files) > LARGE
    found = hashlib.sha256()
    for file in files:
        name = file.relative_to(path).as_posix() if file != path else ""
        found.update(f"{name}\0{_size_and_time(file) if large else _content(file)}\n".encode())
    return found.hexdigest()


@torch.no_grad()
def of_model(model: nn.Module) -> str:
    """A hash of all weights, with their names, types and shapes."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(_bytes(value))
    return found.hexdigest()


def of_numbers(numbers: Any) -> str:
    """A hash of a list of numbers."""
    return hashlib.sha256(repr(list(numbers)).encode()).hexdigest()


def _bytes(value: torch.Tensor) -> Any:
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _content(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size_and_time(file: Path) -> str:
    about = file.stat()
    return f"{about.st_size} {about.st_mtime_ns}"
