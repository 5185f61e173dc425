"""Which blocks stay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from kheads.blocks.site import KINDS, Site, noun, spans, total


@dataclass(frozen=True)
class Kept:
    """Which blocks stay, site by site. Immutable, ordered and hashable; an unnamed site keeps none."""

    blocks: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def from_dict(cls, blocks: Mapping[str, Sequence[int]]) -> Kept:
        """Reads `{site name: [block, ...]}`; blocks are sorted, sites keep their order."""
        if not isinstance(blocks, Mapping):
            raise TypeError(f"`blocks` must map site names to lists of blocks; got {type(blocks).__name__}.")
        return cls(tuple((str(name), _sorted(name, indices)) for name, indices in blocks.items()))

    @classmethod
    def from_mask(cls, mask: Tensor, sites: Sequence[Site]) -> Kept:
        """Reads an (N,) tensor that is non-zero where a block stays."""
        places, size = spans(sites), total(sites)
        if mask.shape != (size,):
            raise ValueError(f"`mask` must have shape ({size},), one number per block; got {tuple(mask.shape)}.")
        kept = mask.nonzero().flatten().cpu()
        starts = torch.tensor([place.start for _, place in places], dtype=torch.long)
        bounds = torch.cat([torch.searchsorted(kept, starts), torch.tensor([len(kept)])])
        indices = (kept - starts.repeat_interleave(bounds.diff())).tolist()
        each = zip(sites, pairwise(bounds.tolist()), strict=True)
        return cls(tuple((site.name, tuple(indices[begin:end])) for site, (begin, end) in each))

    @classmethod
    def everything(cls, sites: Sequence[Site]) -> Kept:
        """All blocks of the sites."""
        return cls(tuple((site.name, tuple(range(site.count))) for site in sites))

    def to_dict(self) -> dict[str, list[int]]:
        """Returns `{site name: [block, ...]}`, emptied sites included."""
        return {name: list(indices) for name, indices in self.blocks}

    @classmethod
    def from_json(cls, text: str) -> Kept:
        """Reads what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON."""
        return json.dumps(self.to_dict())

    def mask(self, sites: Sequence[Site], device: torch.device | str = "cpu") -> Tensor:
        """Returns the (N,) float64 vector of ones (kept) and zeros, after checking that every block exists."""
        self.check(sites)
        starts = {site.name: place.start for site, place in spans(sites)}
        places = [starts[name] + index for name, indices in self.blocks for index in indices]
        mask = torch.zeros(total(sites), dtype=torch.float64)
        mask[torch.tensor(places, dtype=torch.long)] = 1.0
        return mask.to(device)

    def by_kind(self, sites: Sequence[Site]) -> dict[str, list[list[int]]]:
        """The blocks of each kind, layer by layer: the n-th site of a kind is its layer n."""
        blocks = self.to_dict()
        kinds = [kind for kind in KINDS if any(site.kind == kind for site in sites)]
        return {kind: [blocks.get(site.name, []) for site in sites if site.kind == kind] for kind in kinds}

    def check(self, sites: Sequence[Site]) -> None:
        """Raises ValueError if a site or a block named here does not exist in `sites`."""
        known = {site.name: site for site in sites}
        for name, indices in self.blocks:
            if name not in known:
                raise ValueError(
                    f"The model has no site {name!r}; its sites are {_shorten(list(known))}. "
                    "List them with `kheads.discover(model)`."
                )
            count, what = known[name].count, noun([known[name]])
            if indices and indices[-1] >= count:
                beyond = next(index for index in indices if index >= count)
                raise ValueError(
                    f"Site {name!r} has {count} {what} (0 to {count - 1}); got {what[:-1]} {beyond}."
                    if count
                    else f"Site {name!r} has no {what} left; got {what[:-1]} {beyond}."
                )

    def __len__(self) -> int:
        """The number of blocks that stay, over all sites."""
        return sum(len(indices) for _, indices in self.blocks)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yields (site name, block) pairs in order."""
        return ((name, index) for name, indices in self.blocks for index in indices)


def _sorted(name: str, indices: Sequence[int]) -> tuple[int, ...]:
    for index in indices:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise ValueError(f"Blocks of site {name!r} must be integers from 0 up; got {index!r}.")
    if len(set(indices)) != len(indices):
        raise ValueError(f"Blocks of site {name!r} are named twice: {sorted(indices)}.")
    return tuple(sorted(indices))


def _shorten(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
