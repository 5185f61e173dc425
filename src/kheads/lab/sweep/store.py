"""The results folder: one file per finished run, and who is working on what.

A run belongs to the process that holds the lock on its lock file. The operating system drops a lock when its holder
dies, however it dies, so nothing has to be cleaned up after a crash. On one machine this always holds. Across machines
it holds on drives whose server keeps locks (NFS 4; NFS 3 with lockd; Lustre with -o flock). Where locks are refused,
the sweep says so; where they are silently local to each machine (-o nolock, -o local_lock=all, -o localflock), give
every machine a folder of its own and copy the `runs` together.

    RESULTS/sweep.json       what was swept
    RESULTS/runs/ID.json     finished runs
    RESULTS/work/            models, checkpoints, logs and locks; can be deleted when no sweep is running
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from kheads.lab.packing import AGAIN, load_json
from kheads.lab.shape import STORED, check
from kheads.storage.marks import mark, read_mark
from kheads.storage.new_folder import discard
from kheads.training import recording

DOOR = "door"
STATES = ("done", "failed")


class Store:
    """A results folder that any number of processes share."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()
        self._runs, self._work = self.folder / "runs", self.folder / "work"

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of a finished run; one that is damaged or not a sweep's is refused."""
        path = self._runs / f"{name}.json"
        try:
            found = load_json(path)
        except FileNotFoundError:
            return None
        check(found, STORED, str(path))
        if found["run"]["state"] not in STATES:
            raise ValueError(f"{path} must say that its run is {' or '.join(STATES)}; {AGAIN}.")
        return found

    def state(self, name: str) -> str | None:
        """How a run ended: "done" or "failed"; None while it has not."""
        record = self.record(name)
        return None if record is None else record["run"]["state"]

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Writes a record, whole or not at all."""
        recording.write_json(record, self._made(self._runs) / f"{name}.json")

    def describe(self, about: Mapping[str, Any]) -> None:
        """Writes what was swept."""
        with self.claim(DOOR, wait=True):
            recording.write_json(about, self.folder / "sweep.json")

    def work(self, name: str) -> Path:
        """A run's own folder for its model, checkpoints and log; marked, if it was made here."""
        folder = self._work / name
        if not folder.exists():
            mark(self._made(folder))
        return folder

    def model(self, name: str) -> Path:
        """Where a run saves its model."""
        return self._work / name / "model"

    def has_model(self, name: str) -> bool:
        """Whether the run's model is there, complete."""
        return (self.model(name) / recording.NAME).is_file()

    def whole(self, name: str) -> Path:
        """Where a run saves its trained model before heads are removed."""
        return self._work / name / "whole"

    def has_whole(self, name: str) -> bool:
        """Whether that is there; it is written whole or not at all."""
        return self.whole(name).is_dir()

    def discard(self, name: str) -> None:
        """Deletes a run's model and checkpoints; a folder that somebody else put there stays."""
        if read_mark(self._work / name) is not None:
            discard(self._work / name)

    @contextmanager
    def claim(self, name: str, wait: bool = False) -> Iterator[bool]:
        """Gives True while this process is the only one that has claimed the name, and False if another one has."""
        lock = FileLock(self._lock_file(name), timeout=-1 if wait else 0, preserve_lock_file=True)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        except NotImplementedError as error:
            raise ValueError(
                f"{self.folder} is on a drive without file locks; give a folder on another one."
            ) from error
        try:
            yield True
        finally:
            lock.release()

    def claimed(self, name: str) -> bool:
        """Whether a process works on it at this moment."""
        with self.claim(name) as mine:
            return not mine

    @contextmanager
    def present(self) -> Iterator[str]:
        """Says that a sweep is at work here, until it leaves."""
        name = f"sweep-{uuid4().hex}"
        with self.claim(DOOR, wait=True):
            claim = self.claim(name)
            claim.__enter__()
        try:
            yield name
        finally:
            claim.__exit__(None, None, None)
            self._lock_file(name).unlink(missing_ok=True)

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Gives True if no other sweep is here, and lets none in meanwhile."""
        with self.claim(DOOR, wait=True):
            others = [path.stem for path in self._lock_file("any").parent.glob("sweep-*.lock") if path.stem != name]
            yield not any(self.claimed(other) for other in others)

    def _lock_file(self, name: str) -> Path:
        return self._made(self._work / "locks") / f"{name}.lock"

    def _made(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
