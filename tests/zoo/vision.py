"""Tiny models of images, and of images with text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zoo.text_encoders import sized
from zoo.tiny import Tiny, images, noise, text

RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 8],
    "depths": [1, 1],
    "layer_type": "basic",
    "out_features": ["stage2"],
}
STAGES = {"image_size": 8, "patch_size": 2, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 2}


def patches(**extra: Any) -> dict[str, Any]:
    return sized(**{"image_size": 8, "patch_size": 4, **extra})


def towers(**extra: Any) -> dict[str, Any]:
    words = {"projection_dim": 8, "project_dim": 8, "eos_token_id": 2, "bos_token_id": 1, "projection_size": 16}
    return {
        "text_config": sized(**words),
        "vision_config": patches(projection_dim=8),
        "projection_dim": 8,
        **extra,
    }


def with_text(pixels: Callable[[], dict[str, Tensor]] = images) -> Callable[[], dict[str, Tensor]]:
    return lambda: {**text(), **pixels()}


def patched() -> dict[str, Tensor]:
    """Images as sequences of patches of different lengths."""
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    shapes = torch.tensor([[2, 2], [2, 1]])
    pixels = noise("pixel_values", 2, 4, 48)()
    return {**text(), **pixels, "pixel_attention_mask": mask, "spatial_shapes": shapes}


def shuffled() -> dict[str, Tensor]:
    """An image with the noise that decides which patches are hidden."""
    return {**images(), **noise("noise", 2, 4)()}


def detector(**extra: Any) -> dict[str, Any]:
    return {
        "backbone_config": RESNET,
        "num_queries": 3,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 20,
        "d_model": 16,
        "use_timm_backbone": False,
        **extra,
    }


MODELS: dict[str, Tiny] = {
    "altclip": Tiny("AltCLIPModel", towers(), with_text()),
    "beit": Tiny("BeitModel", patches(use_relative_position_bias=True, layer_scale_init_value=0.5), images),
    "beit:shared": Tiny(
        "BeitModel", patches(use_shared_relative_position_bias=True, layer_scale_init_value=0.5), images
    ),
    "chinese_clip": Tiny("ChineseCLIPModel", towers(), with_text()),
    "clip": Tiny("CLIPModel", towers(), with_text()),
    "clipseg": Tiny("CLIPSegModel", towers(), with_text()),
    "deit": Tiny("DeiTModel", patches(), images),
    "detr": Tiny("DetrForObjectDetection", detector(), noise("pixel_values", 2, 3, 32, 32)),
    "dinov2": Tiny("Dinov2Model", patches(layerscale_value=1.0), images),
    "dinov2_with_registers": Tiny("Dinov2WithRegistersModel", patches(num_register_tokens=2), images),
    "dinov3_vit": Tiny("DINOv3ViTModel", patches(num_register_tokens=2), images),
    "git": Tiny(
        "GitForCausalLM",
        {**sized(bos_token_id=1, eos_token_id=2), "vision_config": patches()},
        with_text(),
        static=False,  # its mask of image and text does not know the cache's length
    ),
    "ijepa": Tiny("IJepaModel", patches(), images),
    "metaclip_2": Tiny("MetaClip2Model", towers(), with_text()),
    "owlv2": Tiny("Owlv2Model", towers(), with_text()),
    "owlvit": Tiny("OwlViTModel", towers(), with_text()),
    "siglip": Tiny("SiglipModel", towers(), with_text(), opened=True),
    "siglip2": Tiny(
        "Siglip2Model",
        {"text_config": sized(projection_size=16), "vision_config": patches(num_patches=4)},
        patched,
        opened=True,
    ),
    "swin": Tiny("SwinModel", STAGES, images),
    "swinv2": Tiny("Swinv2Model", STAGES, images),
    "videomae": Tiny("VideoMAEModel", patches(num_frames=2, tubelet_size=2), noise("pixel_values", 2, 2, 3, 8, 8)),
    "vilt": Tiny("ViltModel", patches(max_image_length=-1), with_text()),
    "vit": Tiny("ViTForImageClassification", patches(num_labels=3), images),
    "vit_mae": Tiny("ViTMAEModel", patches(mask_ratio=0.5), shuffled),
    "vit_msn": Tiny("ViTMSNModel", patches(), images),
    "vivit": Tiny("VivitModel", patches(num_frames=2, tubelet_size=[2, 4, 4]), noise("pixel_values", 2, 2, 3, 8, 8)),
    "yolos": Tiny("YolosModel", patches(image_size=[8, 8], num_detection_tokens=2), images),
}
