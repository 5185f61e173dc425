"""Latency tables on disk, by kind of site, device and versions; damaged or foreign ones are ignored."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import tempfile
from collections.abc import Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

FORMAT = 1


def folder() -> Path:
    """Where tables lie: `$KHEADS_CACHE`, or `kheads/latency` in the user's cache."""
    if own := os.environ.get("KHEADS_CACHE"):
        return Path(own) / "latency"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kheads" / "latency"


def surroundings(device: torch.device, threads: int) -> dict[str, Any]:
    """What a time depends on beyond the module and its inputs."""
    versions = {name: _version(name) for name in ("torch", "transformers")}
    return {"device": _device(device), "threads": threads, **versions}


def read(about: dict[str, Any], counts: Sequence[int]) -> list[float] | None:
    """The milliseconds of a table at these counts; None if there is none, or none that can be trusted."""
    try:
        found = json.loads(_path(about).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    plain = json.loads(json.dumps(about))
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("about") != plain:
        return None
    if found.get("counts") != list(counts) or not _is_curve(found.get("ms"), len(counts)):
        return None
    return [float(value) for value in found["ms"]]


def write(about: dict[str, Any], counts: Sequence[int], ms: Sequence[float]) -> None:
    """Writes a table, whole or not at all; a folder that cannot be written is no error, it is measured again then."""
    path = _path(about)
    text = json.dumps({"format": FORMAT, "about": about, "counts": list(counts), "ms": list(ms)}, indent=1)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text + "\n")
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)


def _path(about: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    return folder() / f"{digest[:32]}.json"


def _is_curve(values: Any, length: int) -> bool:
    """Whether these are so many finite numbers from 0 up that never fall."""
    if not isinstance(values, list) or len(values) != length:
        return False
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return numbers and all(map(_is_time, values)) and all(left <= right for left, right in pairwise(values))


def _is_time(value: float) -> bool:
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return f"{device.type} of {platform.node()}"
    return f"{_processor()}, {os.cpu_count()} cores"


def _processor() -> str:
    """The processor's model, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
