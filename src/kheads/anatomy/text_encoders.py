"""Text encoders: BERT and its kin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kheads.anatomy.layout import IndexedArgument, Layout
from kheads.anatomy.patterns import BERT, LLAMA, VIT, Table, alike


def _attends_fully(site: Any) -> bool:
    return bool(site.attention_type == "original_full")


def _keeps_heads_apart(site: Any) -> bool:
    return not site.self.talking_head


def _writes(site: Any) -> bool:
    return bool(site.self.config.is_decoder)


LAYOUTS: Table = {
    **alike(
        BERT,
        """BertAttention RobertaAttention XLMRobertaAttention XLMRobertaXLAttention CamembertAttention ElectraAttention
        ErnieAttention Data2VecTextAttention LayoutLMAttention EsmAttention MobileBertAttention MegatronBertAttention
        RemBertAttention RoFormerAttention BertGenerationAttention RobertaPreLayerNormAttention RoCBertAttention
        XmodAttention""",
    ),
    **alike(VIT, "NomicBertAttention GteAttention JinaEmbeddingsV3Attention"),
    **alike(LLAMA, "EuroBertAttention"),
    "BlipTextAttention": (replace(BERT, kind="decoder", when=_writes), BERT),
    "BigBirdAttention": (replace(BERT, when=_attends_fully),),
    "DistilBertSelfAttention": (
        Layout(
            o="out_lin",
            rows={"q_lin": "q", "k_lin": "k", "v_lin": "v"},
            width="attention_head_size",
            counts={"n_heads": "heads", "dim": "heads*width"},
        ),
    ),
    "AlbertAttention": (
        Layout(
            o="dense",
            rows={"query": "q", "key": "k", "value": "v"},
            width="attention_head_size",
            counts={"num_attention_heads": "heads", "all_head_size": "heads*width"},
        ),
    ),
    "ModernBertAttention": (Layout(o="Wo", rows={"Wqkv": "q k v"}),),
    "MPNetSelfAttention": (
        Layout(
            o="o",
            rows={"q": "q", "k": "k", "v": "v"},
            width="attention_head_size",
            counts={"num_attention_heads": "heads", "all_head_size": "heads*width"},
            bias=IndexedArgument(("position_bias",), axis=1),
        ),
    ),
    "DebertaAttention": (
        replace(
            BERT,
            rows={
                "self.in_proj": "[q k v]",
                "self.q_bias": "q",
                "self.v_bias": "v",
                "self.pos_proj": "k",
                "self.pos_q_proj": "q",
            },
            empty=False,
            when=_keeps_heads_apart,
        ),
    ),
    "DebertaV2Attention": (
        replace(
            BERT,
            rows={
                "self.query_proj": "q",
                "self.key_proj": "k",
                "self.value_proj": "v",
                "self.pos_key_proj": "k",
                "self.pos_query_proj": "q",
            },
            empty=False,
        ),
    ),
    "LayoutLMv3Attention": (replace(BERT, bias=IndexedArgument(("rel_pos", "rel_2d_pos"), axis=1), empty=False),),
    "FunnelRelMultiheadAttention": (
        Layout(
            o="post_proj",
            rows={"q_head": "q", "k_head": "k", "v_head": "v"},
            width="config.d_head",
            per_head={"r_w_bias": 0, "r_r_bias": 0, "r_s_bias": 0, "r_kernel": 1, "seg_embed": 1},
            counts={"config.n_head": "heads"},
            kind="encoder",
        ),
    ),
}

TYPES: dict[str, str] = {
    "albert": "AlbertAttention",
    "bert": "BertAttention",
    "bert-generation": "BertGenerationAttention",
    "big_bird": "BigBirdAttention",
    "blip_text_model": "BlipTextAttention",
    "camembert": "CamembertAttention",
    "data2vec-text": "Data2VecTextAttention",
    "deberta": "DebertaAttention",
    "deberta-v2": "DebertaV2Attention",
    "distilbert": "DistilBertSelfAttention",
    "electra": "ElectraAttention",
    "ernie": "ErnieAttention",
    "esm": "EsmAttention",
    "eurobert": "EuroBertAttention",
    "funnel": "FunnelRelMultiheadAttention",
    "gte": "GteAttention",
    "jina_embeddings_v3": "JinaEmbeddingsV3Attention",
    "layoutlm": "LayoutLMAttention",
    "layoutlmv3": "LayoutLMv3Attention",
    "megatron-bert": "MegatronBertAttention",
    "mobilebert": "MobileBertAttention",
    "modernbert": "ModernBertAttention",
    "mpnet": "MPNetSelfAttention",
    "nomic_bert": "NomicBertAttention",
    "rembert": "RemBertAttention",
    "roberta": "RobertaAttention",
    "roberta-prelayernorm": "RobertaPreLayerNormAttention",
    "roc_bert": "RoCBertAttention",
    "roformer": "RoFormerAttention",
    "xlm-roberta": "XLMRobertaAttention",
    "xlm-roberta-xl": "XLMRobertaXLAttention",
    "xmod": "XmodAttention",
}
