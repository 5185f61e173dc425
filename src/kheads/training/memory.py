"""How many tokens may be in memory at once, so that work on a large model takes little more than the model itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import nn

from kheads.anatomy import discover
from kheads.measuring.measurement import known_parts, size
from kheads.storage.mapped import MappedCopy

# What may be in memory beside the model, in bytes: this much, or a share of a model for which that is more.
BESIDE, SHARE = 384 << 20, 0.1
# Tokens of a batch that no optimizer step depends on: what comes out is the same, and gates for every example need
# memory. 32 examples of 256 tokens took 11 GB in a language model of 135 million parameters.
SMALL_BATCH = 2048
FEWEST = 128
# What a token takes in a graph, as a multiple of what goes into all sites and comes out of them; and of the widest site
# while it waits there; and of its logits, which are copied in float32. Counted by hand for Llama's layers, not
# measured.
GRAPH, WAITING, LOGITS = 4, 3, 7
LARGE = 1 << 30  # bytes of a model that is not copied in memory


def in_graph(model: nn.Module) -> int:
    """Tokens of a batch whose gradients are looked at."""
    return _within(SMALL_BATCH, model, GRAPH * sum(_widths(model)) + LOGITS * _vocabulary(model))


def waiting(model: nn.Module, most: int) -> int:
    """Tokens that may wait at a site of a model and of its original, at most so many."""
    return _within(most, model, 2 * WAITING * max(_widths(model), default=1))


def original_of(model: Any, folder: Path) -> tuple[nn.Module, MappedCopy | None]:
    """A copy of a model as it is; on disk, in that folder, where the model is large and its weights can lie there."""
    if size(model)["bytes"] < LARGE or any(part.device.type != "cpu" for part in model.parameters()):
        return copy.deepcopy(model).eval(), None
    folder.mkdir(parents=True, exist_ok=True)
    mapped = MappedCopy(model, folder)
    return mapped.model, mapped


def _within(most: int, model: nn.Module, numbers: int) -> int:
    """As many tokens as fit, each of which takes so many numbers."""
    room = max(BESIDE, SHARE * size(model)["bytes"])
    each = numbers * next(model.parameters()).element_size()
    return int(max(FEWEST, min(most, room // max(each, 1))))


def _vocabulary(model: Any) -> int:
    """Words of which every token gets a logit, if it does."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return 0 if head is None else int(head.weight.shape[0])


def _widths(model: nn.Module) -> list[int]:
    """Numbers that a token has at each site: what goes in, and what comes out."""
    sites = discover(model, parts=known_parts(model))
    return [site.count * site.width + int(site.weight(model).shape[0]) for site in sites]
