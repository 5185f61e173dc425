"""A new folder: written whole or not at all, and never in the place of something that kheads did not make.

It is made in a workshop, a marked folder beside its place, which holds during the last step both the new folder and the
one it replaces. A process that dies leaves the workshop behind; the next one to write to the same place finds it there,
finishes what was begun, and clears it away.

    .out.kheads-RANDOM/new      what is being written
    .out.kheads-RANDOM/old      what it replaces, for the moment between two renames
    .out.lock                   held by the one process that may write to `out`
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from kheads.storage.disk import told
from kheads.storage.marks import MARK, added, mark, read_mark

NEW, OLD = "new", "old"
LONGEST = ".{}.run.kheads-12345678"  # of the names that are made from a folder's
_WORKSHOP = r"\.{}\.kheads-\w{{8}}"

Inputs = Iterable[str | Path]


class BusyError(ValueError):
    """Another process writes to the same place."""


class NotOursError(FileExistsError):
    """Something that kheads did not make is in the way."""


def check_free(directory: str | Path, overwrite: bool = False, inputs: Inputs = ()) -> Path:
    """Raises if a folder cannot be made, or something is in its way; returns its place, links followed.

    Args:
        directory: the folder to make.
        overwrite: whether a folder that kheads made may be replaced.
        inputs: files and folders that are read; the folder must not be or hold one of them.
    """
    with told(directory):
        target = _place(Path(directory))
        if not target.exists():
            return target
        if not target.is_dir():
            raise FileExistsError(f"{directory} is a file; give a folder that does not exist yet.")
        _check_unneeded(directory, target, inputs)
        if any(target.iterdir()):
            _check_replaceable(directory, target, overwrite)
    return target


@contextmanager
def new_folder(directory: str | Path, overwrite: bool = False, inputs: Inputs = ()) -> Iterator[Path]:
    """Gives a temporary folder that takes the place of `directory` only when everything in it was written.

    Args:
        directory: the folder to make.
        overwrite: replace one that kheads made.
        inputs: what is read, and must therefore not be replaced.
    """
    inputs = tuple(inputs)
    target = check_free(directory, overwrite, inputs)
    with alone(target):
        check_free(directory, overwrite, inputs)  # a replacement that had been cut off may be complete now
        with told(directory), _workshop(target) as workshop:
            new = workshop / NEW
            new.mkdir()
            yield new
            mark(new)
            _put(new, target, workshop / OLD)


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Lets no other process write to a place, and clears away what dead ones left there. May be nested."""
    made = _make_parents(target)
    try:
        with _locked(target):
            clear(target)
            yield
    finally:
        for folder in made:  # those that nothing was put into
            with suppress(OSError):
                folder.rmdir()


def clear(target: Path) -> None:
    """Finishes a replacement that was cut off, and removes what dead processes left; the place must be locked."""
    name = re.compile(_WORKSHOP.format(re.escape(target.name)))
    for workshop in sorted(path for path in target.parent.iterdir() if name.fullmatch(path.name)):
        if workshop not in _OPEN:
            _clear(workshop, target)


def discard(folder: Path) -> None:
    """Deletes a folder that kheads made, in one step for whoever looks at it."""
    if read_mark(folder) is None:
        raise NotOursError(f"{folder} was not made by kheads, which therefore does not delete it.")
    with told(folder), _workshop(folder.resolve()) as workshop:
        folder.resolve().rename(workshop / OLD)


# ------------------------------------------------------------------------------------------------ what is in the way


def _place(directory: Path) -> Path:
    """Where a folder will be, links followed."""
    directory = directory.absolute()
    for part in (directory, *directory.parents):
        if part.is_symlink() and not part.exists():
            raise FileNotFoundError(f"{part} is a link that leads nowhere; give another folder.")
        if part.exists():
            break
    if part != directory and not part.is_dir():
        raise NotADirectoryError(f"{part} is a file, so {directory} cannot be made; give another folder.")
    target = directory.resolve()
    (target.parent / LONGEST.format(target.name)).is_symlink()  # raises if that is too long for the system
    return target


def _check_unneeded(directory: str | Path, target: Path, inputs: Inputs) -> None:
    for place, what in ((Path.cwd(), "the folder you are working in"), (Path.home(), "your home")):
        if _holds(target, place):
            raise NotOursError(f"{directory} is {what}, or a folder above it; give one that does not exist yet.")
    for path in map(Path, inputs):
        if _holds(target, path):
            what = "is read here" if path.resolve() == target else f"holds {path}, which is read here"
            raise NotOursError(f"{directory} {what}; give another folder.")
    if target.is_mount():
        raise NotOursError(f"{directory} is a mount point and cannot be replaced; give a folder inside it.")


def _check_replaceable(directory: str | Path, target: Path, overwrite: bool) -> None:
    if not overwrite:
        raise FileExistsError(f"{directory} is not empty; give another folder, or pass overwrite=True to replace it.")
    if read_mark(target) is None:
        raise NotOursError(
            f"{directory} was not made by kheads, which replaces only what it made; give another folder, or move that "
            "one away."
        )
    if name := added(target):
        raise NotOursError(
            f"{directory} holds {name}, which kheads did not put there and would delete with the rest; move it away, "
            "or give another folder."
        )


def _holds(folder: Path, path: Path) -> bool:
    """Whether a path, or what it is a link to, is a folder or lies in it."""
    return any(found == folder or folder in found.parents for found in (path.resolve(), path.absolute()))


# ------------------------------------------------------------------------------------------------ making and replacing

_OPEN: set[Path] = set()  # the workshops that this process works in


@contextmanager
def _workshop(target: Path) -> Iterator[Path]:
    workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}.kheads-", dir=target.parent))
    _OPEN.add(workshop)
    try:
        mark(workshop, place=target.name)
        yield workshop
    finally:
        _remove(workshop)
        _OPEN.discard(workshop)


def _put(new: Path, target: Path, old: Path) -> None:
    """Two renames; `clear` finishes them if the process dies in between."""
    if not target.exists() or not any(target.iterdir()):
        new.rename(target)
        return
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise


def _clear(workshop: Path, target: Path) -> None:
    if (read_mark(workshop) or {}).get("place") != target.name:
        _remove_unmarked(workshop)
        return
    if (workshop / OLD).exists() and (workshop / NEW).exists():
        if target.exists():
            _say(f"{workshop} holds what was in {target}, and what was to replace it; look at them, and delete them.")
            return
        (workshop / NEW).rename(target)
        _say(f"{target} was being replaced when a process was cut off; the new one is in its place now.")
    _remove(workshop)
    _say(f"Removed {workshop.name}, which a process that was cut off had left beside {target}.")


def _remove_unmarked(workshop: Path) -> None:
    """Removes a workshop whose process died before it was marked; one with anything in it is not ours to remove."""
    entries = list(workshop.iterdir()) if workshop.is_dir() else [workshop]
    if all(path.name.startswith(MARK) for path in entries):
        for path in entries:
            path.unlink()
        workshop.rmdir()


def _remove(workshop: Path) -> None:
    """Removes a workshop; its mark goes last, so that what is left of it is always known as ours."""
    for path in [path for path in workshop.iterdir() if path.name != MARK]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if [path.name for path in workshop.iterdir()] == [MARK]:
        (workshop / MARK).unlink()
        workshop.rmdir()


def _make_parents(target: Path) -> list[Path]:
    """Makes the folders above a place, and returns the new ones, innermost first."""
    missing = [folder for folder in target.parents if not folder.exists()]
    with told(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    return missing


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    lock = FileLock(target.with_name(f".{target.name}.lock"), timeout=0, is_singleton=True)
    try:
        with told(target):
            with tempfile.TemporaryFile(dir=target.parent):  # filelock takes a place without files for a busy one
                pass
            lock.acquire()
    except Timeout:
        raise BusyError(
            f"Another process is writing to {target}; wait until it is done, or give another folder."
        ) from None
    try:
        yield
    finally:
        if lock.lock_counter == 1:  # whoever has opened the file meanwhile finds that it has no name, and tries again
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
