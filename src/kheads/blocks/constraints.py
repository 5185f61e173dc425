"""What a selection must honour besides how many blocks stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Constraints:
    """What a selection must honour besides K. All of them hold exactly, together, or `select` says why not.

    Attributes:
        min_per_site: Keep at least this many heads per site.
        uniform: Keep equally many heads in every site.
        protected: Heads that stay whatever their scores: {site name: [head, ...]}.
        quotas: Keep exactly this many heads of a kind: {kind: count}.
    """

    min_per_site: int = 0
    uniform: bool = False
    protected: Mapping[str, Sequence[int]] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for name, count in {"min_per_site": self.min_per_site, **self.quotas}.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                what = "`min_per_site`" if name == "min_per_site" else f"The quota of {name!r}"
                raise ValueError(f"{what} must be an integer from 0 up; got {count!r}.")
