"""int8: weights in a quarter of the space, at a price that is reported, not promised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kheads.storage.export.onnx.comparing import Found, compared_values, written
from kheads.storage.export.onnx.graph import YOURS, Case
from kheads.storage.export.onnx.tracing import quiet
from kheads.storage.export.target import ExportError

ENDING = "_int8"
ROUNDS = 11


def quantise(path: Path) -> Path:
    """Writes the same graph with weights of 8 bits beside it, one scale for each output channel.

    With one scale for a whole matrix MiniLM's embeddings were three times as far off.
    """
    with quiet():
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        small = path.with_name(f"{path.stem}{ENDING}.onnx")
        beside = path.with_name(f"{path.name}.data").exists()
        graph = onnx.load(path)
        del graph.graph.value_info[:]  # shapes on the way, which are inferred anew: some weights get transposed
        quantize_dynamic(graph, small, weight_type=QuantType.QInt8, per_channel=True, use_external_data_format=beside)
    return small


def report(cases: Sequence[Case], found: Found, paths: Sequence[Path]) -> str:
    """Size, speed and closeness of the int8 files, beside the others."""
    before, after = (
        sum(map(_bytes, files)) / 1e6 for files in zip(*((path, _small(path)) for path in paths), strict=True)
    )
    low, ratio, high = np.quantile(found.seconds[0] / found.seconds[1], (0.25, 0.5, 0.75))
    said = (
        f"int8: {before:.1f} MB become {after:.1f} MB; {_closeness(cases, found)} on "
        f"{_named(cases)}; "
        f"{ratio:.2f} times as fast at {cases[-1].name} with one thread, by processor time "
        f"(half of {ROUNDS} pairs: {low:.2f} to {high:.2f})"
    )
    if not any("steps" in case.expected for case in cases):
        return said
    return f"{said}; {_same_tokens(cases, found)}"


def _named(cases: Sequence[Case]) -> str:
    return "made-up inputs and your batch" if cases[-1].name == YOURS else "made-up inputs"


def _closeness(cases: Sequence[Case], found: Found) -> str:
    """How near vectors of the int8 files are to those of the others, or scores: a single number has no direction."""
    pairs = [
        [compared_values(case, name, found.outputs[ending, case.name][name]) for ending in ("", ENDING)]
        for case in cases
        for name in case.expected
    ]
    vectors = [pair for pair in pairs if pair[0].shape[-1] > 1]
    value = min(_cosine(*pair) for pair in vectors) if vectors else max(_apart(*pair) for pair in pairs)
    if not np.isfinite(value):
        raise ExportError("The int8 file gives numbers that are not finite; export without int8.")
    return f"lowest cosine of an output {value:.3f}" if vectors else f"scores differ by {value:.1e} of the largest"


def _apart(ours: Any, theirs: Any) -> float:
    """The largest difference as a share of the largest value."""
    return float(np.abs(ours - theirs).max() / max(np.abs(ours).max(), 1e-12))


def _cosine(ours: Any, theirs: Any) -> float:
    sums = [(one * other).sum(-1) for one, other in ((ours, theirs), (ours, ours), (theirs, theirs))]
    return float((sums[0] / np.sqrt(sums[1] * sums[2])).min())


def _same_tokens(cases: Sequence[Case], found: Found) -> str:
    pairs = [[written(found.outputs[ending, case.name]) for ending in ("", ENDING)] for case in cases]
    same = sum(int((one == other).sum()) for one, other in pairs)
    return f"{same} of {sum(one.size for one, _ in pairs)} tokens are the same"


def _small(path: Path) -> Path:
    return path.with_name(f"{path.stem}{ENDING}.onnx")


def _bytes(path: Path) -> int:
    """Of a file and of what lies beside it."""
    return sum(part.stat().st_size for part in (path, path.with_name(f"{path.name}.data")) if part.exists())
