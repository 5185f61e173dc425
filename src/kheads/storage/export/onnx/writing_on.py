"""What a model writes by itself, as the reference for what its files write."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kheads.storage.export.onnx.graph import Named

STEPS = 5


def continued(model: Any, given: Named) -> tuple[Tensor, Tensor]:
    """Writes five tokens greedily, and returns them with the logits they were chosen by.

    The model's own generation config is put aside: it may forbid tokens or end early, which is not the file's business.
    """
    import transformers

    made: Any = transformers.GenerationConfig
    config = model.config.get_text_config()
    settings = made(
        max_new_tokens=STEPS,
        do_sample=False,
        pad_token_id=getattr(config, "pad_token_id", None) or 0,
        decoder_start_token_id=start_of(model) if model.config.is_encoder_decoder else None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    own, model.generation_config = model.generation_config, settings
    try:
        out = model.generate(**given)
    finally:
        model.generation_config = own
    written = out.sequences if model.config.is_encoder_decoder else out.sequences[:, -STEPS:]
    return written, torch.stack(out.logits, 1).float()


def start_of(model: Any) -> int:
    """The token with which the decoder starts."""
    for config in (model.generation_config, model.config, model.config.get_text_config()):
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
            if isinstance(found := getattr(config, name, None), int):
                return found
    return 0
