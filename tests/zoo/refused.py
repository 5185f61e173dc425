"""Models that kheads refuses by name, built without weights: attention class -> how to build one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from torch import nn

from zoo.text_encoders import sized
from zoo.vision import RESNET


def _build(model: str, **fields: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        cls = getattr(transformers, model)
        with torch.device("meta"):
            return cls(cls.config_class(**fields))

    return build


def _small(model: str, **extra: Any) -> Callable[[], nn.Module]:
    return _build(model, **sized(**extra))


SEEN = {"image_size": 8, "patch_size": 4}
ONE = {"encoder_layers": 1, "decoder_layers": 1}

MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "BigBirdAttention": _small("BigBirdModel", attention_type="block_sparse"),
    "BigBirdPegasusEncoderAttention": _build("BigBirdPegasusModel", **ONE),
    "BitNetAttention": _small("BitNetModel", num_key_value_heads=2),
    "Blip2Attention": _build(
        "Blip2VisionModel", **{**SEEN, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
    ),
    "BlipAttention": _small("BlipVisionModel", **SEEN),
    "BloomAttention": _build("BloomModel", n_layer=1, hidden_size=16, n_head=4, pretraining_tp=2, slow_but_exact=True),
    "CodeGenAttention": _build("CodeGenModel", n_layer=1, n_embd=16, n_head=4, rotary_dim=2),
    "ConvBertAttention": _small("ConvBertModel", embedding_size=16),
    "DebertaAttention": _small("DebertaModel", talking_head=True),
    "GPTBigCodeAttention": _build(
        "GPTBigCodeModel", n_layer=1, n_embd=16, n_head=4, multi_query=False, add_cross_attention=True
    ),
    "Gemma3nTextAttention": _build("Gemma3nTextModel", num_hidden_layers=2, num_kv_shared_layers=0),
    "Gemma4TextAttention": _build("Gemma4TextModel", num_hidden_layers=2, num_kv_shared_layers=0),
    "GroupViTAttention": _build("GroupViTVisionModel", depths=[1, 1, 1]),
    "InstructBlipAttention": _build(
        "InstructBlipVisionModel", **{**SEEN, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
    ),
    "KosmosTextAttention": _build("Kosmos2Model", text_config={"layers": 1}, vision_config={"num_hidden_layers": 1}),
    "LEDEncoderSelfAttention": _build("LEDModel", **ONE),
    "LongformerSelfAttention": _small("LongformerModel", attention_window=[2, 2]),
    "MultiheadAttention": lambda: nn.Transformer(16, 4, 1, 1, 20, device="meta"),
    "ProphetNetAttention": _build("ProphetNetModel", num_encoder_layers=1, num_decoder_layers=1),
    "ProphetNetNgramSelfAttention": _build("ProphetNetDecoder", num_decoder_layers=1),
    "TableTransformerAttention": _build(
        "TableTransformerModel", backbone_config=RESNET, use_timm_backbone=False, **ONE
    ),
    "TrOCRAttention": _build("TrOCRForCausalLM", decoder_layers=1),
    "WavLMAttention": _build("WavLMModel", num_hidden_layers=1),
    "XLNetRelativeAttention": _build("XLNetModel", n_layer=1, d_model=16, n_head=4),
}
