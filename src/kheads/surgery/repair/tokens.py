"""Which tokens of a batch count: padding teaches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kheads.surgery.repair.passes import Stop

IGNORED = -100  # the label of a position that has none


def counted(stop: Stop, inputs: Mapping[str, Any], decoding: bool) -> Tensor:
    """Says of each row of the site's input, flattened to (rows, width), whether it counts.

    The batch's own mask says it where its shape is that of the tokens. Where it is not (audio, text with images), the
    mask that the model made of it for its attentions does.
    """
    shape = tuple(stop.input.shape[:-1])
    mask = _mask(stop.site, inputs, decoding)
    everything = torch.ones(shape, dtype=torch.bool)
    if mask is None:
        return everything.flatten()
    if mask.numel() != everything.numel():
        mask = stop.masks.get(shape, everything)
    return mask.bool().cpu().flatten()


def _mask(site: str, inputs: Mapping[str, Any], decoding: bool) -> Tensor | None:
    """The mask of the side of the model on which the site is."""
    if decoding:
        mask, labels = inputs.get("decoder_attention_mask"), inputs.get("labels")
        return labels != IGNORED if mask is None and isinstance(labels, Tensor) and labels.dim() == 2 else mask
    sees = any(part.startswith(("vision", "visual", "image")) for part in site.split("."))
    mask = inputs.get("pixel_attention_mask" if sees else "attention_mask")
    return mask if isinstance(mask, Tensor) else None
