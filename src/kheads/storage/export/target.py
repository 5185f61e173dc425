"""What every target of an export shares: what it is given, what it gives back, and how it is tried in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


class ExportError(RuntimeError):
    """What was exported does not give what the model gives, or cannot; nothing was written."""


@dataclass(frozen=True)
class Target:
    """A way out of a pruned model.

    Attributes:
        what: what it is for, in a few words.
        module: where it is written; its `write` takes an `Order` and returns an `Exported`.
        extra: the extra of kheads that brings what it needs; None if nothing more is needed.
        needs: the packages of that extra, as they are imported.
        options: the options that it alone takes.
    """

    what: str
    module: str
    extra: str | None = None
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


TARGETS: dict[str, Target] = {
    "hub": Target("transformers with trust_remote_code", "kheads.storage.export.hub", options=("push",)),
    "vanilla": Target("plain transformers, without any code", "kheads.storage.export.vanilla", options=("push",)),
    "onnx": Target(
        "onnxruntime and OpenVINO, without torch",
        "kheads.storage.export.onnx.writing",
        extra="onnx",
        needs=("onnx", "onnxruntime", "onnxscript"),
        options=("push", "int8"),
    ),
    "gguf": Target("llama.cpp", "kheads.storage.export.gguf", "gguf", ("gguf",), ("push", "dtype")),
}


@dataclass(frozen=True)
class Order:
    """What is to be exported.

    Attributes:
        model: the pruned model, in eval mode.
        source: the folder that it was loaded from.
        folder: the new folder, which is not in its place yet.
        inputs: a batch to compare on; None if one has to be made up.
        options: those of the target, by name.
    """

    model: PreTrainedModel
    source: Path
    folder: Path
    inputs: Mapping[str, Tensor] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Exported:
    """What came of it, in sentences.

    Attributes:
        compared: what was compared with the model, and how far apart it was.
        remarks: what the user should know, such as what was left out.
    """

    compared: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def run_alone(code: str, arguments: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> str:
    """Runs code in a new process, offline, where kheads cannot be imported, and returns what it printed.

    Args:
        code: Python.
        arguments: its `sys.argv[1:]`.
        what: what is tried there, for the error: "The exported folder does not load".
        environment: variables to add.
    """
    blocked = f'import sys\nsys.modules["kheads"] = None\n{code}'
    given = {**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})}
    command = [sys.executable, "-I", "-c", blocked, *arguments]
    child = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    if child.returncode:
        reason = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise ExportError(f"{what} in a new process: {reason}")
    return child.stdout
