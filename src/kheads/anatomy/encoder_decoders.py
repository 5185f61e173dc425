"""Encoder-decoders of text, and of speech to text."""

from __future__ import annotations

from dataclasses import replace

from kheads.anatomy.layout import OwnTable
from kheads.anatomy.patterns import BART, LLAMA, T5, Table, alike

LONG_T5 = replace(T5, empty=False)
GLOBAL_TABLES = OwnTable(("relative_attention_bias", "global_relative_attention_bias"))

LAYOUTS: Table = {
    **alike(
        BART,
        """BartAttention MBartAttention MarianAttention PegasusAttention M2M100Attention BlenderbotAttention
        BlenderbotSmallAttention NllbMoeAttention Speech2TextAttention PLBartAttention
        TimeSeriesTransformerAttention""",
    ),
    **alike(
        replace(BART, counts={"num_heads": "heads", "embed_dim": "heads*width"}, empty=False),
        "MvpAttention SpeechT5Attention",
    ),
    **alike(T5, "T5Attention MT5Attention SwitchTransformersAttention LongT5Attention Pop2PianoAttention"),
    "LongT5LocalAttention": (LONG_T5,),
    "LongT5TransientGlobalAttention": (replace(LONG_T5, bias=GLOBAL_TABLES),),
    "UMT5Attention": (replace(T5, bias=None, per_head={"relative_attention_bias.weight": 1}, empty=False),),
    **alike(LLAMA, "T5GemmaSelfAttention T5GemmaCrossAttention"),
}

TYPES: dict[str, str] = {
    "bart": "BartAttention",
    "blenderbot": "BlenderbotAttention",
    "blenderbot-small": "BlenderbotSmallAttention",
    "longt5": "LongT5Attention LongT5LocalAttention LongT5TransientGlobalAttention",
    "m2m_100": "M2M100Attention",
    "marian": "MarianAttention",
    "mbart": "MBartAttention",
    "mt5": "MT5Attention",
    "mvp": "MvpAttention",
    "nllb-moe": "NllbMoeAttention",
    "pegasus": "PegasusAttention",
    "plbart": "PLBartAttention",
    "pop2piano": "Pop2PianoAttention",
    "speech_to_text": "Speech2TextAttention",
    "speecht5": "SpeechT5Attention",
    "switch_transformers": "SwitchTransformersAttention",
    "t5": "T5Attention",
    "t5gemma": "T5GemmaCrossAttention T5GemmaSelfAttention",
    "time_series_transformer": "TimeSeriesTransformerAttention",
    "umt5": "UMT5Attention",
}
