"""Tiny models of every supported family, built from configs, with weights large enough that no head is idle."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from zoo.tiny import randomise

VOCAB = 61
PAD = 0


@dataclass(frozen=True)
class Family:
    """How to build a tiny model, and what it does."""

    build: Callable[[], PreTrainedModel]
    encoder_decoder: bool = False
    generates: bool = False
    vision: bool = False


def tiny(name: str, seed: int = 0) -> Any:
    """A model of the family, in eval mode, in which every parameter is random, norms and biases included."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FAMILIES[name].build()
    return randomise(model, seed).eval()


def inputs(name: str, batch: int = 3, length: int = 7, seed: int = 1) -> dict[str, Tensor]:
    """A batch for the family; text is padded on the left, as generation needs it."""
    family = FAMILIES[name]
    generator = torch.Generator().manual_seed(seed)
    if family.vision:
        return {"pixel_values": torch.randn((batch, 3, 8, 8), generator=generator)}
    ids = torch.randint(4, VOCAB, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    ids[1, :2] = PAD
    given = {"input_ids": ids, "attention_mask": mask}
    if family.encoder_decoder:
        given["decoder_input_ids"] = torch.randint(4, VOCAB, (batch, 5), generator=generator)
    return given


def logits(model: Any, given: dict[str, Tensor]) -> Tensor:
    """The model's main output."""
    out = model(**given)
    return out.logits if "logits" in out else out.last_hidden_state


def _bert_sized(config: str, **extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 40,
        "pad_token_id": PAD,
        **extra,
    }


def _build(cls: str, config: str, **fields: Any) -> PreTrainedModel:
    return getattr(transformers, cls)(getattr(transformers, config)(**fields))


def _bart_sized(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "max_position_embeddings": 40,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
        **extra,
    }


def _llama_sized(**extra: Any) -> dict[str, Any]:
    return _bert_sized(
        "llama",
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=6,
        bos_token_id=1,
        eos_token_id=2,
        attention_bias=True,
        **extra,
    )


def _bert2gpt2() -> PreTrainedModel:
    encoder = transformers.BertConfig(**_bert_sized("bert"))
    decoder = transformers.GPT2Config(**_gpt2_sized(add_cross_attention=True, is_decoder=True))
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.pad_token_id, config.decoder_start_token_id, config.eos_token_id = PAD, 1, 2
    return transformers.EncoderDecoderModel(config=config)


def _bert2bert() -> PreTrainedModel:
    encoder = transformers.BertConfig(**_bert_sized("bert"))
    decoder = transformers.BertConfig(**_bert_sized("bert", is_decoder=True, add_cross_attention=True))
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.pad_token_id, config.decoder_start_token_id, config.eos_token_id = PAD, 1, 2
    return transformers.EncoderDecoderModel(config=config)


def _gpt2_sized(**extra: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 40,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": PAD,
        **extra,
    }


FAMILIES: dict[str, Family] = {
    "bert": Family(lambda: _build("BertForSequenceClassification", "BertConfig", **_bert_sized("bert", num_labels=3))),
    "bert-bare": Family(lambda: _build("BertModel", "BertConfig", **_bert_sized("bert"))),
    "roberta": Family(
        lambda: _build("RobertaForTokenClassification", "RobertaConfig", **_bert_sized("roberta", num_labels=3))
    ),
    "electra": Family(
        lambda: _build("ElectraForSequenceClassification", "ElectraConfig", **_bert_sized("electra", embedding_size=16))
    ),
    "distilbert": Family(
        lambda: _build(
            "DistilBertForSequenceClassification",
            "DistilBertConfig",
            vocab_size=VOCAB,
            dim=32,
            n_layers=3,
            n_heads=4,
            hidden_dim=40,
            max_position_embeddings=40,
            pad_token_id=PAD,
        )
    ),
    "vit": Family(
        lambda: _build(
            "ViTForImageClassification", "ViTConfig", **_bert_sized("vit", image_size=8, patch_size=4, num_labels=3)
        ),
        vision=True,
    ),
    "bart": Family(
        lambda: _build("BartForConditionalGeneration", "BartConfig", **_bart_sized()),
        encoder_decoder=True,
        generates=True,
    ),
    "marian": Family(
        lambda: _build("MarianMTModel", "MarianConfig", **_bart_sized()), encoder_decoder=True, generates=True
    ),
    "t5": Family(
        lambda: _build(
            "T5ForConditionalGeneration",
            "T5Config",
            vocab_size=VOCAB,
            d_model=32,
            d_kv=6,
            d_ff=40,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            pad_token_id=PAD,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        encoder_decoder=True,
        generates=True,
    ),
    "bert2bert": Family(_bert2bert, encoder_decoder=True, generates=True),
    "bert2gpt2": Family(_bert2gpt2, encoder_decoder=True, generates=True),
    "gpt2": Family(lambda: _build("GPT2LMHeadModel", "GPT2Config", **_gpt2_sized()), generates=True),
    "gpt-neox": Family(
        lambda: _build("GPTNeoXForCausalLM", "GPTNeoXConfig", **_bert_sized("neox", bos_token_id=1, eos_token_id=2)),
        generates=True,
    ),
    "llama": Family(lambda: _build("LlamaForCausalLM", "LlamaConfig", **_llama_sized()), generates=True),
    "qwen3": Family(
        lambda: _build(
            "Qwen3ForCausalLM",
            "Qwen3Config",
            **_llama_sized(
                use_sliding_window=True,
                sliding_window=4,
                layer_types=["sliding_attention", "full_attention", "full_attention"],
            ),
        ),
        generates=True,
    ),
}
