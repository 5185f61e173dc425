"""What a selection must honour besides how much stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kheads.blocks.fields import Count, Whole, check_fields


@dataclass(frozen=True)
class Constraints:
    """What a selection must honour besides its budget. All of them hold exactly, together, or `select` says why not.

    Attributes:
        min_per_site: Keep at least this many heads per site; and neurons, where these are chosen, too.
        uniform: Keep equally many heads in every site; and equally many neurons in every feed-forward layer.
        protected: Heads that stay whatever their scores: {site name: [head, ...]}; or neurons.
        quotas: Keep exactly this many heads of a kind: {kind: count}; ffn counts neurons.
        multiple_of: Keep a multiple of this many neurons in each feed-forward layer, or all of them.
    """

    min_per_site: Whole = 0
    uniform: bool = False
    protected: Mapping[str, Sequence[Whole]] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Mapping[str, Whole] = field(default_factory=lambda: MappingProxyType({}))
    multiple_of: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)
