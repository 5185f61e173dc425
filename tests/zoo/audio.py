"""Tiny models of sound."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.text_encoders import sized
from zoo.tiny import PAD, VOCAB, Tiny, noise, text


def waves(**extra: Any) -> dict[str, Any]:
    return sized(
        conv_dim=[8, 8],
        conv_kernel=[4, 4],
        conv_stride=[4, 4],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        **extra,
    )


def frames(batch: int = 2, length: int = 12, bins: int = 8) -> dict[str, Tensor]:
    target = torch.randint(4, VOCAB, (2, 5), generator=torch.Generator().manual_seed(2))
    return {**noise("input_features", 2, bins, length)(), "decoder_input_ids": target}


def spoken() -> dict[str, Tensor]:
    target = torch.randint(4, VOCAB, (2, 5), generator=torch.Generator().manual_seed(2))
    return {**noise("input_values", 2, 1200)(), "decoder_input_ids": target}


def heard() -> dict[str, Tensor]:
    return {**text(), **noise("input_features", 2, 1, 32, 8)()}


wave = noise("input_values", 2, 96)

MODELS: dict[str, Tiny] = {
    "audio-spectrogram-transformer": Tiny(
        "ASTModel", sized(max_length=8, num_mel_bins=8, patch_size=4), noise("input_values", 2, 8, 8)
    ),
    "clap": Tiny(
        "ClapModel",
        {
            "text_config": sized(projection_dim=8),
            "audio_config": {
                "window_size": 2,
                "num_mel_bins": 8,
                "spec_size": 16,
                "patch_size": 2,
                "patch_stride": [2, 2],
                "hidden_size": 16,
                "depths": [1, 1],
                "num_attention_heads": [2, 4],
                "patch_embeds_hidden_size": 8,
                "projection_dim": 8,
                "num_hidden_layers": 2,
            },
            "projection_dim": 8,
        },
        heard,
    ),
    "data2vec-audio": Tiny("Data2VecAudioModel", waves(conv_pos_kernel_size=3), wave),
    "hubert": Tiny("HubertModel", waves(), wave),
    "moonshine": Tiny(
        "MoonshineForConditionalGeneration",
        {
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "intermediate_size": 20,
            "encoder_num_hidden_layers": 1,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "max_position_embeddings": 24,
            "pad_token_id": PAD,
        },
        spoken,
    ),
    "sew": Tiny("SEWModel", waves(squeeze_factor=1), wave),
    "unispeech": Tiny("UniSpeechModel", waves(num_codevector_groups=2, num_codevectors_per_group=4), wave),
    "unispeech-sat": Tiny("UniSpeechSatModel", waves(), wave),
    "wav2vec2": Tiny("Wav2Vec2Model", waves(), wave),
    "wav2vec2-bert": Tiny(
        "Wav2Vec2BertModel",
        sized(feature_projection_input_dim=8, conv_depthwise_kernel_size=3, left_max_position_embeddings=4),
        noise("input_features", 2, 6, 8),
    ),
    "wav2vec2-bert:relative": Tiny(
        "Wav2Vec2BertModel",
        sized(feature_projection_input_dim=8, conv_depthwise_kernel_size=3, position_embeddings_type="relative"),
        noise("input_features", 2, 6, 8),
    ),
    "wav2vec2-bert:rotary": Tiny(
        "Wav2Vec2BertModel",
        sized(feature_projection_input_dim=8, conv_depthwise_kernel_size=3, position_embeddings_type="rotary"),
        noise("input_features", 2, 6, 8),
    ),
    "wav2vec2-conformer": Tiny("Wav2Vec2ConformerModel", waves(conv_depthwise_kernel_size=3), wave),
    "whisper": Tiny(
        "WhisperForConditionalGeneration",
        {
            "vocab_size": VOCAB,
            "num_mel_bins": 8,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 20,
            "decoder_ffn_dim": 20,
            "d_model": 16,
            "max_source_positions": 6,
            "max_target_positions": 24,
            "decoder_start_token_id": 1,
            "pad_token_id": PAD,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
        frames,
    ),
}
