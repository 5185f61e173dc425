"""Decoders: language models that write from left to right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kheads.anatomy.layout import IndexedArgument, Layout
from kheads.anatomy.patterns import BART, LLAMA, Table, alike

GPT2 = Layout(
    o="c_proj",
    rows={"c_attn": "q k v"},
    counts={"num_heads": "heads", "split_size": "heads*width"},
    empty=False,
)
# Query and key norms over all heads: their projections stay whole, and the kept heads are taken after the norm.
OLMO2 = replace(LLAMA, rows={"v_proj": "v"}, selected={"q_norm": "q", "k_norm": "k"})
# Latent attention: what all heads share, and the cache, stays as it is.
DEEPSEEK = Layout(
    o="o_proj",
    rows={"q_proj": "q", "q_b_proj": "q", "kv_b_proj": "[k v]"},
    width="v_head_dim",
    sizes={"q": "qk_head_dim", "k": "qk_nope_head_dim"},
    counts={"num_heads": "heads"},
)
FALCON = Layout(
    o="dense", rows={"query_key_value": "[q k v]"}, counts={"num_heads": "heads"}, empty=False, kind="decoder"
)
BIGCODE = replace(GPT2, counts={**GPT2.counts, "embed_dim": "heads*width", "num_key_value_groups": "group"})


def _is_cross(site: Any) -> bool:
    return bool(site.is_cross_attention)


def _one_key_head(site: Any) -> bool:
    return bool(site.multi_query)


def _grouped(site: Any) -> bool:
    return bool(site.new_decoder_architecture)


def _calls_its_projection(site: Any) -> bool:
    return not (site.pretraining_tp > 1 and site.slow_but_exact)


LAYOUTS: Table = {
    **alike(
        LLAMA,
        """LlamaAttention MistralAttention MixtralAttention Qwen2Attention Qwen2MoeAttention Qwen3Attention
        Qwen3MoeAttention GemmaAttention Gemma2Attention Gemma3Attention SmolLM3Attention Starcoder2Attention
        GraniteAttention GraniteMoeAttention OlmoAttention GlmAttention Glm4Attention Cohere2Attention Exaone4Attention
        PhimoeAttention ArceeAttention ApertusAttention HeliumAttention SeedOssAttention MinistralAttention
        Ernie4_5Attention""",
    ),
    **alike(OLMO2, "Olmo2Attention Olmo3Attention OlmoeAttention FlexOlmoAttention"),
    "DeepseekV2Attention": (replace(DEEPSEEK, empty=False),),
    "DeepseekV3Attention": (DEEPSEEK,),
    "NemotronAttention": (replace(LLAMA, counts={**LLAMA.counts, "num_heads": "heads", "num_key_value_heads": "kv"}),),
    "CohereAttention": (replace(LLAMA, per_head={"q_norm.weight": 0, "kv:k_norm.weight": 0}),),
    "StableLmAttention": (
        replace(
            LLAMA,
            counts={**LLAMA.counts, "num_heads": "heads", "num_key_value_heads": "kv"},
            per_head={"q_layernorm.norms": 0, "kv:k_layernorm.norms": 0},
            empty=False,
        ),
    ),
    "GptOssAttention": (replace(LLAMA, per_head={"sinks": 0}),),
    "Qwen3NextAttention": (replace(LLAMA, rows={"q_proj": "[q gate]", "k_proj": "k", "v_proj": "v"}),),
    "PhiAttention": (replace(LLAMA, o="dense"),),
    "Phi3Attention": (
        Layout(
            o="o_proj",
            rows={"qkv_proj": "q k v"},
            counts={
                "num_key_value_groups": "group",
                "num_key_value_heads": "kv",
                "config.num_attention_heads": "heads",
            },
        ),
    ),
    "GPT2Attention": (
        replace(GPT2, rows={"q_attn": "q", "c_attn": "k v"}, when=_is_cross),
        replace(GPT2, when=lambda site: not _is_cross(site)),
    ),
    "GPTBigCodeAttention": (
        replace(BIGCODE, when=lambda site: _one_key_head(site) and not _is_cross(site)),
        replace(BIGCODE, rows={"c_attn": "[q k v]"}, when=lambda site: not (_one_key_head(site) or _is_cross(site))),
    ),
    "GPTNeoXAttention": (Layout(o="dense", rows={"query_key_value": "[q k v]"}, width="head_size"),),
    "PersimmonAttention": (
        Layout(o="dense", rows={"query_key_value": "[q k v]"}, counts={"num_heads": "heads"}, kind="decoder"),
    ),
    "MptAttention": (
        Layout(
            o="out_proj",
            rows={"Wqkv": "q k v"},
            counts={"n_heads": "heads"},
            bias=IndexedArgument(("position_bias",), axis=0),
            kind="decoder",
        ),
    ),
    "BloomAttention": (
        replace(FALCON, bias=IndexedArgument(("alibi",), axis=0, fused=True), when=_calls_its_projection),
    ),
    "FalconAttention": (
        replace(
            FALCON,
            rows={"query_key_value": "{q k v}"},
            counts={"num_heads": "heads", "num_kv_heads": "kv"},
            bias=IndexedArgument(("alibi", "attention_mask"), axis=1),
            when=_grouped,
        ),
        replace(
            FALCON,
            rows={"query_key_value": "q k v"},
            bias=IndexedArgument(("alibi", "attention_mask"), axis=1),
            when=_one_key_head,
        ),
        replace(
            FALCON,
            counts={"num_heads": "heads", "num_kv_heads": "heads"},
            bias=IndexedArgument(("alibi", "attention_mask"), axis=1),
        ),
    ),
    "GPTNeoSelfAttention": (replace(BART, kind="decoder"),),
    "GPTJAttention": (replace(BART, counts={"num_attention_heads": "heads"}, kind="decoder"),),
    "OPTAttention": (replace(BART, empty=False, kind="decoder"),),
    "XGLMAttention": (replace(BART, counts={"num_heads": "heads", "embed_dim": "heads*width"}, empty=False),),
    "BioGptAttention": (replace(BART, kind="decoder"),),
    "ModernBertDecoderAttention": (
        Layout(
            o="Wo",
            rows={"q_proj": "q", "k_proj": "k", "v_proj": "v"},
            counts={"num_heads": "heads", "all_head_size": "heads*width"},
            kind="decoder",
        ),
    ),
}

TYPES: dict[str, str] = {
    "apertus": "ApertusAttention",
    "arcee": "ArceeAttention",
    "biogpt": "BioGptAttention",
    "bloom": "BloomAttention",
    "cohere": "CohereAttention",
    "cohere2": "Cohere2Attention",
    "deepseek_v2": "DeepseekV2Attention",
    "deepseek_v3": "DeepseekV3Attention",
    "ernie4_5": "Ernie4_5Attention",
    "exaone4": "Exaone4Attention",
    "falcon": "FalconAttention",
    "flex_olmo": "FlexOlmoAttention",
    "gemma": "GemmaAttention",
    "gemma2": "Gemma2Attention",
    "gemma3_text": "Gemma3Attention",
    "glm": "GlmAttention",
    "glm4": "Glm4Attention",
    "gpt2": "GPT2Attention",
    "gpt_bigcode": "GPTBigCodeAttention",
    "gpt_neo": "GPTNeoSelfAttention",
    "gpt_neox": "GPTNeoXAttention",
    "gpt_oss": "GptOssAttention",
    "gptj": "GPTJAttention",
    "granite": "GraniteAttention",
    "granitemoe": "GraniteMoeAttention",
    "helium": "HeliumAttention",
    "llama": "LlamaAttention",
    "ministral": "MinistralAttention",
    "mistral": "MistralAttention",
    "mixtral": "MixtralAttention",
    "modernbert-decoder": "ModernBertDecoderAttention",
    "mpt": "MptAttention",
    "nemotron": "NemotronAttention",
    "olmo": "OlmoAttention",
    "olmo2": "Olmo2Attention",
    "olmo3": "Olmo3Attention",
    "olmoe": "OlmoeAttention",
    "opt": "OPTAttention",
    "persimmon": "PersimmonAttention",
    "phi": "PhiAttention",
    "phi3": "Phi3Attention",
    "phimoe": "PhimoeAttention",
    "qwen2": "Qwen2Attention",
    "qwen2_moe": "Qwen2MoeAttention",
    "qwen3": "Qwen3Attention",
    "qwen3_moe": "Qwen3MoeAttention",
    "qwen3_next": "Qwen3NextAttention",
    "seed_oss": "SeedOssAttention",
    "smollm3": "SmolLM3Attention",
    "stablelm": "StableLmAttention",
    "starcoder2": "Starcoder2Attention",
    "xglm": "XGLMAttention",
}
