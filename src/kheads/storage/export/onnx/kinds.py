"""Which kind of ONNX files a model gets, or why it gets none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kheads.storage.export.onnx.decoder import DECODER
from kheads.storage.export.onnx.encoder_decoder import ENCODER_DECODER
from kheads.storage.export.onnx.graph import Kind
from kheads.storage.export.onnx.plain import IMAGES, PLAIN
from kheads.storage.export.target import ExportError

# Rotations that are computed anew for long inputs; a graph that was traced with short ones would be wrong there.
BY_LENGTH = re.compile("dynamic|longrope")


def kind_of(model: Any) -> Kind:
    """The kind of files, from what the model takes and whether it writes.

    Raises:
        ExportError: ONNX files of it would not be exact, or nobody has tried.
    """
    main, pair = model.main_input_name, model.config.is_encoder_decoder
    if main not in ("input_ids", IMAGES):
        raise refusal(model, f"its main input is {main!r}, and text and images alone are supported")
    if (pair or main == IMAGES) and model.can_generate() != pair:
        what = "it writes about images" if main == IMAGES else "it is an encoder-decoder that does not write"
        raise refusal(model, what)
    if pair and main == IMAGES:
        raise refusal(model, "it writes about images")
    for rotation in _rotations(model.config.to_dict()):
        raise refusal(model, f"its rotary positions are of the type {rotation!r}, which change with the length")
    return ENCODER_DECODER if pair else DECODER if model.can_generate() else PLAIN


def refusal(model: Any, reason: str) -> ExportError:
    """The error that names the model, the reason, and what works instead."""
    return ExportError(f'{type(model).__name__} cannot be written as ONNX: {reason}. `to="hub"` takes it.')


def _rotations(config: Any) -> Iterator[str]:
    """Types of rotary positions that depend on the length, wherever in the config they are."""
    if isinstance(config, Mapping):
        if BY_LENGTH.search(found := str(config.get("rope_type"))):
            yield found
        for inner in config.values():
            yield from _rotations(inner)
