"""The table: attention class -> layouts. Classes of transformers go by their name, others by `module.Class`.

To add a family, add a line. The tests iterate this table and run every check on each entry's `tests/families.py` model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from kheads.anatomy.layout import Layout, OwnTable

BERT = Layout(
    o="output.dense",
    rows={"self.query": "q", "self.key": "k", "self.value": "v"},
    width="self.attention_head_size",
    counts={"self.num_attention_heads": "heads", "self.all_head_size": "heads*width"},
)
BART = Layout(o="out_proj", rows={"q_proj": "q", "k_proj": "k", "v_proj": "v"}, counts={"num_heads": "heads"})
LLAMA = Layout(o="o_proj", rows={"q_proj": "q", "k_proj": "k", "v_proj": "v"}, counts={"num_key_value_groups": "group"})
T5 = Layout(
    o="o",
    rows={"q": "q", "k": "k", "v": "v"},
    width="key_value_proj_dim",
    counts={"n_heads": "heads", "inner_dim": "heads*width"},
    bias=OwnTable("relative_attention_bias"),
)
GPT2 = Layout(
    o="c_proj",
    rows={"c_attn": "q k v"},
    counts={"num_heads": "heads", "split_size": "heads*width"},
    empty=False,
)


def _is_cross(site: nn.Module) -> bool:
    return bool(site.is_cross_attention)


LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "BertAttention": (BERT,),
    "RobertaAttention": (BERT,),
    "ElectraAttention": (BERT,),
    "DistilBertSelfAttention": (
        Layout(
            o="out_lin",
            rows={"q_lin": "q", "k_lin": "k", "v_lin": "v"},
            width="attention_head_size",
            counts={"n_heads": "heads", "dim": "heads*width"},
        ),
    ),
    "ViTAttention": (replace(LLAMA, counts={"num_attention_heads": "heads"}),),
    "BartAttention": (BART,),
    "MarianAttention": (BART,),
    "T5Attention": (T5,),
    "GPT2Attention": (
        replace(GPT2, rows={"q_attn": "q", "c_attn": "k v"}, when=_is_cross),
        replace(GPT2, when=lambda site: not _is_cross(site)),
    ),
    "GPTNeoXAttention": (Layout(o="dense", rows={"query_key_value": "[q k v]"}, width="head_size"),),
    "LlamaAttention": (LLAMA,),
    "Qwen3Attention": (LLAMA,),
}

# What kheads will not touch, with the sentence that the user reads.
REFUSED: Mapping[str, str] = {
    "MultiheadAttention": "torch's `nn.MultiheadAttention` calls no output projection that could be gated.",
    "Olmo2Attention": "its query and key norms span all heads, so a removed head would change the others.",
    "BitNetAttention": "a norm lies between the heads and the output projection, so gating is not removal.",
    "WavLMAttention": "it passes its weights to a function of torch, so no gate can reach the heads.",
}
