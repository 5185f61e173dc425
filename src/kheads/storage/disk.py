"""What can go wrong with a disk, in sentences."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What to do about an error of the operating system.
REMEDIES = {
    errno.ENOSPC: "free some space, or give a place on another disk",
    errno.EDQUOT: "free some of your quota, or give a place on another disk",
    errno.EFBIG: "raise the limit on the size of files, or give a place on another disk",
    errno.EACCES: "give a place that you may use",
    errno.EPERM: "give a place that you may use",
    errno.EROFS: "give a place that can be written",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOTDIR: "a part of the path is a file; give another path",
    errno.EISDIR: "give a file",
    errno.ENOENT: "check the path",
    errno.ELOOP: "the links on the path lead in a circle; give another path",
    errno.EMFILE: "raise the number of open files (ulimit -n)",
    errno.EBUSY: "close what uses it, or give another place",
    errno.EXDEV: "give a folder on one disk, not a mount point",
}
_IN_WORDS = re.compile(r"\(os error (\d+)\)")  # how safetensors reports them
_TORCH = ("PytorchStreamWriter", "inline_container", "file write failed")


class DiskError(OSError):
    """Something that could not be read or written, with the reason in one sentence."""


def explain(error: OSError, path: str | Path | None = None) -> str:
    """What went wrong with which file, and what to do about it; a sentence of our own stays as it is."""
    if error.errno is None:
        return str(error) or type(error).__name__
    named = path if path is not None else error.filename
    where = "" if named is None else f"{_short(os.fsdecode(named))}: "
    reason = os.strerror(error.errno)
    return f"{where}{reason[:1].lower() + reason[1:]}; {REMEDIES.get(error.errno, 'check the disk')}."


@contextmanager
def told(path: str | Path) -> Iterator[None]:
    """Turns what the system, safetensors or torch raise over a file into one sentence about `path`."""
    try:
        yield
    except Exception as error:
        found = as_os_error(error)
        if found is None or found.errno is None:
            raise
        raise DiskError(explain(found, path)) from error


def as_os_error(error: Exception) -> OSError | None:
    """The operating system's error behind another one; None if there is none."""
    if isinstance(error, DiskError) and isinstance(error.__cause__, Exception):
        return as_os_error(error.__cause__)  # told once more, of the place that the user named
    if isinstance(error, OSError):
        return error
    if code := _IN_WORDS.search(str(error)):
        return OSError(int(code[1]), os.strerror(int(code[1])))
    if isinstance(error, RuntimeError) and any(word in str(error) for word in _TORCH):
        return OSError(errno.EIO, os.strerror(errno.EIO))  # torch does not say which
    return None


def check_room(folder: Path, needed: int) -> None:
    """Raises if a disk has less free space than will be needed at least."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    with told(folder):
        free = shutil.disk_usage(place).free
    if free < needed:
        raise DiskError(
            f"{folder}: {free / 1e6:,.1f} MB are free, and model and checkpoints need at least {needed / 1e6:,.1f} MB; "
            f"{REMEDIES[errno.ENOSPC]}."
        )


def _short(path: str) -> str:
    """A path that is no longer than a sentence."""
    return path if len(path) <= 120 else f"{path[:60]}...{path[-40:]}"
