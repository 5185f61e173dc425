"""Encoder-decoders by size, built from a config and trained from scratch: post-norm, as in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import MarianConfig, MarianMTModel

POSITIONS = 512
BRANCHES = ("v_proj.weight", "out_proj.weight", "fc1.weight", "fc2.weight")  # what a branch adds grows with these


@dataclass(frozen=True)
class Size:
    """The measures of an encoder-decoder with as many layers on both sides.

    Attributes:
        layers: layers of the encoder, and of the decoder; three attentions for each pair of them.
        width: the size of a token's vector.
        inner: the size inside the feed-forward layers.
        heads: heads of each attention.
        dropout: the share of activations that training drops.
    """

    layers: int
    width: int
    inner: int
    heads: int = 4
    dropout: float = 0.1


SIZES: dict[str, Size] = {
    "tiny": Size(layers=2, width=64, inner=128),  # 24 heads: tests, the demo
    "small": Size(layers=6, width=128, inner=256),  # 72 heads: CPUs
    "iwslt": Size(layers=6, width=512, inner=1024, dropout=0.3),  # 72 heads: the paper's
}


def config(name: str, vocab_size: int = 3, pad: int = 0, start: int = 1, end: int = 2) -> MarianConfig:
    """The config of a size; ids are those of the tokenizer's padding, first and last token."""
    from transformers import MarianConfig

    size = SIZES[name]
    both: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        both |= {
            f"{side}_layers": size.layers,
            f"{side}_ffn_dim": size.inner,
            f"{side}_attention_heads": size.heads,
        }
    return MarianConfig(
        **both,
        vocab_size=vocab_size,
        d_model=size.width,
        dropout=size.dropout,
        activation_function="relu",
        # Embeddings times the root of the width have unit variance, as the positions about have; the linear layers
        # start near Xavier's rule.
        init_std=size.width**-0.5,
        scale_embedding=True,
        max_position_embeddings=POSITIONS,
        pad_token_id=pad,
        bos_token_id=start,
        eos_token_id=end,
        decoder_start_token_id=start,
        forced_eos_token_id=None,
    )


def build(name: str, tokenizer: Any) -> MarianMTModel:
    """A model with random weights for a tokenizer; source, target and output share one table of embeddings."""
    from transformers import MarianMTModel

    ids = tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id
    model = MarianMTModel(config(name, len(tokenizer), *ids))
    _calm(model, SIZES[name].layers)
    model.generation_config.suppress_tokens = list(ids[:2])  # nothing to say: padding, and the start
    return model


def _calm(model: MarianMTModel, layers: int) -> None:
    """Shrinks what the branches add to the residual stream at first, by the factors of DeepNorm (Wang et al. 2022).

    A deep post-norm model diverges otherwise, unless its rate rises for thousands of steps. The other half of DeepNorm,
    a larger residual, needs another class.
    """
    import torch

    factors = {"encoder": 0.87 * layers ** (-5 / 16), "decoder": (12 * layers) ** -0.25}
    with torch.no_grad():
        for side, factor in factors.items():
            for path, weight in model.get_submodule(f"model.{side}.layers").named_parameters():
                if path.endswith(BRANCHES):
                    weight.mul_(factor)
