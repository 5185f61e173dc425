"""Vision, and vision with text."""

from __future__ import annotations

from dataclasses import replace

from kheads.anatomy.layout import IndexedArgument, Layout
from kheads.anatomy.patterns import BART, BERT, VIT, Table, alike

YOLOS = Layout(
    o="output.dense",
    rows={"attention.query": "q", "attention.key": "k", "attention.value": "v"},
    width="attention.attention_head_size",
    counts={"attention.num_attention_heads": "heads", "attention.all_head_size": "heads*width"},
    empty=False,
)

LAYOUTS: Table = {
    **alike(
        VIT,
        """ViTAttention DeiTAttention Dinov2Attention Dinov2WithRegistersAttention DINOv3ViTAttention ViTMAEAttention
        ViTMSNAttention IJepaAttention VivitAttention DetrSelfAttention""",
    ),
    **alike(replace(VIT, kind="cross"), "DetrCrossAttention"),
    **alike(
        BART,
        """CLIPAttention SiglipAttention Siglip2Attention AltCLIPAttention ChineseCLIPVisionAttention CLIPSegAttention
        MetaClip2Attention OwlViTAttention Owlv2Attention GitVisionAttention""",
    ),
    **alike(BERT, "AltRobertaAttention ChineseCLIPTextAttention"),
    **alike(replace(BERT, kind="decoder"), "GitAttention"),
    **alike(YOLOS, "YolosAttention VideoMAEAttention ViltAttention"),
    # The layer adds the bias of all heads to the mask, whether the table is its own or the encoder's.
    "BeitAttention": (replace(VIT, bias=IndexedArgument(("attention_mask",), axis=1)),),
    "SwinAttention": (replace(VIT, per_head={"relative_position_bias.relative_position_bias_table": 1}),),
    # Three-dimensional masks have a row for each example and head.
    "kheads.surgery.rebuild.OpenAttention": (
        replace(BART, bias=IndexedArgument(("attn_mask",), 0, fused=True), empty=False),
    ),
    "Swinv2Attention": (
        replace(BERT, per_head={"self.logit_scale": 0, "self.continuous_position_bias_mlp.2.weight": 0}, empty=False),
    ),
}

TYPES: dict[str, str] = {
    "altclip": "AltCLIPAttention AltRobertaAttention",
    "beit": "BeitAttention",
    "chinese_clip": "ChineseCLIPTextAttention ChineseCLIPVisionAttention",
    "clip": "CLIPAttention",
    "clipseg": "CLIPSegAttention",
    "deit": "DeiTAttention",
    "detr": "DetrCrossAttention DetrSelfAttention",
    "dinov2": "Dinov2Attention",
    "dinov2_with_registers": "Dinov2WithRegistersAttention",
    "dinov3_vit": "DINOv3ViTAttention",
    "git": "GitAttention GitVisionAttention",
    "ijepa": "IJepaAttention",
    "metaclip_2": "MetaClip2Attention",
    "owlv2": "Owlv2Attention",
    "owlvit": "OwlViTAttention",
    "siglip": "SiglipAttention kheads.surgery.rebuild.OpenAttention",
    "siglip2": "Siglip2Attention kheads.surgery.rebuild.OpenAttention",
    "swin": "SwinAttention",
    "swinv2": "Swinv2Attention",
    "videomae": "VideoMAEAttention",
    "vilt": "ViltAttention",
    "vit": "ViTAttention",
    "vit_mae": "ViTMAEAttention",
    "vit_msn": "ViTMSNAttention",
    "vivit": "VivitAttention",
    "yolos": "YolosAttention",
}
