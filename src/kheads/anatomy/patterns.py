"""Layouts that many classes share. Counts that a class does not have are skipped."""

from __future__ import annotations

from kheads.anatomy.layout import Layout, OwnTable

Table = dict[str, tuple[Layout, ...]]

BERT = Layout(
    o="output.dense",
    rows={"self.query": "q", "self.key": "k", "self.value": "v"},
    width="self.attention_head_size",
    counts={"self.num_attention_heads": "heads", "self.all_head_size": "heads*width"},
)
BART = Layout(o="out_proj", rows={"q_proj": "q", "k_proj": "k", "v_proj": "v"}, counts={"num_heads": "heads"})
VIT = Layout(
    o="o_proj",
    rows={"q_proj": "q", "k_proj": "k", "v_proj": "v"},
    counts={"num_attention_heads": "heads", "num_heads": "heads"},
)
LLAMA = Layout(o="o_proj", rows={"q_proj": "q", "k_proj": "k", "v_proj": "v"}, counts={"num_key_value_groups": "group"})
T5 = Layout(
    o="o",
    rows={"q": "q", "k": "k", "v": "v"},
    width="key_value_proj_dim",
    counts={"n_heads": "heads", "inner_dim": "heads*width"},
    bias=OwnTable(("relative_attention_bias",)),
)


def alike(layout: Layout, classes: str) -> Table:
    """The same layout for every class named in the text."""
    return dict.fromkeys(classes.split(), (layout,))
