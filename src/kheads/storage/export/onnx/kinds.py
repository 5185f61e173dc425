"""Which kind of ONNX files a model gets, or why it gets none."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kheads.storage.export.onnx.decoder import DECODER
from kheads.storage.export.onnx.encoder_decoder import ENCODER_DECODER
from kheads.storage.export.onnx.graph import Kind
from kheads.storage.export.onnx.plain import IMAGES, PLAIN
from kheads.storage.export.onnx.refusal import refusal

# Rotations that are computed anew for long inputs; a graph that was traced with short ones would be wrong there.
BY_LENGTH = re.compile("dynamic|longrope")
# Inputs that some models of text need beside it. A file without them would be another model.
ALSO = frozenset({IMAGES, "bbox", "input_features", "input_shape_ids", "entity_ids", "lang_ids", "visual_embeds"})


def kind_of(model: Any) -> Kind:
    """The kind of files, from what the model takes and whether it writes.

    Raises:
        ExportError: ONNX files of it would not be exact, or nobody has tried.
    """
    main, pair = model.main_input_name, model.config.is_encoder_decoder
    if main not in ("input_ids", IMAGES):
        raise refusal(model, f"its main input is {main!r}, and text and images alone are supported")
    if also := ALSO.intersection(inspect.signature(model.forward).parameters) - {main}:
        raise refusal(model, f"it also takes {min(also)!r}, and text or images alone are supported")
    if main == IMAGES and (pair or model.can_generate()):
        raise refusal(model, "it is more than an encoder of images")
    if pair and not model.can_generate():
        raise refusal(model, "it is an encoder-decoder that does not write")
    for rotation in _rotations(model.config.to_dict()):
        raise refusal(model, f"its rotary positions are of the type {rotation!r}, which change with the length")
    return ENCODER_DECODER if pair else DECODER if model.can_generate() else PLAIN


def _rotations(config: Any) -> Iterator[str]:
    """Types of rotary positions that depend on the length, wherever in the config they are."""
    if isinstance(config, Mapping):
        if BY_LENGTH.search(found := str(config.get("rope_type"))):
            yield found
        for inner in config.values():
            yield from _rotations(inner)
