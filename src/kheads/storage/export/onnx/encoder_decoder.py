"""Encoder-decoders: two files.

The encoder's gives its states and the keys and values of the cross-attentions. The decoder's takes these, and what was
written before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kheads.storage.export.onnx.caches import KEYS, fill, new_cache, states_of
from kheads.storage.export.onnx.graph import BATCH, LENGTH, PAST, SOURCE, YOURS, Axes, Case, Graph, Kind, Named
from kheads.storage.export.onnx.made_up import fitting, longest, padded, size_of, tokens
from kheads.storage.export.onnx.writing_on import continued

SIZES = ((1, 4), (3, 37))
PAST_STATE, PRESENT_STATE = "past_key_values.{}.{}.{}", "present.{}.{}.{}"


def cases(model: Any, inputs: Named | None) -> list[Case]:
    """A single short source, and several that are longer and padded."""
    found = []
    for batch, length in SIZES:
        given = padded(model, tokens(model, batch, longest(model, length)), left=False)
        found.append(_case(model, size_of(given["input_ids"], " with padding" if batch > 1 else ""), given))
    if inputs is not None:
        source = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
        found.append(_case(model, YOURS, fitting(source, ("input_ids", "attention_mask"), model)))
    return found


def _case(model: Any, name: str, given: dict[str, Tensor]) -> Case:
    written, steps = continued(model, given)
    out = model(**given, decoder_input_ids=written[:, :-1], use_cache=False)
    expected = {"last_hidden_state": out.encoder_last_hidden_state, "logits": out.logits, "steps": steps}
    return Case(name, {**given, "tokens": written}, expected, {"last_hidden_state": given["attention_mask"].bool()})


def graphs(model: Any) -> list[Graph]:
    """Two files, `encoder_model.onnx` and `decoder_model.onnx`."""
    ids = tokens(model, BATCH, SOURCE)
    source = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    out = model(**source, decoder_input_ids=tokens(model, BATCH, PAST), past_key_values=_pair(), use_cache=True)
    layers = range(len(out.past_key_values.self_attention_cache.layers))
    return [_encoder(source, layers), _decoder(model, source, out)]


def _encoder(source: Named, layers: range) -> Graph:
    axes = {name: {0: "batch", 1: "encoder_length"} for name in source}
    names = [PRESENT_STATE.format(layer, "encoder", key) for layer in layers for key in KEYS]
    return Graph("encoder_model", source, axes, ("last_hidden_state", *names), _run_encoder)


def _run_encoder(model: Any, tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Lets the decoder read one token to get its cross-attentions' keys and values; the rest leaves no trace."""
    hidden = model.get_encoder()(**tensors)[0]
    first = torch.zeros_like(tensors["input_ids"][:, :1])
    out = model(
        attention_mask=tensors["attention_mask"],
        decoder_input_ids=first,
        encoder_outputs=_states(hidden),
        past_key_values=_pair(),
        use_cache=True,
    )
    crossed = states_of(out.past_key_values.cross_attention_cache, model)
    return (hidden, *(state for states in crossed for state in states))


def _decoder(model: Any, source: Named, out: Any) -> Graph:
    given = {"input_ids": tokens(model, BATCH, LENGTH, seed=1), "encoder_attention_mask": source["attention_mask"]}
    axes: dict[str, Axes] = {
        "input_ids": {0: "batch", 1: "length"},
        "encoder_attention_mask": {0: "batch", 1: "encoder_length"},
    }
    own = states_of(out.past_key_values.self_attention_cache, model)
    crossed = states_of(out.past_key_values.cross_attention_cache, model)
    for side, length, past in (("decoder", "past_length", own), ("encoder", "encoder_length", crossed)):
        for layer, states in enumerate(past):
            for key, value in zip(KEYS, states, strict=True):
                given[PAST_STATE.format(layer, side, key)] = value
                axes[PAST_STATE.format(layer, side, key)] = {0: "batch", 2: length}
    names = [PRESENT_STATE.format(layer, "decoder", key) for layer in range(len(own)) for key in KEYS]
    width = out.encoder_last_hidden_state.shape[-1]

    def run(traced: Any, tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
        return _run_decoder(traced, tensors, width)

    return Graph("decoder_model", given, axes, ("logits", *names), run)


def _run_decoder(model: Any, tensors: dict[str, Tensor], width: int) -> tuple[Tensor, ...]:
    mask = tensors["encoder_attention_mask"]
    sides = [fill(tensors, PAST_STATE.format("{}", side, "{}")) for side in ("decoder", "encoder")]
    past = _pair(*sides)
    for layer in range(len(sides[1].layers)):
        past.is_updated[layer] = True  # the encoder's states are not read again, so any will do
    hidden = torch.zeros((*mask.shape, width), dtype=model.dtype)
    out = model(
        attention_mask=mask,
        decoder_input_ids=tensors["input_ids"],
        encoder_outputs=_states(hidden),
        past_key_values=past,
        use_cache=True,
    )
    own = states_of(out.past_key_values.self_attention_cache, model)
    return (out.logits, *(state for states in own for state in states))


def _states(hidden: Any) -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=hidden)


def _pair(own: Any = None, crossed: Any = None) -> Any:
    from transformers import EncoderDecoderCache

    return EncoderDecoderCache(own or new_cache(), crossed or new_cache())


ENCODER_DECODER = Kind("encoder_decoder", cases, graphs)
