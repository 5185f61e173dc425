"""A new folder: written whole or not at all, and never in the place of something else unasked."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_free(directory: str | Path, overwrite: bool = False) -> Path:
    """Raises if something is in the way of a new folder."""
    target = Path(directory)
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{target} is a file; give a folder that does not exist yet.")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise FileExistsError(f"{target} is not empty; give another folder, or pass overwrite=True to replace it.")
    return target


@contextmanager
def new_folder(directory: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Gives a temporary folder that takes the place of `directory` only when everything in it was written."""
    target = check_free(directory, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            target.rename(old / target.name)
            temporary.rename(target)
            shutil.rmtree(old)
        else:
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
