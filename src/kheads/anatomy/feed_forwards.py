"""Feed-forward layers: where the neurons of each class lie, and which classes have none that could go.

A neuron is a head of width 1: a row of every projection before the activation, a column of the one after it. Classes
go by the module that holds both, which for BERT and BART is the whole layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kheads.anatomy.layout import Layout
from kheads.anatomy.patterns import Table, alike


def _neurons(o: str, *inputs: str, rows: str = "n") -> Layout:
    """Neurons between projections: `n` is one row each, `n n` two halves of a fused projection."""
    return Layout(o, dict.fromkeys(inputs, rows), width=1, counts={"intermediate_size": "heads"}, kind="ffn")


def _named(ending: str, names: str) -> str:
    return " ".join(f"{name}{ending}" for name in names.split())


def _calls_its_projection(feed: Any) -> bool:
    return not (feed.pretraining_tp > 1 and feed.slow_but_exact)


BERT = _neurons("output.dense", "intermediate.dense")
FC = _neurons("fc2", "fc1")
WAV2VEC2 = _neurons("output_dense", "intermediate_dense")
LLAMA = _neurons("down_proj", "gate_proj", "up_proj")
UNGATED = _neurons("down_proj", "up_proj")
GPT2 = _neurons("c_proj", "c_fc")
BLOOM = _neurons("dense_4h_to_h", "dense_h_to_4h")

FEEDS: Table = {
    **alike(
        BERT,
        _named(
            "Layer",
            """Bert BertGeneration BigBird BlipText Camembert Data2VecText Deberta DebertaV2 Electra Ernie Esm LayoutLM
            LayoutLMv3 MegatronBert MobileBert MPNet RemBert Roberta RobertaPreLayerNorm RoCBert RoFormer XLMRoberta
            XLMRobertaXL Xmod AltRoberta ChineseCLIPText Git Swinv2 VideoMAE Vilt Yolos ClapAudio ClapText""",
        ),
    ),
    "FFNLayer": (BERT,),  # MobileBERT's further ones
    **alike(
        FC,
        _named(
            "EncoderLayer",
            """Bart BlenderbotSmall Blenderbot M2M100 Marian MBart Mvp Pegasus PLBart Speech2Text TimeSeriesTransformer
            Whisper""",
        ),
    ),
    **alike(
        FC,
        _named(
            "DecoderLayer",
            """Bart BlenderbotSmall Blenderbot M2M100 Marian MBart Mvp Pegasus PLBart Speech2Text TimeSeriesTransformer
            Whisper BioGpt OPT XGLM""",
        ),
    ),
    **alike(
        FC,
        _named(
            "MLP",
            """AltCLIP Beit ChineseCLIPVision CLIP CLIPSeg DeiT Detr Dinov2 Dinov2WithRegisters GitVision IJepa
            MetaClip2 Owlv2 OwlViT Siglip Siglip2 Swin ViT ViTMAE ViTMSN Vivit AST JinaEmbeddingsV3 MoonshineEncoder
            Phi""",
        ),
    ),
    "NllbMoeDenseActDense": (FC,),
    "MoonshineDecoderMLP": (_neurons("fc2", "fc1", rows="n n"),),
    "AlbertLayer": (_neurons("ffn_output", "ffn"),),
    **alike(
        WAV2VEC2,
        _named(
            "FeedForward",
            "Data2VecAudio Hubert SEW UniSpeech UniSpeechSat Wav2Vec2 SpeechT5 Wav2Vec2Bert Wav2Vec2Conformer",
        ),
    ),
    "FFN": (_neurons("lin2", "lin1"),),  # DistilBERT's
    "FunnelPositionwiseFFN": (_neurons("linear_2", "linear_1"),),
    **alike(_neurons("wo", "wi"), _named("DenseActDense", "T5 MT5 UMT5 LongT5 Pop2Piano SwitchTransformers")),
    **alike(
        _neurons("wo", "wi_0", "wi_1"),
        _named("DenseGatedActDense", "T5 MT5 UMT5 LongT5 Pop2Piano"),
    ),
    **alike(
        LLAMA,
        _named(
            "MLP",
            """EuroBert NomicBert T5Gemma Cohere Cohere2 DeepseekV2 DeepseekV3 Exaone4 Gemma Gemma2 Gemma3 Granite
            Helium Llama Ministral Mistral Olmo Olmo2 Olmo3 Qwen2 Qwen2Moe Qwen3 Qwen3Moe Qwen3Next SeedOss SmolLM3
            StableLm Gte Ernie4_5""",
        ),
    ),
    **alike(LLAMA, "Dinov2SwiGLUFFN Dinov2WithRegistersSwiGLUFFN DINOv3ViTGatedMLP"),
    **alike(UNGATED, _named("MLP", "Apertus Arcee Mpt Nemotron DINOv3ViT")),
    **alike(_neurons("Wo", "Wi", rows="n n"), "ModernBertMLP ModernBertDecoderMLP"),
    **alike(_neurons("down_proj", "gate_up_proj", rows="n n"), "GlmMLP Glm4MLP Phi3MLP"),
    **alike(BLOOM, "GPTNeoXMLP PersimmonMLP FalconMLP"),
    "BloomMLP": (replace(BLOOM, when=_calls_its_projection),),
    "GPT2MLP": (replace(GPT2, empty=False),),
    **alike(GPT2, "GPTBigCodeMLP GPTNeoMLP Starcoder2MLP"),
    "GPTJMLP": (_neurons("fc_out", "fc_in"),),
}

# Mixtures of experts by model type. What lies inside one is no site; it stays whole.
MIXTURES: Mapping[str, str] = {
    "deepseek_v2": "DeepseekV2Moe",
    "deepseek_v3": "DeepseekV3MoE",
    "flex_olmo": "FlexOlmoSparseMoeBlock",
    "gpt_oss": "GptOssMLP",
    "granitemoe": "GraniteMoeMoE",
    "mixtral": "MixtralSparseMoeBlock",
    "nllb-moe": "NllbMoeSparseMLP",
    "olmoe": "OlmoeSparseMoeBlock",
    "phimoe": "PhimoeSparseMoeBlock",
    "qwen2_moe": "Qwen2MoeSparseMoeBlock",
    "qwen3_moe": "Qwen3MoeSparseMoeBlock",
    "qwen3_next": "Qwen3NextSparseMoeBlock",
    "switch_transformers": "SwitchTransformersSparseMLP",
}
_EXPERTS = "each token goes to experts of its own, and most mixtures have no projection per expert that could be gated"
REFUSED_FEEDS: Mapping[str, str] = {
    **dict.fromkeys(MIXTURES.values(), _EXPERTS),
    "BloomMLP": "with `pretraining_tp` above 1 and `slow_but_exact` it bypasses its output projection",
    "BitNetMLP": "a norm lies between its neurons and the output projection, so gating is not removal",
}
