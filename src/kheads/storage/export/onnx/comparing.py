"""Comparing: what the files give in a new process, beside what the model gives."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kheads.storage.export.onnx import alone
from kheads.storage.export.onnx.graph import Case
from kheads.storage.export.target import ExportError, run_alone

TOLERANCE = 1e-4  # of the largest value that is expected
BLOCKED = "".join(f"sys.modules[{name!r}] = None\n" for name in ("torch", "transformers"))

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """What came out of the new process.

    Attributes:
        outputs: by ending of the file's name and name of the case.
        seconds: of the last case, (endings, rounds).
    """

    outputs: Mapping[tuple[str, str], Arrays]
    seconds: Any


def run_files(folder: Path, kind: str, cases: Sequence[Case], endings: Sequence[str], rounds: int = 0) -> Found:
    """Runs the files where there are only numpy and onnxruntime."""
    with tempfile.TemporaryDirectory() as scratch:
        given, results = Path(scratch) / "given.npz", Path(scratch) / "results.npz"
        arrays: dict[str, Any] = {
            f"{case.name}/{name}": value.numpy() for case in cases for name, value in case.given.items()
        }
        np.savez(given, **arrays)
        code = BLOCKED + Path(alone.__file__).read_text(encoding="utf-8")
        arguments = [str(folder.resolve()), kind, str(given), str(results), str(rounds), *endings]
        run_alone(code, arguments, 'The ONNX files, in whose place `to="hub"` works, do not run')
        with np.load(results, allow_pickle=False) as found:
            outputs: dict[tuple[str, str], dict[str, Any]] = {}
            for key in (key for key in found.files if key != "seconds"):
                ending, case, name = key.split("/")
                outputs.setdefault((ending, case), {})[name] = found[key]
            return Found(outputs, found["seconds"] if rounds else None)


def compare(cases: Sequence[Case], found: Found) -> str:
    """Says how far apart the files and the model are.

    Raises:
        ExportError: too far, or they write other tokens.
    """
    apart = [_difference(case, name, found.outputs["", case.name]) for case in cases for name in case.expected]
    sizes = " and ".join(case.name for case in cases)
    said = f"outputs at {sizes} differ by {max(apart):.1e} of their largest value at most"
    if not any("tokens" in case.given for case in cases):
        return said
    for case in cases:
        if not np.array_equal(written(found.outputs["", case.name]), _tokens(case)):
            raise ExportError(f"The ONNX files write other tokens than the model (at {case.name}).")
    return f"{said}, and the same tokens are written, with and without cache"


def written(outputs: Arrays) -> Any:
    """The tokens of the highest logits, (batch, steps)."""
    return outputs["steps"].argmax(-1)


def _tokens(case: Case) -> Any:
    steps = case.expected["steps"].shape[1]
    return case.given["tokens"].numpy()[:, -steps:]


def _difference(case: Case, name: str, outputs: Arrays) -> float:
    """The largest difference as a share of the largest value; padding is not looked at."""
    ours, theirs = compared_values(case, name, case.expected[name].numpy()), None
    if name in outputs and outputs[name].shape == tuple(case.expected[name].shape):
        theirs = compared_values(case, name, outputs[name])
    if theirs is None:
        shape = outputs[name].shape if name in outputs else "missing"
        raise ExportError(
            f"{name} is {shape} in the ONNX file, where the model has {tuple(case.expected[name].shape)}."
        )
    scale = float(np.abs(ours).max())
    apart = float(np.abs(ours - theirs).max()) / max(scale, 1e-12)
    if not apart <= TOLERANCE:
        raise ExportError(
            f"{name} of the ONNX file differs from the model's by {apart * scale:.1e} at {case.name}, where the "
            f'largest value is {scale:.1e}; `to="hub"` is exact.'
        )
    return apart


def compared_values(case: Case, name: str, values: Any) -> Any:
    """The values of an output that count: those of padding do not."""
    return values[case.valid[name].numpy()] if name in case.valid else values
