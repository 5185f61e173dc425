"""The working folder of a run, beside its output: checkpoints, and what the run was asked to do.

A run owns its output from its first moment: no other process can start one there, what it reads is safe from it, and
its checkpoints serve nobody who asks for something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from kheads.lab.jobs.job import DEFAULTS, Job
from kheads.storage import fingerprints
from kheads.storage.marks import read_mark
from kheads.storage.new_folder import NotOursError, alone, check_free, discard, new_folder
from kheads.training import recording
from kheads.training.asked import CONTENT, differences, plain, refuse_other
from kheads.training.checkpoints import PREFIX
from kheads.training.progress import say

RUN = "run.json"
TABLES = ("method_options", "constraints", "data")
NO_MATTER = ("report_to", "save_steps")  # what cannot change the result
AGAIN = "pass overwrite=True to start again"


@dataclass(frozen=True)
class WorkFolder:
    """The place of one run.

    Attributes:
        output: the folder to make.
        job: what to do.
        resume: whether to go on from checkpoints.
        overwrite: whether to replace an output that kheads made, and checkpoints.
        reads: files that are read besides those of the job.
    """

    output: Path
    job: Job
    resume: bool = False
    overwrite: bool = False
    reads: Sequence[Path] = ()

    @property
    def path(self) -> Path:
        """Where the checkpoints are."""
        return self.output.with_name(f"{self.output.name}.run")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keeps the output for this process; refuses at once what could not be written, or must not be replaced."""
        self._check_output()
        with alone(self.output.resolve()), alone(self.path.resolve()):
            self._check_output()  # once more, now that nothing can change
            self._check_work()
            try:
                yield
            finally:
                if not any(self.path.glob(f"*/{PREFIX}*")):  # nothing to go on from
                    self.close()

    def _check_output(self) -> None:
        if not (self.resume and _record(self.output)):
            check_free(self.output, self.overwrite, (*inputs_of(self.job).values(), *self.reads))

    def _check_work(self) -> None:
        if not self.path.is_dir() or not any(self.path.iterdir()):
            return
        if read_mark(self.path) is None:
            raise NotOursError(
                f"{self.path} was not made by kheads, which keeps checkpoints there; move it, or give another output."
            )
        if not (self.resume or self.overwrite):
            raise FileExistsError(
                f"{self.path} holds the checkpoints of a run that was cut off; pass resume=True to go on, or {AGAIN}."
            )

    def finished(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record of the same run, if it is complete and to be resumed."""
        record = _record(self.output) if self.resume else None
        return record if record is not None and self._is_same(str(self.output), record, asked) else None

    def open(self, asked: Mapping[str, Any]) -> None:
        """Makes the working folder, or finds the one of the same run."""
        if read_mark(self.path) is not None:
            before = _read(self.path / RUN)
            if before is None and not self.overwrite:
                raise ValueError(f"{self.path / RUN} is missing or damaged; {AGAIN}.")
            if self.resume and before is not None and self._is_same(str(self.path), before, asked):
                return
            discard(self.path)
        elif self.resume and not self.overwrite:
            say(f"There are no checkpoints in {self.path}; the run starts from its beginning.")
        with new_folder(self.path) as folder:
            recording.write_json(asked, folder / RUN)

    def _is_same(self, place: str, before: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
        """Whether an earlier run was asked for in the same way; if not, only `overwrite` may set it aside."""
        then, now = _comparable(before), _comparable(asked)
        if not self.overwrite:
            refuse_other(place, then, now, AGAIN)
        return not differences(then, now)

    def close(self) -> None:
        """Deletes the checkpoints of a run that is complete."""
        if read_mark(self.path) is not None:
            discard(self.path)


def asked_of(job: Job, model: nn.Module, processes: int, scores: Sequence[float] | None = None) -> dict[str, Any]:
    """What a run is asked to do, with the content of what it reads."""
    inputs = {
        name: _input(path, fingerprints.of_path(path)) for name, path in inputs_of(job).items() if name != "model"
    }
    inputs["model"] = _input(job.model, fingerprints.of_model(model))
    if scores is not None:
        inputs["scores"] = _input("those of another run", fingerprints.of_numbers(scores))
    return {"settings": plain(job.to_dict()), "processes": processes, "inputs": inputs}


def _input(given: str, content: str) -> dict[str, str]:
    return {"given": given, CONTENT: content}


def inputs_of(job: Job) -> dict[str, str]:
    """The files and folders that a job reads, by option."""
    given = {"model": job.model}
    for name, value in job.data.items():
        if isinstance(value, str):
            given[name] = value
        elif isinstance(value, Mapping) and name != "columns":
            given |= {f"{name} {part}": str(path) for part, path in value.items()}
    return {name: path for name, path in given.items() if _exists(path)}


def _comparable(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Every option by its own name; what is read counts by its content, not by its path."""
    settings = {**DEFAULTS, **asked["settings"]}
    inner = {name: value for table in TABLES for name, value in settings[table].items()}
    read = {name.partition(" ")[0] for name in asked["inputs"]}
    options = {**settings, **inner, "processes": asked["processes"]}
    return {
        **{name: value for name, value in options.items() if name not in (*TABLES, *NO_MATTER, *read)},
        **asked["inputs"],
    }


def _record(output: Path) -> dict[str, Any] | None:
    """The record of a complete run that kheads made."""
    record = _read(output / recording.NAME) if read_mark(output) else None
    return record if record is not None and {"settings", "inputs", "processes"} <= record.keys() else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a name that is too long, for one
        return False
