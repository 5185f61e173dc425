"""`discover`: the sites of a model, and how many parameters go with a block of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from kheads.anatomy.discovery import LocatedSite, child, locate
from kheads.anatomy.layout import OwnTable
from kheads.blocks.site import Site, Sites, unwrap


def discover(model: nn.Module, unit: str = "group", parts: str = "heads") -> Sites:
    """Returns the model's sites, in the order of a forward pass, with what their blocks cost in parameters.

    Args:
        model: a Transformer of a supported family, bare, with a task head, or composite. Wrappers of
            DistributedDataParallel and torch.compile are looked through.
        unit: what counts as a head where query heads share keys and values: "group" (they go together, and the cache
            shrinks) or "query". Without sharing both mean the same.
        parts: "heads" (attentions), "ffn" (feed-forward layers, whose blocks are single neurons) or "all".

    Raises:
        UnsupportedModelError: some part of the model is not understood. kheads never works on a part of the heads, nor
            on a part of the neurons.
    """
    return sized(unwrap(model), locate(model, unit, parts))


def sized(model: nn.Module, located: Sequence[LocatedSite]) -> Sites:
    """The sites, with the parameters of their blocks."""
    buckets = _buckets(located)
    sites: list[Site] = []
    inside = 0
    for found in located:
        count = found.site.count
        now = sum(parameter.numel() for parameter in _parameters(found)) if count else 0
        # A cut gives every site of a T5-like stack tables of its own; before, only the first has them.
        later = sum(count * buckets.get((_stack(found), name), 0) for name in _tables(found))
        own = sum(table.weight.numel() for name in _tables(found) if (table := getattr(found.module, name, None)))
        inside += now + (own if count else 0)
        depends = found.site.unit == "query" or not count
        sites.append(replace(found.site, parameters=0 if depends else (now + later) // count))
    whole = sum({id(parameter): parameter.numel() for parameter in model.parameters()}.values())
    return Sites(sites, whole, whole - inside)


def _parameters(found: LocatedSite) -> Iterator[nn.Parameter]:
    """What is sliced when blocks go, position tables left out."""
    yield found.output.weight
    for path in found.layout.rows:
        projection = child(found.module, path)
        if isinstance(projection, nn.Parameter):
            yield projection
        elif projection is not None:
            yield from projection.parameters(recurse=False)
    for path in found.layout.per_head:
        part: Any = child(found.module, path.removeprefix("kv:"))
        if isinstance(part, nn.Parameter):
            yield part
        elif isinstance(part, nn.ModuleList):
            yield from part.parameters()


def _tables(found: LocatedSite) -> tuple[str, ...]:
    bias = found.layout.bias
    return bias.names if isinstance(bias, OwnTable) and found.site.kind != "cross" else ()


def _stack(found: LocatedSite) -> str:
    return found.site.name.split(".block.")[0]


def _buckets(located: Sequence[LocatedSite]) -> dict[tuple[str, str], int]:
    """The rows of the position tables that a stack has, by their names."""
    return {
        (_stack(found), name): table.weight.shape[0]
        for found in located
        for name in _tables(found)
        if (table := getattr(found.module, name, None)) is not None
    }
