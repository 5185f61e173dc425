"""Models that are run once: encoders of text, bare or with any head, and of images."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from kheads.storage.export.onnx.graph import BATCH, SOURCE, YOURS, Case, Graph, Kind, Named
from kheads.storage.export.onnx.made_up import fitting, longest, padded, size_of, tokens
from kheads.storage.export.onnx.refusal import refusal
from kheads.storage.probe import probe_inputs

IMAGES = "pixel_values"
SIZES = ((1, 4), (3, 149))


def _names(model: Any) -> tuple[str, ...]:
    """What the file takes. Types of tokens only where the model tells several apart."""
    if model.main_input_name == IMAGES:
        return (IMAGES,)
    typed = "token_type_ids" in inspect.signature(model.forward).parameters
    several = (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    return ("input_ids", "attention_mask", *(("token_type_ids",) if typed and several else ()))


def _batch(model: Any, batch: int, length: int) -> dict[str, Tensor]:
    if model.main_input_name == IMAGES:
        return probe_inputs(model, batch)
    given = padded(model, tokens(model, batch, longest(model, length)), left=False)
    if "token_type_ids" in _names(model):
        halves = torch.arange(given["input_ids"].shape[1]) >= given["input_ids"].shape[1] // 2
        given["token_type_ids"] = halves.long().expand(batch, -1) * given["attention_mask"]
    return given


def _outputs(model: Any, given: Named) -> dict[str, Tensor]:
    """Every tensor that the model gives, by name; caches and the like are left out."""
    found = model(**given, return_dict=True)
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def cases(model: Any, inputs: Named | None) -> list[Case]:
    """A single short example, and several that are longer and padded."""
    batches = {}
    for batch, length in SIZES:
        given = _batch(model, batch, length)
        name = size_of(given[model.main_input_name], " with padding" if "attention_mask" in given and batch > 1 else "")
        batches[name] = given
    expected = [_outputs(model, given) for given in batches.values()]
    _refuse_chance(model, next(iter(batches.values())), expected[0])
    lengths = [given[model.main_input_name].shape[1] for given in batches.values()]
    per_token = [name for name in expected[0] if _follow(lengths, [found[name] for found in expected])]
    if inputs is not None:
        given = fitting(inputs, _names(model), model)
        batches[YOURS] = given
        expected.append(_outputs(model, given))
    return [
        Case(name, given, found, {output: given["attention_mask"].bool() for output in per_token})
        for (name, given), found in zip(batches.items(), expected, strict=True)
    ]


def _refuse_chance(model: Any, given: Named, before: Named) -> None:
    if any(not torch.equal(before[name], value) for name, value in _outputs(model, given).items()):
        raise refusal(model, "it draws at random, and gives something else at every call")


def _follow(lengths: list[int], outputs: list[Tensor]) -> bool:
    """Whether an output has a place for every token."""
    if len(set(lengths)) == 1:  # images
        return False
    return all(found.dim() > 1 and found.shape[1] == length for length, found in zip(lengths, outputs, strict=True))


def graphs(model: Any) -> list[Graph]:
    """One file, `model.onnx`."""
    given = _batch(model, BATCH, SOURCE)
    given = {name: given[name] for name in _names(model)}
    outputs = tuple(_outputs(model, given))
    axes = {name: {0: "batch"} if name == IMAGES else {0: "batch", 1: "length"} for name in given}

    def run(traced: Any, tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
        found = traced(**tensors, return_dict=True)
        return tuple(found[name] for name in outputs)

    return [Graph("model", given, axes, outputs, run)]


PLAIN = Kind("plain", cases, graphs)
