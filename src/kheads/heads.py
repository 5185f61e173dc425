"""Sites, sets of heads, and the one function that turns scores into exactly K heads.

Heads have one global order: sites in the order `discover` returns them, heads within a site by index. Every vector
of H numbers in kheads (scores, gate values, masks) follows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from kheads.subset import hard_top_k

KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Site:
    """One attention module: an output projection whose input is cut into equal blocks, one for each head.

    Attributes:
        name: path of the module in the model.
        kind: "encoder" (bidirectional self-attention), "decoder" (causal self-attention) or "cross".
        num_heads: how many heads are there to keep or remove; 0 for an emptied site.
        head_dim: width of one query head.
        unit: what `num_heads` counts: "head" (every query head has its own key and value), "group" (a key-value head
            with all its query heads) or "query" (single query heads that share key-value heads).
        heads_per_unit: query heads that go together; 1 unless the unit is "group".
    """

    name: str
    kind: str
    num_heads: int
    head_dim: int
    unit: str = "head"
    heads_per_unit: int = 1

    @property
    def block(self) -> int:
        """Width of one counted head at the input of the output projection."""
        return self.head_dim * self.heads_per_unit


@dataclass(frozen=True)
class HeadSet:
    """Which heads stay, site by site. Immutable, ordered and hashable; an unnamed site keeps no head."""

    heads: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def from_dict(cls, heads: Mapping[str, Sequence[int]]) -> HeadSet:
        """Builds a set from `{site name: [head, ...]}`; heads are sorted, sites keep their order."""
        if not isinstance(heads, Mapping):
            raise TypeError(f"`heads` must map site names to lists of heads; got {type(heads).__name__}.")
        return cls(tuple((str(name), _sorted_heads(name, indices)) for name, indices in heads.items()))

    @classmethod
    def from_mask(cls, mask: Tensor, sites: Sequence[Site]) -> HeadSet:
        """Builds a set from an (H,) tensor that is non-zero where a head stays."""
        parts = mask.split([site.num_heads for site in sites])
        return cls(
            tuple(
                (site.name, tuple(part.nonzero().flatten().tolist())) for site, part in zip(sites, parts, strict=True)
            )
        )

    def to_dict(self) -> dict[str, list[int]]:
        """Returns `{site name: [head, ...]}`, emptied sites included."""
        return {name: list(indices) for name, indices in self.heads}

    @classmethod
    def from_json(cls, text: str) -> HeadSet:
        """Reads what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON."""
        return json.dumps(self.to_dict())

    def mask(self, sites: Sequence[Site], device: torch.device | str = "cpu") -> Tensor:
        """Returns the (H,) float64 vector of ones (kept) and zeros, after checking that every head exists."""
        self.check(sites)
        kept = dict(self.heads)
        values = [float(head in set(kept.get(site.name, ()))) for site in sites for head in range(site.num_heads)]
        return torch.tensor(values, dtype=torch.float64, device=device)

    def by_kind(self, sites: Sequence[Site]) -> dict[str, list[list[int]]]:
        """The heads of each kind of attention, layer by layer: the n-th site of a kind is its layer n."""
        heads = self.to_dict()
        kinds = [kind for kind in KINDS if any(site.kind == kind for site in sites)]
        return {kind: [heads.get(site.name, []) for site in sites if site.kind == kind] for kind in kinds}

    def check(self, sites: Sequence[Site]) -> None:
        """Raises ValueError if a site or a head named here does not exist in `sites`."""
        counts = {site.name: site.num_heads for site in sites}
        for name, indices in self.heads:
            if name not in counts:
                raise ValueError(
                    f"The model has no attention site {name!r}; its sites are {_shorten(list(counts))}. "
                    "List them with `kheads.discover(model)`."
                )
            beyond = [index for index in indices if index >= counts[name]]
            if beyond:
                raise ValueError(
                    f"Site {name!r} has {counts[name]} heads (0 to {counts[name] - 1}); got head {beyond[0]}."
                    if counts[name]
                    else f"Site {name!r} has no heads left; got head {beyond[0]}."
                )

    def __len__(self) -> int:
        """The number of heads that stay, over all sites."""
        return sum(len(indices) for _, indices in self.heads)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yields (site name, head) pairs in order."""
        return ((name, index) for name, indices in self.heads for index in indices)


@dataclass(frozen=True)
class Constraints:
    """What a selection must honour besides K. All of them hold exactly, together, or `select` says why not.

    Attributes:
        min_per_site: every site keeps at least this many heads.
        uniform: every site keeps the same number of heads.
        protected: heads that stay whatever their scores, as `{site name: [head, ...]}`.
        quotas: exact number of heads by kind, such as `{"cross": 8}`.
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


def select(
    scores: Tensor | Sequence[float], k: int, sites: Sequence[Site], constraints: Constraints | None = None
) -> HeadSet:
    """Keeps the `k` heads of highest score; the lower index wins a tie.

    The only place where scores become heads: straight-through forwards, evaluation during training and the final
    removal all call it. Without constraints it is the hard top-K. With them, it first takes what must be taken
    (protected heads, then each site's and each kind's minimum, best first) and fills up with the best of the rest.
    Sites are nested in kinds, and kinds in the model, so this greedy choice has the highest total score.

    Args:
        scores: one finite number per head, (H,), in global order.
        k: how many heads to keep, 1 to H.
        sites: the sites, as `discover` returned them.
        constraints: further demands on the selection.
    """
    sites = tuple(sites)
    total = sum(site.num_heads for site in sites)
    scores = _checked_scores(scores, total)
    _check_k(k, total)
    if constraints is None:
        return HeadSet.from_mask(hard_top_k(scores, k), sites)
    return HeadSet.from_mask(_constrained(scores, k, sites, constraints), sites)


def pools(
    scores: Tensor, k: int, sites: Sequence[Site], constraints: Constraints | None = None
) -> list[tuple[list[int], int]]:
    """Splits the heads so that the best of every pool are what `select` keeps: (heads, how many of them stay).

    Heads compete inside a pool only. A site that keeps no more than its constraint demands is a pool of its own; the
    other sites of a kind with a quota share one, and so do all the rest. Protected heads are in none.
    """
    mask = select(scores, k, sites, constraints).mask(sites)
    if constraints is None:
        return [(list(range(len(mask))), k)]
    protected = HeadSet.from_dict(constraints.protected).mask(sites)
    least = _heads_per_site(k, tuple(sites), constraints)
    members: dict[tuple[str, str], list[int]] = {}
    start = 0
    for site in sites:
        heads = range(start, start + site.num_heads)
        start += site.num_heads
        bound = least > 0 and int(mask[heads.start : heads.stop].sum()) <= least
        pool = ("site", site.name) if bound else ("kind", site.kind if site.kind in constraints.quotas else "")
        members.setdefault(pool, []).extend(head for head in heads if not protected[head])
    return [(heads, int(mask[heads].sum())) for heads in members.values() if heads]


def _constrained(scores: Tensor, k: int, sites: tuple[Site, ...], constraints: Constraints) -> Tensor:
    protected = HeadSet.from_dict(constraints.protected).mask(sites)
    demands = _demands(k, sites, constraints)
    taken = protected
    for mask, count, exact, label in demands:
        have = int((taken * mask).sum())
        if have > count and exact:
            raise ValueError(f"{label} must keep exactly {count} heads, but {have} are already required there.")
        taken = _fill(taken, mask, count, scores, label)
    return taken


def _demands(k: int, sites: tuple[Site, ...], constraints: Constraints) -> list[tuple[Tensor, int, bool, str]]:
    """The counts to reach, innermost first: (heads concerned, count, exactly?, how to name it)."""
    per_site = _heads_per_site(k, sites, constraints)
    quotas = _checked_quotas(k, sites, constraints)
    demands = [
        (
            _mask_where(sites, lambda other, name=site.name: other.name == name),
            per_site,
            constraints.uniform,
            f"Site {site.name!r}",
        )
        for site in sites
    ]
    for kind, quota in quotas.items():
        demands.append((_mask_where(sites, lambda other, kind=kind: other.kind == kind), quota, True, f"Kind {kind!r}"))
    free = _mask_where(sites, lambda other: other.kind not in quotas)
    demands.append((free, k - sum(quotas.values()), True, "The rest of the model" if quotas else "The model"))
    return demands


def _fill(taken: Tensor, mask: Tensor, count: int, scores: Tensor, label: str) -> Tensor:
    """Adds the best heads under `mask` until `count` of them are taken."""
    missing = count - int((taken * mask).sum())
    candidates = mask.bool() & ~taken.bool()
    if missing > int(candidates.sum()):
        raise ValueError(f"{label} must keep {count} heads, but has only {int(mask.sum())}.")
    if missing <= 0:
        return taken
    return taken + hard_top_k(scores.masked_fill(~candidates, -torch.inf), missing)


def _heads_per_site(k: int, sites: tuple[Site, ...], constraints: Constraints) -> int:
    if not constraints.uniform:
        return constraints.min_per_site
    if k % len(sites):
        raise ValueError(
            f"`uniform` needs `k` to be a multiple of the number of sites ({len(sites)}); got k = {k}. "
            f"The nearest are {k - k % len(sites)} and {k - k % len(sites) + len(sites)}."
        )
    if k // len(sites) < constraints.min_per_site:
        raise ValueError(
            f"`uniform` keeps {k // len(sites)} heads in each site, below `min_per_site` = {constraints.min_per_site}."
        )
    return k // len(sites)


def _checked_quotas(k: int, sites: tuple[Site, ...], constraints: Constraints) -> Mapping[str, int]:
    kinds = sorted({site.kind for site in sites})
    for kind in constraints.quotas:
        if kind not in kinds:
            raise ValueError(f"`quotas` names the kind {kind!r}; this model has {', '.join(map(repr, kinds))}.")
    if sum(constraints.quotas.values()) > k:
        raise ValueError(f"`quotas` ask for {sum(constraints.quotas.values())} heads, more than k = {k}.")
    return constraints.quotas


def _mask_where(sites: tuple[Site, ...], wanted: Any) -> Tensor:
    return torch.tensor([float(wanted(site)) for site in sites for _ in range(site.num_heads)], dtype=torch.float64)


def _checked_scores(scores: Tensor | Sequence[float], total: int) -> Tensor:
    scores = torch.as_tensor(scores).detach().to("cpu", torch.float64)
    if scores.shape != (total,):
        raise ValueError(f"`scores` must have shape ({total},), one number per head; got {tuple(scores.shape)}.")
    if not scores.isfinite().all():
        index = int((~scores.isfinite()).nonzero()[0])
        raise ValueError(f"`scores` must be finite; got {scores[index].item()} at index {index}.")
    return scores


def _check_k(k: int, total: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"`k` must be an integer between 1 and {total} (the model's heads); got {k!r}.")
    if not 1 <= k <= total:
        raise ValueError(f"`k` must be between 1 and {total} (the model's heads); got {k}.")


def _sorted_heads(name: str, indices: Sequence[int]) -> tuple[int, ...]:
    for index in indices:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise ValueError(f"Heads of site {name!r} must be integers from 0 up; got {index!r}.")
    if len(set(indices)) != len(indices):
        raise ValueError(f"Heads of site {name!r} are named twice: {sorted(indices)}.")
    return tuple(sorted(indices))


def _shorten(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
