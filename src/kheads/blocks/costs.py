"""What blocks cost, in one currency: heads, parameters, FLOPs or milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor

from kheads.blocks.budget import Budget
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, Sites, part, spans, total


@dataclass(frozen=True, eq=False)
class Costs:
    """What every block of a model costs.

    Attributes:
        currency: what is counted: "heads", "params", "flops" or "ms".
        each: the cost of each block, (N,) float64, in global order; where a site has a curve, the mean along it.
        whole: what the model costs with all of its blocks.
        outside: what it costs beyond its blocks; no choice of blocks costs less.
        curves: by site, what it costs to keep 0, 1, 2 ... of its blocks, (count + 1,), from 0 up; sites that are
            missing cost the sum of their blocks.
    """

    currency: str
    each: Tensor
    whole: float
    outside: float
    curves: Mapping[str, Tensor] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, kept: Kept, sites: Sequence[Site]) -> float:
        """What the model costs with these blocks."""
        mask = kept.mask(sites)
        found = self.outside
        for site, place in spans(sites):
            curve = self.curves.get(site.name)
            found += float(mask[place] @ self.each[place] if curve is None else curve[int(mask[place].sum())])
        return found


def counted(sites: Sequence[Site]) -> Costs:
    """Every head costs 1, and a neuron nothing; where there are only neurons, each of them costs 1."""
    heads = any(part(site) == "heads" for site in sites)
    each = [float(part(site) == "heads" or not heads) for site in sites for _ in range(site.count)]
    return Costs("heads", torch.tensor(each, dtype=torch.float64), sum(each), 0.0)


def parameters(sites: Sequence[Site]) -> Costs:
    """How many parameters go with each block."""
    if not isinstance(sites, Sites):
        raise TypeError(
            "A budget of parameters needs the sites as `kheads.discover(model)` returned them, which know what lies "
            f"outside of their blocks; got a {type(sites).__name__}."
        )
    for site in sites:
        if site.unit == "query":
            raise ValueError(
                f"What a query head of {site.name!r} costs depends on the others that share its keys and values; "
                'give a number of heads, or take unit="group".'
            )
    each = [float(site.parameters) for site in sites for _ in range(site.count)]
    return Costs("params", torch.tensor(each, dtype=torch.float64), float(sites.parameters), float(sites.outside))


def priced(budget: Budget, sites: Sequence[Site]) -> Costs:
    """What blocks cost in the currency of the budget, where the sites alone tell."""
    if budget.currency == "heads":
        return counted(sites)
    if budget.currency == "params":
        return parameters(sites)
    raise ValueError(
        f"What blocks cost in `{budget.name}` has to be found out on the model; give "
        "`costs=kheads.price(model, budget, sites)`."
    )


def check_costs(costs: Costs, budget: Budget, sites: Sequence[Site]) -> None:
    """Raises if these costs are of other blocks, or in another currency."""
    if len(costs.each) != total(sites):
        raise ValueError(f"`costs` are of {len(costs.each)} blocks; these sites have {total(sites)}.")
    if costs.currency != budget.currency:
        raise ValueError(f"`costs` are in {costs.currency}, and the budget is in {budget.currency}.")
