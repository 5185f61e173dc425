"""How each type's config says how many heads and neurons its model has, as data.

A model with fewer heads of the same width is one that plain `from_pretrained` builds only if the config can say both
numbers. Most can say the number of neurons; `tests/storage/test_vanilla.py` tries every type of the zoo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

NO_WIDTH = "its config has no field for a head's width, so with fewer heads each would be wider"
NORM = "its norms run over all heads at once, and with fewer heads they would be other norms"
BIAS = "its position biases are made outside the attentions, for all heads of the original"
OWN_SUMS = "its numbers of heads follow from other sizes"


@dataclass(frozen=True)
class Numbers:
    """The fields of a config that say the sizes of some sites.

    A dot leads into an inner config, and two names say the same number twice.

    Attributes:
        heads: how many query heads; None if fewer heads cannot be said.
        kv: how many key-value heads, where it is said apart.
        width: where a head's width is written, although the class may not declare the field; None if it is said anyway.
        neurons: how many neurons; None if that cannot be said.
        multiple_of_heads: the field that the class insists is a multiple of the number of query heads.
        at: the part of a site's name that shows that it belongs here; empty for all sites.
        why: why fewer heads cannot be said.
    """

    heads: str | None = None
    kv: str | None = None
    width: str | None = "head_dim"
    neurons: str | None = "intermediate_size"
    multiple_of_heads: str | None = None
    at: str = ""
    why: str = NO_WIDTH


GROUPED = Numbers("num_attention_heads", "num_key_value_heads")
STRICT = replace(GROUPED, multiple_of_heads="hidden_size")
EXPERTS = replace(GROUPED, neurons=None)
PLAIN = Numbers("num_attention_heads")
FEED = Numbers()
# One number for both stacks; a head's width is `d_kv`.
T5 = Numbers("num_heads", width=None, neurons="d_ff")
# Latent attention: the widths of its parts have fields of their own.
LATENT = replace(GROUPED, width=None)
# Its decoder takes some of its numbers from the encoder's fields.
MOONSHINE = Numbers(
    "encoder_num_attention_heads decoder_num_attention_heads",
    "encoder_num_key_value_heads decoder_num_key_value_heads",
)
T5GEMMA = tuple(
    Numbers(
        f"{side}.num_attention_heads",
        f"{side}.num_key_value_heads",
        f"{side}.head_dim",
        f"{side}.intermediate_size",
        f"{side}.hidden_size",
        side,
    )
    for side in ("encoder", "decoder")
)
BART = tuple(Numbers(neurons=f"{side}_ffn_dim", at=side) for side in ("encoder", "decoder"))
CLIP = tuple(Numbers(neurons=f"{side}_config.intermediate_size", at=f"{side}_model") for side in ("text", "vision"))


def _alike(numbers: Numbers | tuple[Numbers, ...], types: str) -> dict[str, tuple[Numbers, ...]]:
    return dict.fromkeys(types.split(), numbers if isinstance(numbers, tuple) else (numbers,))


NUMBERS: dict[str, tuple[Numbers, ...]] = {
    # ------------------------------------------------------------------------------- heads and neurons can be said
    **_alike(
        GROUPED,
        """apertus cohere cohere2 ernie4_5 exaone4 gemma glm glm4 granite ministral mistral nemotron olmo phi3 qwen2
        qwen3 seed_oss smollm3 starcoder2""",
    ),
    **_alike(STRICT, "llama arcee eurobert gemma2 gemma3_text"),
    **_alike(EXPERTS, "gpt_oss granitemoe mixtral phimoe qwen2_moe qwen3_moe qwen3_next"),
    **_alike(PLAIN, "gte jina_embeddings_v3 nomic_bert deit ijepa vit vit_mae vit_msn vivit"),
    "audio-spectrogram-transformer": (PLAIN,),
    **_alike(replace(PLAIN, neurons=None), "dinov2 dinov2_with_registers"),
    "funnel": (Numbers("n_head", width=None, neurons="d_inner"),),
    **_alike(T5, "t5 mt5 umt5 longt5 pop2piano"),
    "switch_transformers": (replace(T5, neurons=None),),
    "deepseek_v2": (replace(LATENT, multiple_of_heads="hidden_size"),),
    "deepseek_v3": (LATENT,),
    "moonshine": (MOONSHINE,),
    "t5gemma": T5GEMMA,
    # --------------------------------------------------------------------------------------- only neurons can be said
    **_alike(
        FEED,
        """albert bert bert-generation big_bird blip_text_model camembert data2vec-text deberta deberta-v2 electra ernie
        esm layoutlm layoutlmv3 megatron-bert mobilebert modernbert mpnet rembert roberta roberta-prelayernorm roc_bert
        roformer xlm-roberta xlm-roberta-xl xmod dinov3_vit videomae vilt yolos data2vec-audio hubert sew unispeech
        unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer biogpt gpt_neo gpt_neox helium modernbert-decoder
        persimmon phi stablelm""",
    ),
    "distilbert": (Numbers(neurons="hidden_dim"),),
    "falcon": (Numbers(neurons="ffn_hidden_size", why=OWN_SUMS),),
    **_alike(Numbers(neurons="n_inner"), "gpt2 gpt_bigcode gptj"),
    **_alike(Numbers(neurons="ffn_dim"), "opt xglm"),
    **_alike(replace(FEED, why=NORM), "olmo2 olmo3"),
    "beit": (replace(FEED, why=BIAS),),
    **_alike(
        BART,
        """bart blenderbot blenderbot-small m2m_100 marian mbart mvp pegasus plbart speech_to_text speecht5
        time_series_transformer whisper""",
    ),
    **_alike(CLIP, "altclip clip clipseg metaclip_2 owlv2 owlvit"),
    # -------------------------------------------------------------------------------------------- nothing can be said
    **_alike(Numbers(neurons=None, why=NORM), "flex_olmo olmoe"),
    **_alike(Numbers(neurons=None), "bloom mpt swin swinv2"),
}
