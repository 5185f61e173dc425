"""Guesses at the layout of an attention class from the names and sizes of its parts. Guesses are to be proven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from kheads.anatomy.discovery import APART, PROJECTIONS, TOGETHER, child
from kheads.anatomy.layout import Layout

OUTPUTS = (
    "o_proj",
    "out_proj",
    "dense",
    "output.dense",
    "o",
    "out_lin",
    "linear_out",
    "c_proj",
    "Wo",
    "wo",
    "to_out",
    "proj",
)
WIDTHS = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim", "d_head", "dim_head")
COUNTS = {
    "heads": ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead"),
    "kv": ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "group": ("num_key_value_groups", "n_rep"),
    "heads*width": ("all_head_size", "inner_dim", "embed_dim", "split_size", "hidden_size", "dim"),
}


def guesses(module: nn.Module) -> Iterator[Layout]:
    """Layouts that the module's parts would allow, the plainest first.

    Every guess keeps a silent head in an emptied site: whether the class runs without a head is not known.
    """
    for prefix in ("", "self.", "attention."):
        width = next((f"{prefix}{name}" for name in WIDTHS if isinstance(child(module, f"{prefix}{name}"), int)), None)
        output = next((name for name in OUTPUTS if _is_projection(child(module, name))), None)
        if width is None or output is None:
            continue
        for rows in _rows(module, prefix):
            for wide in (False, True):
                yield Layout(output, rows, width, counts=_counts(module, prefix, wide), empty=False)


def _rows(module: nn.Module, prefix: str) -> Iterator[dict[str, str]]:
    for names in APART:
        paths = [f"{prefix}{name}" for name in names]
        if all(_is_projection(child(module, path)) for path in paths):
            yield dict(zip(paths, "qkv", strict=True))
    for name in TOGETHER:
        if _is_projection(child(module, f"{prefix}{name}")):
            yield from ({f"{prefix}{name}": text} for text in ("q k v", "[q k v]", "{q k v}"))


def _counts(module: nn.Module, prefix: str, wide: bool) -> dict[str, str]:
    """Attributes called like counts; those of heads x width only if `wide`, for they may mean another width."""
    return {
        f"{prefix}{name}": what
        for what, names in COUNTS.items()
        for name in names
        if isinstance(child(module, f"{prefix}{name}"), int) and (wide or what != "heads*width")
    }


def _is_projection(part: Any) -> bool:
    return type(part).__name__ in PROJECTIONS
