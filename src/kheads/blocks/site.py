"""A site: an output projection whose input is cut into equal blocks, and how a model's blocks are ordered.

Blocks have one global order: sites in the order `discover` returns them, blocks within a site by index. Every vector
of N numbers in kheads (scores, gate values, masks) follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor, nn

ATTENTIONS = ("encoder", "decoder", "cross")
KINDS = (*ATTENTIONS, "ffn")
HEADS = ("head", "group", "query")  # units whose blocks are attention heads


@dataclass(frozen=True)
class Site:
    """An output projection whose input is cut into equal blocks: heads of an attention, neurons of a feed-forward.

    Attributes:
        name: path of the module in the model.
        kind: "encoder" (bidirectional self-attention), "decoder" (causal self-attention), "cross", or "ffn".
        count: how many blocks are there to keep or remove; 0 for an emptied site.
        width: how many inputs of the output projection belong to one block.
        unit: what a block is: "head" (every query head has its own key and value), "group" (a key-value head with all
            its query heads), "query" (single query heads that share key-value heads) or "neuron".
        output: path of the output projection in the model.
        parameters: how many parameters go with one block; 0 where that depends on which others stay.
        never_empty: whether the site, emptied, keeps a silent block, because its class or a cache needs one.
    """

    name: str
    kind: str
    count: int
    width: int
    unit: str = "head"
    output: str = ""
    parameters: int = field(default=0, compare=False)
    never_empty: bool = field(default=False, compare=False)

    def projection(self, model: nn.Module) -> nn.Module:
        """The output projection of this site in `model`, which may be wrapped as `discover` allows."""
        found: nn.Module = unwrap(model).get_submodule(self.output)
        return found

    def weight(self, model: nn.Module) -> Tensor:
        """What the output projection does with each block: (outputs, blocks, width), a view of its weight."""
        projection: Any = self.projection(model)
        weight: Tensor = projection.weight.T if hasattr(projection, "nf") else projection.weight  # Conv1D: inputs first
        # An emptied site may keep one silent block, which does not count.
        return weight[:, : self.count * self.width].view(len(weight), self.count, self.width)


class Sites(tuple[Site, ...]):
    """The sites of a model as `discover` returns them: a tuple that knows what lies outside of its blocks, too.

    Attributes:
        parameters: how many the whole model has.
        outside: how many of these belong to no block.
    """

    parameters: int
    outside: int

    def __new__(cls, sites: Iterable[Site] = (), parameters: int = 0, outside: int = 0) -> Self:
        """Sites, and what is known of the model around them."""
        made = super().__new__(cls, sites)
        made.parameters, made.outside = parameters, outside
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        """What a copy is made of."""
        return (tuple(self), self.parameters, self.outside)


def unwrap(model: Any) -> Any:
    """Looks through DistributedDataParallel, DataParallel and torch.compile."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch module; got {type(model).__name__}.")
    while True:
        if type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def total(sites: Iterable[Site]) -> int:
    """The number of blocks there are, N."""
    return sum(site.count for site in sites)


def spans(sites: Iterable[Site]) -> list[tuple[Site, slice]]:
    """Every site with the place of its blocks in a vector of N numbers."""
    found, start = [], 0
    for site in sites:
        found.append((site, slice(start, start + site.count)))
        start += site.count
    return found


def part(site: Site) -> str:
    """Which part of a model a site belongs to: "heads" or "ffn"."""
    return "ffn" if site.kind == "ffn" else "heads"


def parts_of(sites: Sequence[Site]) -> str:
    """Which parts of a model these sites are, as `discover` names them."""
    found = {part(site) for site in sites}
    return "all" if len(found) > 1 else next(iter(found), "heads")


def noun(sites: Iterable[Site]) -> str:
    """What people call these blocks."""
    units = {site.unit for site in sites}
    return "heads" if units <= set(HEADS) else "neurons" if units == {"neuron"} else "blocks"
