"""Language models that write from left to right: one file that takes what was seen before and hands it on."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from kheads.storage.export.onnx.caches import KEYS, fill, new_cache, states_of
from kheads.storage.export.onnx.graph import BATCH, LENGTH, PAST, YOURS, Axes, Case, Graph, Kind, Named
from kheads.storage.export.onnx.made_up import fitting, longest, padded, size_of, tokens
from kheads.storage.export.onnx.writing_on import continued

SIZES = ((1, 4), (3, 37))


def _takes_positions(model: Any) -> bool:
    return "position_ids" in inspect.signature(model.forward).parameters


def _positions(model: Any, mask: Tensor) -> dict[str, Tensor]:
    return {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if _takes_positions(model) else {}


def cases(model: Any, inputs: Named | None) -> list[Case]:
    """A single short prompt, and several that are longer and padded on the left."""
    found = []
    for batch, length in SIZES:
        given = padded(model, tokens(model, batch, longest(model, length)), left=True)
        found.append(_case(model, size_of(given["input_ids"], " with padding" if batch > 1 else ""), given))
    if inputs is not None:
        found.append(_case(model, YOURS, fitting(inputs, ("input_ids", "attention_mask"), model)))
    return found


def _case(model: Any, name: str, given: dict[str, Tensor]) -> Case:
    mask = given["attention_mask"]
    logits = model(**given, **_positions(model, mask), use_cache=False).logits
    written, steps = continued(model, given)
    expected = {"logits": logits, "steps": steps, "together": steps[:, 1:]}
    return Case(name, {**given, "tokens": written}, expected, {"logits": mask.bool()})


def graphs(model: Any) -> list[Graph]:
    """One file, `model.onnx`; the first call hands it a past of length 0."""
    seen = model(input_ids=tokens(model, BATCH, PAST), past_key_values=new_cache(), use_cache=True).past_key_values
    past = states_of(seen, model)
    mask = torch.ones((BATCH, PAST + LENGTH), dtype=torch.long)
    given = {"input_ids": tokens(model, BATCH, LENGTH, seed=1), "attention_mask": mask}
    given |= {name: value[:, -LENGTH:].contiguous() for name, value in _positions(model, mask).items()}
    axes: dict[str, Axes] = {name: {0: "batch", 1: "length"} for name in given}
    axes["attention_mask"] = {0: "batch", 1: "total_length"}
    for number, states in enumerate(past):
        for key, value in zip(KEYS, states, strict=True):
            given[f"past_key_values.{number}.{key}"] = value
            axes[f"past_key_values.{number}.{key}"] = {0: "batch", 2: "past_length"}
    outputs = ("logits", *(f"present.{number}.{key}" for number in range(len(past)) for key in KEYS))
    return [Graph("model", given, axes, outputs, _run)]


def _run(model: Any, tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
    cache = fill(tensors, "past_key_values.{}.{}")
    given = {name: value for name, value in tensors.items() if not name.startswith("past_key_values.")}
    out = model(**given, past_key_values=cache, use_cache=True)
    return (out.logits, *(state for states in states_of(out.past_key_values, model) for state in states))


DECODER = Kind("decoder", cases, graphs)
