"""How a class lays out its heads or neurons: the record `Layout`, and the one function that finds a head's rows.

A projection's output axis is a sequence of segments. A segment repeats a block of fixed size over the query heads, over
the key-value heads or over the groups that share a key-value head. Separate projections, fused ones, fused per head,
fused per group, latent attention and gated queries are all this. So is a feed-forward layer, whose neurons are heads of
width 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class IndexedArgument:
    """A bias made elsewhere for all heads and handed to the site as the arguments `names`, heads on `axis`.

    An argument with one entry on that axis serves every head and stays. `fused` says that the axis holds batch and
    heads together.
    """

    names: tuple[str, ...]
    axis: int
    fused: bool = False


@dataclass(frozen=True)
class OwnTable:
    """Tables of position biases that only the first layer has; their result travels as `position_bias`."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Where the heads of one attention class, or the neurons of a feed-forward, are. Paths are relative to the site.

    Attributes:
        o: the output projection, whose input is the heads side by side.
        rows: projection (Linear, Conv1D or bare parameter) -> its segments. `q`, `k`, `v` name a block for each query
            or key-value head; `q k v` puts three segments one after another; `[q k v]` is one block per query head;
            `{q k v}` one block per key-value group. Any other name in brackets is one more block of `width`. `n` is a
            neuron, `n n` both halves of a fused gate. Absent paths are skipped.
        width: a head's width, or the attribute that has it.
        sizes: attributes of widths that differ, by name: q, k, v, o.
        per_head: tensor or ModuleList -> the axis on which its heads lie; `kv:` before the path means key-value heads.
        counts: attribute -> "heads", "kv", "group" or "heads*width"; `config.` means on the site's own copy.
        bias: a bias that is made elsewhere.
        selected: norm over all heads at once -> `q` or `k`. Its projection stays whole and the heads that stay are
            taken from its output, because a norm of fewer heads would be another norm.
        kind: "encoder", "decoder" or "cross" where neither the site's name nor its attributes tell; "ffn" for neurons.
        empty: whether the class runs with no head at all.
        when: which instances of the class this layout describes.
    """

    o: str
    rows: Mapping[str, str]
    width: str | int = "head_dim"
    sizes: Mapping[str, str] = field(default_factory=lambda: _NONE)
    per_head: Mapping[str, int] = field(default_factory=lambda: _NONE)
    counts: Mapping[str, str] = field(default_factory=lambda: _NONE)
    bias: IndexedArgument | OwnTable | None = None
    selected: Mapping[str, str] = field(default_factory=lambda: _NONE)
    kind: str | None = None
    empty: bool = True
    when: Callable[[nn.Module], bool] | None = None

    def size(self, site: nn.Module, name: str) -> int:
        """Width of one head's block called `name` (q, k, v, o or anything else in brackets)."""
        width = self.sizes.get(name, self.width)
        return width if isinstance(width, int) else int(attrgetter(width)(site))


@dataclass(frozen=True)
class Plan:
    """Which heads of a site stay, in order: query heads, and the key-value head of each group of them.

    Attributes:
        query: kept query heads.
        kv: key-value head of each new group; one may serve several groups, so repeats are allowed.
        group: how many query heads of the unpruned site share a key-value head.
    """

    query: tuple[int, ...]
    kv: tuple[int, ...]
    group: int

    @property
    def new_group(self) -> int:
        """How many kept query heads share a key-value head."""
        return len(self.query) // len(self.kv) if self.kv else self.group


@cache
def segments(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Parses "q k v", "[q k v]" or "{q k v}" into (over what it repeats, names of the blocks)."""
    parsed = []
    for token in re.findall(r"\[[^\]]*\]|\{[^}]*\}|\w+", text):
        names = tuple(token.strip("[]{}").split())
        over = {"[": "query", "{": "group"}.get(token[0], "kv" if token in ("k", "v") else "query")
        parsed.append((over, names))
    return tuple(parsed)


def block_size(over: str, names: Sequence[str], size: Callable[[str], int], group: int) -> int:
    """Rows of one repeat of a segment."""
    return sum(size(name) * (group if over == "group" and name == "q" else 1) for name in names)


def total_rows(text: str, size: Callable[[str], int], heads: int, kv: int) -> int:
    """Rows of a whole projection with that many query and key-value heads."""
    repeats = {"query": heads, "kv": kv, "group": kv}
    group = heads // kv if kv else 1
    return sum(repeats[over] * block_size(over, names, size, group) for over, names in segments(text))


def places(heads: Sequence[int], width: int) -> Tensor:
    """Indices of what belongs to the heads, in their order, on an axis where each has `width` entries."""
    return _spread(torch.tensor(heads, dtype=torch.long) * width, width).flatten()


def rows(text: str, size: Callable[[str], int], heads: int, kv: int, plan: Plan) -> Tensor:
    """Indices, on a projection's output axis, of what belongs to the heads that stay, in their new order."""
    indices = []
    offset = 0
    for over, names in segments(text):
        block = block_size(over, names, size, plan.group)
        if over == "group":
            indices.append(_group_rows(names, size, plan, block) + offset)
        else:
            indices.append(places(plan.kv if over == "kv" else plan.query, block) + offset)
        offset += block * (heads if over == "query" else kv)
    return indices[0] if len(indices) == 1 else torch.cat(indices)


def _group_rows(names: Sequence[str], size: Callable[[str], int], plan: Plan, block: int) -> Tensor:
    """Rows of the new groups: each takes its query heads and a copy of the keys and values they shared."""
    start = torch.tensor(plan.kv, dtype=torch.long) * block
    members = torch.tensor(plan.query, dtype=torch.long).view(len(plan.kv), plan.new_group) % plan.group
    indices = []
    for name in names:
        first = start.unsqueeze(1) + members * size(name) if name == "q" else start.unsqueeze(1)
        indices.append(_spread(first, size(name)).flatten(1))
        start = start + size(name) * (plan.group if name == "q" else 1)
    return torch.cat(indices, 1).flatten()


def _spread(starts: Tensor, width: int) -> Tensor:
    """Each start with the `width - 1` indices after it, on one more axis."""
    return starts.unsqueeze(-1) + torch.arange(width)
