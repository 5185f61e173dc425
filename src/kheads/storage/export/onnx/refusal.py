"""The error for a model of which no ONNX file would be right."""

from __future__ import annotations

from typing import Any

from kheads.storage.export.target import ExportError


def refusal(model: Any, reason: str) -> ExportError:
    """Names the model, the reason, and what works instead."""
    return ExportError(f'{type(model).__name__} cannot be written as ONNX: {reason}. `to="hub"` takes it.')
