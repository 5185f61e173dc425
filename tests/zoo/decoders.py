"""Tiny language models."""

from __future__ import annotations

from typing import Any

from zoo.text_encoders import sized
from zoo.tiny import PAD, VOCAB, Tiny

MIXED = ["sliding_attention", "full_attention"]
EXPERTS = {
    "num_experts": 2,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 12,
    "decoder_sparse_step": 1,
}


def gpts(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 24,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": PAD,
        **extra,
    }


def plain(**extra: Any) -> dict[str, Any]:
    return sized(bos_token_id=1, eos_token_id=2, **extra)


def llamas(**extra: Any) -> dict[str, Any]:
    """Eight query heads that share four keys and values."""
    shared = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6, "attention_bias": True}
    return plain(**{**shared, **extra})


def latent(**extra: Any) -> dict[str, Any]:
    return plain(
        num_key_value_heads=4,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_nope_head_dim=4,
        qk_rope_head_dim=2,
        v_head_dim=5,
        attention_bias=True,
        first_k_dense_replace=1,
        n_routed_experts=2,
        num_experts_per_tok=1,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=12,
        **extra,
    )


def falcons(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "bias": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": PAD,
        **extra,
    }


MODELS: dict[str, Tiny] = {
    "apertus": Tiny("ApertusForCausalLM", llamas()),
    "arcee": Tiny("ArceeForCausalLM", llamas()),
    "biogpt": Tiny("BioGptForCausalLM", plain()),
    "bloom": Tiny("BloomForCausalLM", falcons(n_layer=2, n_head=4)),
    "cohere": Tiny("CohereForCausalLM", llamas(head_dim=2)),
    "cohere:norms": Tiny("CohereForCausalLM", llamas(head_dim=2, use_qk_norm=True)),
    "cohere2": Tiny("Cohere2ForCausalLM", llamas(sliding_window=4, layer_types=MIXED)),
    "deepseek_v2": Tiny("DeepseekV2ForCausalLM", latent()),
    "deepseek_v3": Tiny("DeepseekV3ForCausalLM", latent()),
    "deepseek_v3:whole": Tiny("DeepseekV3ForCausalLM", {**latent(), "q_lora_rank": None}),
    "ernie4_5": Tiny("Ernie4_5ForCausalLM", llamas(use_bias=True)),
    "exaone4": Tiny("Exaone4ForCausalLM", llamas(sliding_window=4, layer_types=MIXED)),
    "falcon": Tiny("FalconForCausalLM", falcons(multi_query=True, new_decoder_architecture=False)),
    "falcon:grouped": Tiny(
        "FalconForCausalLM", falcons(num_kv_heads=2, new_decoder_architecture=True, num_attention_heads=8)
    ),
    "falcon:alibi": Tiny(
        "FalconForCausalLM",
        falcons(multi_query=False, new_decoder_architecture=False, alibi=True),
        static=False,  # its ALiBi is made from a mask of two dimensions
    ),
    "flex_olmo": Tiny("FlexOlmoForCausalLM", llamas(**EXPERTS, norm_topk_prob=False)),
    "gemma": Tiny("GemmaForCausalLM", llamas(), scale=0.6),
    "gemma2": Tiny("Gemma2ForCausalLM", llamas(sliding_window=4, query_pre_attn_scalar=6), scale=0.6),
    "gemma3_text": Tiny(
        "Gemma3ForCausalLM", llamas(sliding_window=4, query_pre_attn_scalar=6, layer_types=MIXED), scale=0.6
    ),
    "glm": Tiny("GlmForCausalLM", llamas()),
    "glm4": Tiny("Glm4ForCausalLM", llamas()),
    "gpt2": Tiny("GPT2LMHeadModel", gpts()),
    "gpt_bigcode": Tiny("GPTBigCodeForCausalLM", gpts(multi_query=True)),
    "gpt_bigcode:apart": Tiny("GPTBigCodeForCausalLM", gpts(multi_query=False)),
    "gpt_neo": Tiny(
        "GPTNeoForCausalLM",
        {
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 24,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": PAD,
        },
        static=False,  # its window assumes that the cache ends at the last token
    ),
    "gpt_neox": Tiny("GPTNeoXForCausalLM", plain()),
    "gpt_oss": Tiny("GptOssForCausalLM", llamas(**EXPERTS, sliding_window=4, layer_types=MIXED)),
    "gptj": Tiny("GPTJForCausalLM", gpts(rotary_dim=2)),
    "granite": Tiny("GraniteForCausalLM", llamas()),
    "granitemoe": Tiny("GraniteMoeForCausalLM", llamas(**EXPERTS)),
    "helium": Tiny("HeliumForCausalLM", llamas(head_dim=2)),
    "llama": Tiny("LlamaForCausalLM", llamas()),
    "ministral": Tiny("MinistralForCausalLM", llamas(sliding_window=4, layer_types=MIXED)),
    "mistral": Tiny("MistralForCausalLM", llamas(sliding_window=4)),
    "mixtral": Tiny("MixtralForCausalLM", llamas(**EXPERTS)),
    "modernbert-decoder": Tiny(
        "ModernBertDecoderForCausalLM",
        plain(local_attention=4, layer_types=MIXED, cls_token_id=1, sep_token_id=2),
    ),
    "mpt": Tiny(
        "MptForCausalLM",
        {
            "vocab_size": VOCAB,
            "d_model": 16,
            "n_heads": 4,
            "n_layers": 2,
            "max_seq_len": 24,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": PAD,
        },
    ),
    "nemotron": Tiny("NemotronForCausalLM", llamas()),
    "olmo": Tiny("OlmoForCausalLM", llamas()),
    "olmo2": Tiny("Olmo2ForCausalLM", llamas()),
    "olmo3": Tiny("Olmo3ForCausalLM", llamas(sliding_window=4, layer_types=MIXED)),
    "olmoe": Tiny("OlmoeForCausalLM", llamas(**EXPERTS, head_dim=2, clip_qkv=4.0)),
    "opt": Tiny("OPTForCausalLM", plain(ffn_dim=20, word_embed_proj_dim=16, do_layer_norm_before=True)),
    "persimmon": Tiny("PersimmonForCausalLM", plain()),
    "phi": Tiny("PhiForCausalLM", llamas(head_dim=2, qk_layernorm=True, partial_rotary_factor=1.0)),
    "phi3": Tiny("Phi3ForCausalLM", llamas(head_dim=2)),
    "phimoe": Tiny("PhimoeForCausalLM", llamas(**EXPERTS)),
    "qwen2": Tiny("Qwen2ForCausalLM", llamas()),
    "qwen2_moe": Tiny("Qwen2MoeForCausalLM", llamas(**EXPERTS)),
    "qwen3": Tiny("Qwen3ForCausalLM", llamas(use_sliding_window=True, sliding_window=4, layer_types=MIXED)),
    "qwen3_moe": Tiny("Qwen3MoeForCausalLM", llamas(**EXPERTS)),
    "qwen3_next": Tiny(
        "Qwen3NextForCausalLM",
        llamas(
            **EXPERTS,
            layer_types=["linear_attention", "full_attention"],
            linear_conv_kernel_dim=2,
            linear_key_head_dim=4,
            linear_value_head_dim=4,
            linear_num_key_heads=2,
            linear_num_value_heads=2,
        ),
    ),
    "seed_oss": Tiny("SeedOssForCausalLM", llamas(attention_out_bias=True)),
    "smollm3": Tiny("SmolLM3ForCausalLM", llamas()),
    "stablelm": Tiny("StableLmForCausalLM", llamas(head_dim=2, use_qkv_bias=True, partial_rotary_factor=1.0)),
    "stablelm:norms": Tiny("StableLmForCausalLM", llamas(head_dim=2, qk_layernorm=True, partial_rotary_factor=1.0)),
    "starcoder2": Tiny("Starcoder2ForCausalLM", llamas()),
    "xglm": Tiny(
        "XGLMForCausalLM",
        {
            "vocab_size": VOCAB,
            "d_model": 16,
            "num_layers": 2,
            "attention_heads": 4,
            "ffn_dim": 20,
            "max_position_embeddings": 24,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": PAD,
        },
    ),
}
