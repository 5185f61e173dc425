"""The gguf target: one file for llama.cpp, which reads the sizes of every layer from the architecture `deci`.

`deci` is Llama with heads and neurons by layer. Mistral and Qwen2 compute the same, so they are written as it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kheads.anatomy import LocatedSite, locate, locate_feeds
from kheads.storage.export import card
from kheads.storage.export.gguf_check import check
from kheads.storage.export.gguf_tokenizer import Vocabulary, read_vocabulary
from kheads.storage.export.target import Exported, ExportError, Order

if TYPE_CHECKING:
    from gguf import GGUFWriter
    from transformers import PreTrainedModel

NAME = "model.gguf"
ARCHITECTURE = "deci"
CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
TYPES = {"f32": torch.float32, "f16": torch.float16}
ROPES = ("default", "llama3")
INSTEAD = "Use `to='hub'` or `to='onnx'`, or, where it takes the type, `to='vanilla'`."
UNTRIED = (
    "Not tried: xllamacpp is not installed, so nothing was compared with llama.cpp; `pip install xllamacpp` and export "
    "again to have it compared."
)


@dataclass(frozen=True)
class Layer:
    """The two sites of a layer, and how many query heads, key-value heads and neurons are written."""

    attention: LocatedSite
    feed: LocatedSite
    heads: int
    kv: int
    neurons: int


def write(order: Order) -> Exported:
    """Writes the file and, where xllamacpp is installed, compares what llama.cpp makes of it in a new process."""
    model, kind = order.model, order.options.get("dtype", "f32")
    if kind not in TYPES:
        raise ExportError(f"`dtype` must be one of {', '.join(map(repr, TYPES))}; got {kind!r}.")
    layers = _layers(model)
    untyped: Any = model
    vocabulary, tokenizer = read_vocabulary(order.source, untyped.get_input_embeddings().num_embeddings)
    path = order.folder / NAME
    _write_file(path, model, layers, vocabulary, kind)
    text = card.model_card(model, order.source, f"`llama-cli -m {NAME}` or any other program with llama.cpp in it.\n")
    (order.folder / card.NAME).write_text(text, encoding="utf-8")
    remarks = [*vocabulary.remarks, *_window(model)]
    if find_spec("xllamacpp") is None:
        return Exported((), (*remarks, UNTRIED))
    return Exported(check(model, path, vocabulary, tokenizer, kind), tuple(remarks))


# ---------------------------------------------------------------------------------------------------- what is refused


def _layers(model: PreTrainedModel) -> list[Layer]:
    """The layers of a model that the architecture can say.

    Raises:
        ExportError: it cannot, with the reason.
    """
    _refuse(model)
    attentions, feeds = locate(model), locate_feeds(model)
    layers = [_layer(*pair) for pair in zip(attentions, feeds, strict=True)]
    if not layers[0].heads:  # llama.cpp reads the width of a head only if layer 0 has one
        raise ExportError(f"Layer 0 has no head, and llama.cpp needs one there. {INSTEAD}")
    return layers


def _refuse(model: PreTrainedModel) -> None:
    config: Any = model.config
    if type(model).__name__ not in CLASSES:
        raise ExportError(
            f"GGUF is written for {', '.join(CLASSES)}; {type(model).__name__} computes something else, or llama.cpp "
            f"has one number of heads for all its layers. {INSTEAD}"
        )
    if config.hidden_act != "silu":
        raise ExportError(
            f"llama.cpp computes these layers with silu, and this model has {config.hidden_act}. {INSTEAD}"
        )
    rope = config.rope_parameters["rope_type"]
    if rope not in ROPES:
        raise ExportError(f"kheads writes rope types {' and '.join(ROPES)} to GGUF; this model has {rope!r}. {INSTEAD}")
    for name, _ in model.named_parameters():
        if name.endswith(("o_proj.bias", "gate_proj.bias", "up_proj.bias", "down_proj.bias")):
            raise ExportError(f"{name} has no place in the architecture that kheads writes. {INSTEAD}")


def _layer(attention: LocatedSite, feed: LocatedSite) -> Layer:
    state = getattr(attention.module, "kheads_state", None)
    whole = state["of"] // state["of_kv"] if state else attention.heads // attention.kv
    if attention.kv and not attention.ghost and attention.heads // attention.kv != whole:
        raise ExportError(
            f"{attention.site.name} has {attention.heads // attention.kv} of {whole} query heads in a group; GGUF is "
            f"written for whole groups (`unit='group'`). {INSTEAD}"
        )
    first = ".layers.0." in f".{attention.site.name}."
    silent = attention.ghost and not first  # the one of layer 0 tells llama.cpp how wide a head is
    heads, kv = (0, 0) if silent else (attention.heads, attention.kv)
    return Layer(attention, feed, heads, kv, 0 if feed.ghost else feed.heads)


def _window(model: PreTrainedModel) -> Iterator[str]:
    window = getattr(model.config, "sliding_window", None)
    if window is not None and window < _positions(model.config, False):
        yield f"Its attention sees {window} tokens back, and llama.cpp's all, so the context is set to {window}."


def _positions(config: Any, within_window: bool = True) -> int:
    """The longest text that llama.cpp computes as the model does."""
    window = getattr(config, "sliding_window", None) if within_window else None
    return min(int(config.max_position_embeddings), int(window or config.max_position_embeddings))


# ---------------------------------------------------------------------------------------------------- what is written


def _write_file(path: Path, model: PreTrainedModel, layers: Sequence[Layer], vocabulary: Vocabulary, kind: str) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, ARCHITECTURE)
    _say_sizes(writer, model, layers, kind)
    _say_vocabulary(writer, vocabulary)
    for name, tensor in _tensors(model, layers):
        wide = tensor.dim() > 1  # norms and biases are always f32
        writer.add_tensor(
            name, np.ascontiguousarray(tensor.detach().to(TYPES[kind] if wide else torch.float32).numpy())
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _say_sizes(writer: GGUFWriter, model: PreTrainedModel, layers: Sequence[Layer], kind: str) -> None:
    from gguf import LlamaFileType

    config: Any = model.config
    width = layers[0].attention.head_dim
    writer.add_name(f"{type(model).__name__} pruned with kheads")
    writer.add_file_type(LlamaFileType.ALL_F32 if kind == "f32" else LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(_positions(config))
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(len(layers))
    writer.add_head_count([layer.heads for layer in layers])
    writer.add_head_count_kv([layer.kv for layer in layers])
    writer.add_feed_forward_length([max(layer.neurons, 1) for layer in layers])
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _say_vocabulary(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model(vocabulary.kind)
    writer.add_tokenizer_pre(vocabulary.pre or "default")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.kind == "llama":
        writer.add_token_scores(vocabulary.scores)
    else:
        writer.add_token_merges(vocabulary.merges)
    for name, index in vocabulary.special.items():
        getattr(writer, f"add_{name}_token_id")(index)
    writer.add_add_bos_token(vocabulary.add_bos)
    writer.add_add_eos_token(vocabulary.add_eos)
    writer.add_add_space_prefix(vocabulary.space_first)
    if vocabulary.template is not None:
        writer.add_chat_template(vocabulary.template)


def _tensors(model: Any, layers: Sequence[Layer]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor by llama.cpp's name."""
    yield "token_embd.weight", model.get_input_embeddings().weight
    yield "output_norm.weight", model.model.norm.weight
    if not model.config.tie_word_embeddings:
        yield "output.weight", model.get_output_embeddings().weight
    if model.config.rope_parameters["rope_type"] == "llama3":
        yield "rope_freqs.weight", _rope_factors(model, layers[0].attention.head_dim)
    for index, (layer, block) in enumerate(zip(layers, model.model.layers, strict=True)):
        for name, tensor in (*_attention(layer, block), *_feed(layer, block)):
            yield f"blk.{index}.{name}", tensor


def _rope_factors(model: Any, width: int) -> Tensor:
    """By how much each frequency is slower than the base says."""
    base = model.config.rope_parameters["rope_theta"]
    plain = 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    found: Tensor = plain / model.model.rotary_emb.inv_freq.double()
    return found.float()


def _attention(layer: Layer, block: Any) -> Iterator[tuple[str, Tensor]]:
    """The projections of an attention; one without heads is left out, with its norm."""
    if not layer.heads:
        return
    attention = block.self_attn
    yield "attn_norm.weight", block.input_layernorm.weight
    yield "attn_output.weight", attention.o_proj.weight
    for name, count in (("q", layer.heads), ("k", layer.kv), ("v", None)):
        projection = getattr(attention, f"{name}_proj")
        for part in ("weight", "bias"):
            tensor = getattr(projection, part)
            if tensor is not None:
                yield f"attn_{name}.{part}", tensor if count is None else _interleaved(tensor, count)


def _interleaved(rows: Tensor, heads: int) -> Tensor:
    """The rows of each head in llama.cpp's order: it rotates neighbours, transformers the two halves."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _feed(layer: Layer, block: Any) -> Iterator[tuple[str, Tensor]]:
    """The projections of a feed-forward; one without neurons gets a silent one.

    llama.cpp takes a layer with none and, without an error, gives other numbers.
    """
    yield "ffn_norm.weight", block.post_attention_layernorm.weight
    for name in ("gate", "up", "down"):
        weight = getattr(block.mlp, f"{name}_proj").weight
        if not layer.neurons:
            weight = weight.new_zeros((1, weight.shape[1]) if name != "down" else (weight.shape[0], 1))
        yield f"ffn_{name}.weight", weight
