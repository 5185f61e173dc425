"""The residual stream: what each site adds to, and what comes of it. Layer class -> site -> `Stream`, as data.

A site is named by its path inside the layer, "" for the layer itself. A class has several entries where its config
decides between them; the one that adds up on a batch is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import nn

from kheads.anatomy.discovery import LocatedSite, table_key
from kheads.blocks.site import unwrap


@dataclass(frozen=True)
class Stream:
    """after = before + scale * y + beside, where y is what the site's output projection gives.

    A place is `in:`, `in1:` or `out:` with the path of a module inside the layer: its first or second input, or its
    output. No path means the layer.

    Attributes:
        before: where the stream is before the site.
        after: where it is afterwards. A post-norm layer has it at the input of the norm.
        scale: a number, or the attribute or parameter of the layer that has it; one that is None or absent is 1.
        beside: what else goes into the same sum.
    """

    before: str
    after: str
    scale: float | str = 1.0
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flow:
    """A site's place in the stream: its layer, and the entries of which one adds up; none, and why."""

    layer: str
    streams: tuple[Stream, ...] = ()
    why: str = ""


Row = TypeVar("Row")
Rows = Mapping[str, Stream]
Table = dict[str, tuple[Rows, ...]]


def _one_by_one(befores: Mapping[str, str], end: str = "out:") -> Rows:
    """Sites in order, each with its `before`, which is the `after` of the one before it."""
    afters = [*list(befores.values())[1:], end]
    return {site: Stream(before, after) for (site, before), after in zip(befores.items(), afters, strict=True)}


def _beside(attention: str, feed: str) -> Rows:
    """Attention and feed-forward read the same stream and go into one sum."""
    return {
        attention: Stream("in:", "out:", beside=(f"out:{feed}",)),
        feed: Stream("in:", "out:", beside=(f"out:{attention}",)),
    }


def _scaled(rows: Rows, scales: Mapping[str, float | str]) -> Rows:
    return {site: replace(stream, scale=scales.get(site, 1.0)) for site, stream in rows.items()}


def _alike(classes: str, *rows: Rows, ending: str = "") -> Table:
    return {f"{name}{ending}": rows for name in classes.split()}


_BERT = {
    "attention": Stream("in1:attention.output", "in:attention.output.LayerNorm"),
    "crossattention": Stream("in1:crossattention.output", "in:crossattention.output.LayerNorm"),
    "": Stream("in1:output", "in:output.LayerNorm"),
}
_PRE_BERT = {
    "attention": Stream("in1:attention.output", "out:attention.output"),
    "crossattention": Stream("in1:crossattention.output", "out:crossattention.output"),
    "": Stream("in1:output", "out:output"),
}
_POST_NORM = {
    "self_attn": Stream("in:", "in:self_attn_layer_norm"),
    "encoder_attn": Stream("out:self_attn_layer_norm", "in:encoder_attn_layer_norm"),
    "": Stream("in:fc1", "in:final_layer_norm"),
    "mlp": Stream("in:mlp", "in:final_layer_norm"),
    "feed_forward": Stream("in:feed_forward", "in:final_layer_norm"),
}
_PRE_NORM = _one_by_one({"self_attn": "in:", "": "in:final_layer_norm"})
_PRE_NORM_CROSSED = _one_by_one(
    {"self_attn": "in:", "encoder_attn": "in:encoder_attn_layer_norm", "": "in:final_layer_norm"}
)
_WAV2VEC2 = {
    "attention": Stream("in:", "in:layer_norm"),
    "feed_forward": Stream("in:feed_forward", "in:final_layer_norm"),
}
_LLAMA = _one_by_one({"self_attn": "in:", "mlp": "in:post_attention_layernorm"})
_VIT = _one_by_one({"attention": "in:", "mlp": "in:layernorm_after"})
_VIT_AS_BERT = _one_by_one({"attention": "in:", "": "in:layernorm_after"})
_DINO = _scaled(
    _one_by_one({"attention": "in:", "mlp": "in:norm2"}),
    {"attention": "layer_scale1.lambda1", "mlp": "layer_scale2.lambda1"},
)
_GRANITE = _scaled(_LLAMA, dict.fromkeys(_LLAMA, "residual_multiplier"))
_CONFORMER = _scaled(
    {
        "ffn1": Stream("in:", "in:self_attn_layer_norm"),
        "self_attn": Stream("in:self_attn_layer_norm", "in:conv_module"),
        "ffn2": Stream("in:ffn2_layer_norm", "in:final_layer_norm"),
    },
    {"ffn1": 0.5, "ffn2": 0.5},
)
_GPT2 = _one_by_one({"attn": "in:", "mlp": "in:ln_2"})
_GPT2_CROSSED = _one_by_one({"attn": "in:", "crossattention": "in:ln_cross_attn", "mlp": "in:ln_2"})
_T5 = {part: Stream(f"in:{part}", f"out:{part}") for part in ("layer.0", "layer.1", "layer.2")}

STREAMS: Table = {
    **_alike(
        """Bert BertGeneration BigBird BlipText Camembert Data2VecText Deberta DebertaV2 Electra Ernie LayoutLM
        LayoutLMv3 MobileBert RemBert Roberta RoCBert RoFormer XLMRoberta AltRoberta ChineseCLIPText ClapText Git
        FFN""",
        _BERT,
        ending="Layer",
    ),
    **_alike("Esm MegatronBert RobertaPreLayerNorm XLMRobertaXL", _PRE_BERT, ending="Layer"),
    "XmodLayer": ({**_PRE_BERT, "": _BERT[""]}, _PRE_BERT),
    "MPNetLayer": ({**_BERT, "attention": Stream("in:attention", "in:attention.LayerNorm")},),
    "AlbertLayer": (
        {
            "attention": Stream("in:attention", "in:attention.LayerNorm"),
            "": Stream("in:ffn", "in:full_layer_layer_norm"),
        },
    ),
    "TransformerBlock": (  # DistilBERT's
        {"attention": Stream("in:", "in:sa_layer_norm"), "ffn": Stream("in:ffn", "in:output_layer_norm")},
    ),
    **_alike(
        "Gte NomicBert JinaEmbeddingsV3",
        {
            "self_attn": Stream("in:", "in:post_attention_layernorm"),
            "mlp": Stream("in:mlp", "in:post_mlp_layernorm"),
        },
        ending="Layer",
    ),
    "FunnelLayer": (
        {
            "attention": Stream("in:attention", "in:attention.layer_norm"),
            "ffn": Stream("in:ffn", "in:ffn.layer_norm"),
        },
    ),
    **_alike("Bart BlenderbotSmall Marian Mvp PLBart TimeSeriesTransformer Detr", _POST_NORM, ending="EncoderLayer"),
    **_alike(
        "Bart BlenderbotSmall Marian Mvp PLBart TimeSeriesTransformer Detr SpeechT5", _POST_NORM, ending="DecoderLayer"
    ),
    **_alike("Whisper Blenderbot M2M100 MBart Pegasus Speech2Text", _PRE_NORM, ending="EncoderLayer"),
    **_alike("Whisper Blenderbot M2M100 MBart Pegasus Speech2Text", _PRE_NORM_CROSSED, ending="DecoderLayer"),
    **_alike("BioGpt OPT XGLM", _PRE_NORM, _POST_NORM, ending="DecoderLayer"),
    "NllbMoeEncoderLayer": (_one_by_one({"self_attn": "in:", "ffn": "in:ff_layer_norm"}),),
    "NllbMoeDecoderLayer": (
        _one_by_one(
            {"self_attn": "in:", "cross_attention": "in:cross_attention_layer_norm", "ffn": "in:ff_layer_norm"}
        ),
    ),
    **_alike("Data2VecAudio Hubert SEW UniSpeech UniSpeechSat Wav2Vec2 SpeechT5", _WAV2VEC2, ending="EncoderLayer"),
    **_alike(
        "Hubert UniSpeech UniSpeechSat Wav2Vec2",
        _one_by_one({"attention": "in:", "feed_forward": "in:final_layer_norm"}),
        ending="EncoderLayerStableLayerNorm",
    ),
    **_alike("Wav2Vec2Bert Wav2Vec2Conformer", _CONFORMER, ending="EncoderLayer"),
    **_alike(
        """EuroBert Arcee DeepseekV2 DeepseekV3 Ernie4_5 Gemma Glm GptOss Helium Llama Ministral Mistral Mixtral
        Nemotron Olmo Olmoe Persimmon Phi3 Phimoe Qwen2 Qwen2Moe Qwen3 Qwen3Moe Qwen3Next SeedOss SmolLM3 Starcoder2""",
        _LLAMA,
        ending="DecoderLayer",
    ),
    **_alike("Granite GraniteMoe", _GRANITE, ending="DecoderLayer"),
    "ApertusDecoderLayer": (_one_by_one({"self_attn": "in:", "mlp": "in:feedforward_layernorm"}),),
    "MoonshineEncoderLayer": (_LLAMA,),
    "MoonshineDecoderLayer": (
        _one_by_one({"self_attn": "in:", "encoder_attn": "in:post_attention_layernorm", "mlp": "in:final_layernorm"}),
    ),
    **_alike("Phi Cohere Cohere2", _beside("self_attn", "mlp"), ending="DecoderLayer"),
    "StableLmDecoderLayer": (_LLAMA, _beside("self_attn", "mlp")),
    "GPTJBlock": (_beside("attn", "mlp"),),
    "GPTNeoXLayer": (
        _beside("attention", "mlp"),
        _one_by_one({"attention": "in:", "mlp": "in:post_attention_layernorm"}),
    ),
    "FalconDecoderLayer": (
        _beside("self_attention", "mlp"),
        _one_by_one({"self_attention": "in:", "mlp": "in:post_attention_layernorm"}),
    ),
    "BloomBlock": (
        {
            "self_attention": Stream("in1:self_attention", "out:self_attention"),
            "mlp": Stream("in1:mlp", "out:mlp"),
        },
    ),
    **_alike("GPT2Block GPTBigCodeBlock GPTNeoBlock", _GPT2, _GPT2_CROSSED),
    "MptBlock": (_one_by_one({"attn": "in:", "ffn": "in:norm_2"}),),
    **_alike("ModernBertEncoderLayer ModernBertDecoderLayer", _one_by_one({"attn": "in:", "mlp": "in:mlp_norm"})),
    **_alike("T5 MT5 UMT5 LongT5 Pop2Piano SwitchTransformers", _T5, ending="Block"),
    **_alike(
        "AltCLIP CLIP CLIPSeg GitVision MetaClip2 Owlv2 OwlViT Siglip Siglip2",
        _one_by_one({"self_attn": "in:", "mlp": "in:layer_norm2"}),
        ending="EncoderLayer",
    ),
    "ChineseCLIPVisionLayer": (_one_by_one({"self_attn": "in:", "mlp": "in:layer_norm2"}),),
    **_alike("DeiT IJepa ViT ViTMAE ViTMSN Vivit AST", _VIT, ending="Layer"),
    **_alike("VideoMAE Vilt Yolos", _VIT_AS_BERT, ending="Layer"),
    "BeitLayer": (_scaled(_VIT, {"attention": "lambda_1", "mlp": "lambda_2"}),),
    **_alike("Dinov2 Dinov2WithRegisters DINOv3ViT", _DINO, ending="Layer"),
    "SwinLayer": ({"mlp": Stream("in:layernorm_after", "out:")},),
    "ClapAudioLayer": ({"": Stream("in:layernorm_after", "out:")},),
}

_SANDWICH = "the norm after the branch hides its scale"
_WINDOWS = "its tokens are in the order of windows"
_POOLS = "it pools tokens and has no stream before it"

# Sites that are not fitted to the stream, and why.
NO_STREAM: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "Gemma2DecoderLayer",
            "Gemma3DecoderLayer",
            "Olmo2DecoderLayer",
            "Olmo3DecoderLayer",
            "FlexOlmoDecoderLayer",
            "Exaone4DecoderLayer",
            "Glm4DecoderLayer",
            "T5GemmaDecoderLayer",
            "T5GemmaEncoderLayer",
            "Swinv2Layer",
        ),
        dict.fromkeys(("self_attn", "cross_attn", "attention", "mlp", ""), _SANDWICH),
    ),
    "SwinLayer": {"attention": _WINDOWS},
    "ClapAudioLayer": {"attention": _WINDOWS},
    "SiglipMultiheadAttentionPoolingHead": {"attention": _POOLS, "mlp": _POOLS},
    "Siglip2MultiheadAttentionPoolingHead": {"attention": _POOLS, "mlp": _POOLS},
}


def flow(model: nn.Module, found: LocatedSite) -> Flow:
    """Where a site's output goes: looks up the layers around it, from the nearest."""
    model = unwrap(model)
    for layer, inside in _layers(found.site.name):
        cls = table_key(model.get_submodule(layer))
        streams = tuple(stream for rows in STREAMS.get(cls, ()) if (stream := _of(rows, inside)) is not None)
        if streams:
            return Flow(layer, streams)
        if (why := _of(NO_STREAM.get(cls, {}), inside)) is not None:
            return Flow(layer, why=why)
    return Flow("", why="its layer's residual stream is not in `kheads.anatomy.STREAMS`")


def _layers(name: str) -> Iterator[tuple[str, str]]:
    """A site and the modules around it, each with the site's path inside."""
    parts = name.split(".") if name else []
    for depth in range(len(parts), -1, -1):
        yield ".".join(parts[:depth]), ".".join(parts[depth:])


def _of(rows: Mapping[str, Row], inside: str) -> Row | None:
    """The entry of the site, or of what it lies in."""
    return next((row for key, row in rows.items() if key == inside or (key and inside.startswith(f"{key}."))), None)
