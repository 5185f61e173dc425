"""Which tokens of a batch count: padding teaches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

IGNORED = -100  # the label of a position that has none


def counted(
    site: str,
    shape: tuple[int, ...],
    inputs: Mapping[str, Any],
    model: nn.Module,
    seen: Mapping[tuple[int, ...], Tensor] | None = None,
) -> Tensor:
    """Says of each row of a site's input, flattened to (rows, width), whether it counts.

    The batch's own mask says it where its shape is that of the tokens. Where it is not (audio, text with images), the
    mask that the model made of it for its attentions does.

    Args:
        site: path of the output projection.
        shape: of its input, without the width.
        inputs: the batch.
        model: whose site it is.
        seen: masks that the attentions were told, by shape.
    """
    mask = _mask(site, inputs, _decodes(site, model))
    everything = torch.ones(shape, dtype=torch.bool)
    if mask is None:
        return everything.flatten()
    if mask.numel() != everything.numel():
        mask = (seen or {}).get(shape, everything)
    return mask.bool().cpu().flatten()


def _decodes(site: str, model: nn.Module) -> bool:
    """Whether the site is on the decoder's side of an encoder-decoder."""
    decoder = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    return decoder and "decoder" in site.split(".")


def _mask(site: str, inputs: Mapping[str, Any], decoding: bool) -> Tensor | None:
    """The mask of the side of the model on which the site is."""
    if decoding:
        mask, labels = inputs.get("decoder_attention_mask"), inputs.get("labels")
        return labels != IGNORED if mask is None and isinstance(labels, Tensor) and labels.dim() == 2 else mask
    sees = any(part.startswith(("vision", "visual", "image")) for part in site.split("."))
    mask = inputs.get("pixel_attention_mask" if sees else "attention_mask")
    return mask if isinstance(mask, Tensor) else None
