"""Tiny encoder-decoders."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.tiny import PAD, VOCAB, Tiny, noise, pair


def barts(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 20,
        "max_position_embeddings": 24,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
        **extra,
    }


def t5s(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "d_model": 16,
        "d_kv": 6,
        "d_ff": 20,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "pad_token_id": PAD,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        **extra,
    }


def gemma(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "intermediate_size": 20,
        "max_position_embeddings": 24,
        "query_pre_attn_scalar": 6,
        "sliding_window": 4,
        "attention_bias": True,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **extra,
    }


def targets() -> Tensor:
    return torch.randint(4, VOCAB, (2, 5), generator=torch.Generator().manual_seed(2))


def spoken() -> dict[str, Tensor]:
    return {**noise("input_features", 2, 12, 8)(), "decoder_input_ids": targets()}


def sung() -> dict[str, Tensor]:
    return {**noise("input_features", 2, 6, 16)(), "decoder_input_ids": targets()}


def heard() -> dict[str, Tensor]:
    return {**noise("input_values", 2, 96)(), "decoder_input_ids": targets()}


def series() -> dict[str, Tensor]:
    """Past and future values with their features of time."""
    return {
        **noise("past_values", 2, 12)(),
        **noise("past_time_features", 2, 12, 1)(),
        "past_observed_mask": torch.ones(2, 12),
        **noise("future_values", 2, 4)(),
        **noise("future_time_features", 2, 4, 1)(),
    }


MODELS: dict[str, Tiny] = {
    "bart": Tiny("BartForConditionalGeneration", barts(), pair),
    "blenderbot": Tiny("BlenderbotForConditionalGeneration", barts(), pair),
    "blenderbot-small": Tiny("BlenderbotSmallForConditionalGeneration", barts(), pair),
    "longt5": Tiny("LongT5ForConditionalGeneration", t5s(local_radius=3, num_decoder_layers=1), pair),
    "longt5:global": Tiny(
        "LongT5ForConditionalGeneration",
        t5s(local_radius=3, global_block_size=2, encoder_attention_type="transient-global", num_decoder_layers=1),
        pair,
    ),
    "m2m_100": Tiny("M2M100ForConditionalGeneration", barts(), pair),
    "marian": Tiny("MarianMTModel", barts(), pair),
    "mbart": Tiny("MBartForConditionalGeneration", barts(), pair),
    "mt5": Tiny("MT5ForConditionalGeneration", t5s(), pair),
    "mvp": Tiny("MvpForConditionalGeneration", barts(), pair),
    "nllb-moe": Tiny(
        "NllbMoeForConditionalGeneration",
        barts(num_experts=2, expert_capacity=8, encoder_sparse_step=2, decoder_sparse_step=2),
        pair,
    ),
    "pegasus": Tiny("PegasusForConditionalGeneration", barts(), pair),
    "plbart": Tiny("PLBartForConditionalGeneration", barts(), pair),
    "pop2piano": Tiny("Pop2PianoForConditionalGeneration", t5s(), sung, generates=False),
    "speech_to_text": Tiny(
        "Speech2TextForConditionalGeneration",
        barts(
            max_source_positions=24,
            max_target_positions=24,
            num_conv_layers=1,
            conv_kernel_sizes=[3],
            conv_channels=8,
            input_feat_per_channel=8,
        ),
        spoken,
    ),
    "speecht5": Tiny(
        "SpeechT5ForSpeechToText",
        {
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 20,
            "decoder_ffn_dim": 20,
            "conv_dim": [8, 8],
            "conv_kernel": [4, 4],
            "conv_stride": [4, 4],
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "max_text_positions": 24,
            "encoder_max_relative_position": 8,
            "pad_token_id": PAD,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        heard,
    ),
    "switch_transformers": Tiny(
        "SwitchTransformersForConditionalGeneration",
        t5s(num_experts=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1),
        pair,
    ),
    "t5": Tiny("T5ForConditionalGeneration", t5s(), pair),
    "t5gemma": Tiny(
        "T5GemmaForConditionalGeneration",
        {
            "encoder": gemma(),
            "decoder": gemma(),
            "vocab_size": VOCAB,
            "pad_token_id": PAD,
            "eos_token_id": 2,
            "bos_token_id": 1,
        },
        pair,
        scale=0.4,
    ),
    "time_series_transformer": Tiny(
        "TimeSeriesTransformerModel",
        {
            "prediction_length": 4,
            "context_length": 8,
            "lags_sequence": [1, 2, 4],
            "num_time_features": 1,
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 20,
            "decoder_ffn_dim": 20,
        },
        series,
    ),
    "umt5": Tiny("UMT5ForConditionalGeneration", t5s(), pair),
}
