"""Caches of keys and values as plain tensors, which is how a file takes them and hands them on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any

from torch import Tensor

from kheads.storage.export.onnx.refusal import refusal

KEYS = ("key", "value")


def new_cache() -> Any:
    """An empty cache that keeps all it is given, also where attention looks back only so far: masks see to that."""
    from transformers import DynamicCache

    return DynamicCache()


def fill(tensors: Mapping[str, Tensor], name: str) -> Any:
    """A cache of the tensors whose names the pattern gives, for layer and key or value."""
    cache = new_cache()
    for layer in takewhile(lambda layer: name.format(layer, KEYS[0]) in tensors, count()):
        cache.update(*(tensors[name.format(layer, key)] for key in KEYS), layer)
    return cache


def states_of(cache: Any, model: Any) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of every layer, (batch, heads, length, width).

    Raises:
        ExportError: the model remembers something else.
    """
    layers: list[Any] = [
        (getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in getattr(cache, "layers", ())
    ]
    if not layers or not all(isinstance(state, Tensor) and state.dim() == 4 for states in layers for state in states):
        raise refusal(model, "it keeps no cache of keys and values alone")
    return layers
