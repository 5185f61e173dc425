"""What a selection must honour besides how many blocks stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kheads.blocks.fields import Whole, check_fields


@dataclass(frozen=True)
class Constraints:
    """What a selection must honour besides K. All of them hold exactly, together, or `select` says why not.

    Attributes:
        min_per_site: Keep at least this many heads per site.
        uniform: Keep equally many heads in every site.
        protected: Heads that stay whatever their scores: {site name: [head, ...]}.
        quotas: Keep exactly this many heads of a kind: {kind: count}.
    """

    min_per_site: Whole = 0
    uniform: bool = False
    protected: Mapping[str, Sequence[Whole]] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Mapping[str, Whole] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        check_fields(self)
