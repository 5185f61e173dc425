"""The one function that turns scores into exactly K blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kheads.blocks.constraints import Constraints
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, noun, spans, total
from kheads.subset import hard_top_k


def select(
    scores: Tensor | Sequence[float], k: int, sites: Sequence[Site], constraints: Constraints | None = None
) -> Kept:
    """Keeps the `k` blocks of highest score; the lower index wins a tie.

    The only place where scores become blocks: straight-through forwards, evaluation during training and the final
    removal all call it. Without constraints it is the hard top-K. With them, it first takes what must be taken
    (protected blocks, then each site's and each kind's minimum, best first) and fills up with the best of the rest.
    Sites are nested in kinds, and kinds in the model, so this greedy choice has the highest total score.

    Args:
        scores: one finite number per block, (N,), in global order.
        k: how many blocks to keep, 1 to N.
        sites: the sites, as `discover` returned them.
        constraints: further demands on the selection.
    """
    sites = tuple(sites)
    scores = _checked_scores(scores, sites)
    _check_k(k, sites)
    if constraints is None:
        return Kept.from_mask(hard_top_k(scores, k), sites)
    return Kept.from_mask(_constrained(scores, k, sites, constraints), sites)


def pools(
    scores: Tensor, k: int, sites: Sequence[Site], constraints: Constraints | None = None
) -> list[tuple[list[int], int]]:
    """Splits the blocks so that the best of every pool are what `select` keeps: (blocks, how many of them stay).

    Blocks compete inside a pool only. A site that keeps no more than its constraint demands is a pool of its own; the
    other sites of a kind with a quota share one, and so do all the rest. Protected blocks are in none.
    """
    mask = select(scores, k, sites, constraints).mask(sites)
    if constraints is None:
        return [(list(range(len(mask))), k)]
    free = ~Kept.from_dict(constraints.protected).mask(sites).bool()
    least = _least_per_site(k, tuple(sites), constraints)
    members: dict[tuple[str, str], list[int]] = {}
    for site, place in spans(sites):
        bound = least > 0 and int(mask[place].sum()) <= least
        pool = ("site", site.name) if bound else ("kind", site.kind if site.kind in constraints.quotas else "")
        members.setdefault(pool, []).extend((free[place].nonzero().flatten() + place.start).tolist())
    return [(blocks, int(mask[blocks].sum())) for blocks in members.values() if blocks]


class _Demand(NamedTuple):
    """A count to reach among some blocks."""

    places: Tensor  # the blocks concerned
    least: int
    exact: bool
    label: str
    why: str = ""  # the constraint that asks for it


def _constrained(scores: Tensor, k: int, sites: tuple[Site, ...], constraints: Constraints) -> Tensor:
    taken = Kept.from_dict(constraints.protected).mask(sites)
    what = noun(sites)
    for demand in _demands(k, sites, constraints):
        have = int(taken[demand.places].sum())
        if have > demand.least and demand.exact:
            raise ValueError(
                f"{demand.label} must keep exactly {demand.least} {what}{demand.why}, but {have} are already required "
                "there."
            )
        if demand.least > len(demand.places):
            raise ValueError(
                f"{demand.label} must keep {demand.least} {what}{demand.why}, but has only {len(demand.places)}."
            )
        _fill(taken, demand, scores)
    return taken


def _demands(k: int, sites: tuple[Site, ...], constraints: Constraints) -> Iterator[_Demand]:
    """The counts to reach, innermost first."""
    least = _least_per_site(k, sites, constraints)
    quotas = _checked_quotas(k, sites, constraints)
    places = {site.name: torch.arange(place.start, place.stop) for site, place in spans(sites)}
    for site in sites if least else ():
        why = " by `uniform`" if constraints.uniform else " by `min_per_site`"
        yield _Demand(places[site.name], least, constraints.uniform, f"Site {site.name!r}", why)
    for kind, quota in quotas.items():
        heads = torch.cat([places[site.name] for site in sites if site.kind == kind])
        yield _Demand(heads, quota, True, f"Kind {kind!r}", " by `quotas`")
    rest = [places[site.name] for site in sites if site.kind not in quotas]
    label = "The rest of the model" if quotas else "The model"
    yield _Demand(torch.cat(rest) if rest else torch.arange(0), k - sum(quotas.values()), True, label)


def _fill(taken: Tensor, demand: _Demand, scores: Tensor) -> None:
    """Takes the best of a demand's blocks until as many as it asks for are taken."""
    free = demand.places[taken[demand.places] == 0]
    missing = demand.least - (len(demand.places) - len(free))
    if missing > 0:
        taken[free] = hard_top_k(scores[free], missing)


def _least_per_site(k: int, sites: tuple[Site, ...], constraints: Constraints) -> int:
    if not constraints.uniform:
        return constraints.min_per_site
    if k % len(sites):
        raise ValueError(
            f"`uniform` needs `k` to be a multiple of the number of sites ({len(sites)}); got k = {k}. "
            f"The nearest are {k - k % len(sites)} and {k - k % len(sites) + len(sites)}."
        )
    if k // len(sites) < constraints.min_per_site:
        raise ValueError(
            f"`uniform` keeps {k // len(sites)} {noun(sites)} in each site, below `min_per_site` = "
            f"{constraints.min_per_site}."
        )
    return k // len(sites)


def _checked_quotas(k: int, sites: tuple[Site, ...], constraints: Constraints) -> Mapping[str, int]:
    kinds = sorted({site.kind for site in sites})
    for kind in constraints.quotas:
        if kind not in kinds:
            raise ValueError(f"`quotas` names the kind {kind!r}; this model has {', '.join(map(repr, kinds))}.")
    if sum(constraints.quotas.values()) > k:
        raise ValueError(f"`quotas` ask for {sum(constraints.quotas.values())} {noun(sites)}, more than k = {k}.")
    return constraints.quotas


def _checked_scores(scores: Tensor | Sequence[float], sites: tuple[Site, ...]) -> Tensor:
    scores = torch.as_tensor(scores).detach().to("cpu", torch.float64)
    if scores.shape != (total(sites),):
        what = noun(sites).removesuffix("s")
        raise ValueError(
            f"`scores` must have shape ({total(sites)},), one number per {what}; got {tuple(scores.shape)}."
        )
    if not scores.isfinite().all():
        index = int((~scores.isfinite()).nonzero()[0])
        site, place = next((site, place) for site, place in spans(sites) if index < place.stop)
        where = f"{noun([site]).removesuffix('s')} {index - place.start} of site {site.name!r}"
        raise ValueError(f"`scores` must be finite; got {scores[index].item()} at index {index} ({where}).")
    return scores


def _check_k(k: int, sites: tuple[Site, ...]) -> None:
    most, what = total(sites), noun(sites)
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"`k` must be an integer between 1 and {most} (the model's {what}); got {k!r}.")
    if not 1 <= k <= most:
        raise ValueError(f"`k` must be between 1 and {most} (the model's {what}); got {k}.")
