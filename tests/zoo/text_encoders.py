"""Tiny text encoders."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.tiny import PAD, VOCAB, Tiny, noise, text


def sized(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 20,
        "max_position_embeddings": 24,
        "pad_token_id": PAD,
        **extra,
    }


def page() -> dict[str, Tensor]:
    """Text with boxes and a picture."""
    boxes = torch.randint(0, 20, (2, 6, 2), generator=torch.Generator().manual_seed(4))
    pixels = torch.randn((2, 3, 8, 8), generator=torch.Generator().manual_seed(5))
    return {**text(), "bbox": torch.cat([boxes, boxes + 3], dim=-1), "pixel_values": pixels}


def seen() -> dict[str, Tensor]:
    """Text with what an encoder has made of an image."""
    return {**text(), **noise("encoder_hidden_states", 2, 5, 12)()}


MODELS: dict[str, Tiny] = {
    "albert": Tiny("AlbertModel", sized(embedding_size=12, num_hidden_groups=1)),
    "bert": Tiny("BertForSequenceClassification", sized(num_labels=3)),
    "bert-generation": Tiny("BertGenerationEncoder", sized()),
    "big_bird": Tiny("BigBirdModel", sized(attention_type="original_full")),
    "blip_text_model": Tiny(
        "BlipTextLMHeadModel",
        sized(encoder_hidden_size=12, bos_token_id=1, eos_token_id=2, sep_token_id=3),
        seen,
        static=False,  # its self- and cross-attention would share one static cache
    ),
    "blip_text_model:encoder": Tiny("BlipTextModel", sized(is_decoder=False, sep_token_id=3)),
    "camembert": Tiny("CamembertForTokenClassification", sized()),
    "data2vec-text": Tiny("Data2VecTextModel", sized()),
    "deberta": Tiny(
        "DebertaModel",
        sized(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=8, type_vocab_size=0),
    ),
    "deberta-v2": Tiny(
        "DebertaV2Model",
        sized(relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4, type_vocab_size=0),
    ),
    "deberta-v2:shared": Tiny(
        "DebertaV2Model",
        sized(
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_buckets=4,
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            type_vocab_size=0,
        ),
    ),
    "distilbert": Tiny(
        "DistilBertModel",
        {
            "vocab_size": VOCAB,
            "dim": 16,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 20,
            "max_position_embeddings": 24,
            "pad_token_id": PAD,
        },
    ),
    "electra": Tiny("ElectraForSequenceClassification", sized(embedding_size=12)),
    "ernie": Tiny("ErnieModel", sized()),
    "esm": Tiny("EsmModel", sized(position_embedding_type="rotary", mask_token_id=3, token_dropout=False)),
    "eurobert": Tiny("EuroBertModel", sized(num_attention_heads=4, num_key_value_heads=2)),
    "funnel": Tiny(
        "FunnelModel",
        {
            "vocab_size": VOCAB,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
            "d_model": 16,
            "n_head": 4,
            "d_head": 6,
            "d_inner": 20,
            "pad_token_id": PAD,
        },
    ),
    "gte": Tiny("GteModel", sized()),
    "jina_embeddings_v3": Tiny("JinaEmbeddingsV3Model", sized()),
    "layoutlm": Tiny("LayoutLMModel", sized(max_2d_position_embeddings=32)),
    "layoutlmv3": Tiny(
        "LayoutLMv3Model",
        sized(
            coordinate_size=3,
            shape_size=2,
            rel_pos_bins=8,
            rel_2d_pos_bins=8,
            max_2d_position_embeddings=32,
            input_size=8,
            patch_size=4,
        ),
        page,
    ),
    "megatron-bert": Tiny("MegatronBertModel", sized()),
    "mobilebert": Tiny(
        "MobileBertModel",
        sized(embedding_size=8, intra_bottleneck_size=16, hidden_size=24, num_feedforward_networks=2),
        scale=0.5,
    ),
    "modernbert": Tiny(
        "ModernBertModel", sized(global_attn_every_n_layers=2, local_attention=4, cls_token_id=1, sep_token_id=2)
    ),
    "mpnet": Tiny("MPNetModel", sized()),
    "nomic_bert": Tiny("NomicBertModel", sized()),
    "rembert": Tiny("RemBertModel", sized(input_embedding_size=8, output_embedding_size=8)),
    "roberta": Tiny("RobertaForTokenClassification", sized(num_labels=3)),
    "roberta-prelayernorm": Tiny("RobertaPreLayerNormModel", sized()),
    "roc_bert": Tiny(
        "RoCBertModel",
        sized(pronunciation_embed_dim=8, pronunciation_vocab_size=VOCAB, shape_embed_dim=8, shape_vocab_size=VOCAB),
    ),
    "roformer": Tiny("RoFormerModel", sized(embedding_size=12)),
    "xlm-roberta": Tiny("XLMRobertaModel", sized()),
    "xlm-roberta-xl": Tiny("XLMRobertaXLModel", sized()),
    "xmod": Tiny("XmodModel", sized(default_language="en_XX")),
}
