"""The one function that turns scores into blocks: exactly K of them, or what fits into a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.costs import Costs, check_costs, priced
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, Sites, noun, part, spans, total
from kheads.blocks.within_budget import Choice
from kheads.subset import hard_top_k


def select(
    scores: Tensor | Sequence[float],
    budget: int | Budget | None = None,
    sites: Sequence[Site] = (),
    constraints: Constraints | None = None,
    *,
    costs: Costs | None = None,
    k: int | None = None,
) -> Kept:
    """Keeps the blocks of highest score within the budget; the lower index wins a tie.

    The only place where scores become blocks: straight-through forwards, evaluation during training and the final
    removal all call it. A score says how much a block is wanted *for what it costs*.

    With a number of blocks it is the hard top-K. With constraints, it first takes what must be taken (protected
    blocks, then each site's and each kind's minimum, best first) and fills up with the best of the rest. Sites are
    nested in kinds, and kinds in the model, so this greedy choice has the highest total score.

    With any other budget the sum of score times cost is made as large as the limit allows, scores counting from the
    lowest one up: for small blocks that is a threshold on the scores again. Never above the limit, and no further block
    fits. `blocks.knapsack` says how exactly, quotas and multiples included. A site that would keep a silent block,
    emptied, keeps its best one.

    Args:
        scores: one finite number per block, (N,), in global order.
        budget: how many blocks to keep, 1 to N, or a `Budget`.
        sites: the sites, as `discover` returned them.
        constraints: further demands on the selection.
        costs: what blocks cost; needed where the sites do not tell, which is for `flops`, `speedup` and `ms`.
        k: another name for a budget that is a number of blocks.
    """
    sites = sites if isinstance(sites, Sites) else tuple(sites)
    scores = _checked_scores(scores, sites)
    if (budget is None) == (k is None):
        raise TypeError("`select` takes either `budget` or `k`, which say how much may stay; give one of them.")
    asked: Any = k if budget is None else budget
    if not isinstance(asked, Budget):
        _check_k(asked, sites)
        return Kept.from_mask(_best_k(scores, asked, sites, constraints), sites)
    if asked.currency == "heads":
        return _best_heads(scores, asked, sites, constraints)
    found = priced(asked, sites) if costs is None else costs
    check_costs(found, asked, sites)
    return Kept.from_mask(Choice(scores, asked, sites, constraints or Constraints(), found).mask(), sites)


def _best_heads(scores: Tensor, budget: Budget, sites: Sequence[Site], constraints: Constraints | None) -> Kept:
    """A number of heads; neurons all stay."""
    heads = tuple(site for site in sites if part(site) == "heads")
    k = int(budget.limit(total(heads)))
    _check_k(k, heads)
    is_head = torch.tensor([part(site) == "heads" for site in sites for _ in range(site.count)], dtype=torch.bool)
    mask = torch.ones_like(scores)
    mask[is_head] = _best_k(scores[is_head], k, heads, constraints)
    return Kept.from_mask(mask, sites)


def _best_k(scores: Tensor, k: int, sites: tuple[Site, ...], constraints: Constraints | None) -> Tensor:
    if constraints is None:
        return hard_top_k(scores, k)
    if constraints.multiple_of > 1:
        raise ValueError("`multiple_of` is for budgets of parameters, FLOPs or time; a number of blocks is exact.")
    return _constrained(scores, k, sites, constraints)


def pools(
    scores: Tensor,
    budget: int | Budget,
    sites: Sequence[Site],
    constraints: Constraints | None = None,
    costs: Costs | None = None,
) -> list[tuple[list[int], float]]:
    """Splits the blocks so that the best of every pool are what `select` keeps: (blocks, what those that stay cost).

    Blocks compete inside a pool only. A site that keeps no more than its constraint demands is a pool of its own; the
    other sites of a kind with a quota share one, and so do all the rest. Protected blocks are in none.
    """
    mask = select(scores, budget, sites, constraints, costs=costs).mask(sites)
    if constraints is None:
        return [(list(range(len(mask))), _spent(mask, costs))]
    free = ~Kept.from_dict(constraints.protected).mask(sites).bool()
    members: dict[tuple[str, str], list[int]] = {}
    for site, place in spans(sites):
        bound = constraints.uniform or 0 < int(mask[place].sum()) <= constraints.min_per_site
        pool = ("site", site.name) if bound else ("kind", site.kind if site.kind in constraints.quotas else "")
        members.setdefault(pool, []).extend((free[place].nonzero().flatten() + place.start).tolist())
    chosen = [
        (blocks, torch.zeros_like(mask).index_fill(0, torch.tensor(blocks), 1) * mask)
        for blocks in members.values()
        if blocks
    ]
    return [(blocks, _spent(inside, costs)) for blocks, inside in chosen]


def _spent(mask: Tensor, costs: Costs | None) -> float:
    """What the blocks of a mask cost; how many they are, where blocks are counted."""
    return int(mask.sum()) if costs is None else float(mask @ costs.each)


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
    if not most:
        raise ValueError(f"There are no {what} left to choose from.")
    if isinstance(k, bool) or not isinstance(k, int):
        share = f"; a share is `Budget(heads={k})`" if isinstance(k, float) and 0 < k < 1 else ""
        raise TypeError(f"`k` must be an integer between 1 and {most} (the model's {what}){share}; got {k!r}.")
    if not 1 <= k <= most:
        raise ValueError(f"`k` must be between 1 and {most} (the model's {what}); got {k}.")
