"""The table: attention class -> layouts. Classes of transformers go by their name, others by `module.Class`.

To add a family, add a line to the file of its kind. The tests iterate this table and run every check on the tiny model
of each type in `tests/zoo`.
"""

from __future__ import annotations

from kheads.anatomy import audio, decoders, encoder_decoders, text_encoders, vision
from kheads.anatomy.patterns import Table
from kheads.anatomy.refusals import NOT_SITES, REFUSED

KINDS = {
    "text encoders": text_encoders,
    "vision and image-text": vision,
    "audio": audio,
    "encoder-decoders": encoder_decoders,
    "decoders": decoders,
}

LAYOUTS: Table = {name: layouts for part in KINDS.values() for name, layouts in part.LAYOUTS.items()}

# Model type -> its attention classes, by kind of model.
TYPES: dict[str, dict[str, tuple[str, ...]]] = {
    kind: {name: tuple(classes.split()) for name, classes in part.TYPES.items()} for kind, part in KINDS.items()
}

__all__ = ["LAYOUTS", "NOT_SITES", "REFUSED", "TYPES"]
