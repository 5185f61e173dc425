"""Blocks within a budget of parameters, FLOPs or time: what must stay, and the best of the rest that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.costs import Costs
from kheads.blocks.kept import Kept
from kheads.blocks.knapsack import ROUNDING, Group, best_items, best_steps, within
from kheads.blocks.site import Site, noun, part, parts_of, spans

WITHOUT = {"heads": "without any attention", "ffn": "without any neuron", "all": "without any head or neuron"}
ADD_ALL = '; add `parts="all"`'
ALONE = {"heads": " with heads alone", "ffn": " with neurons alone", "all": ""}


@dataclass(frozen=True, eq=False)
class Choice:
    """What is to be chosen.

    Attributes:
        scores: one number per block, (N,) float64.
        budget: how much may stay.
        sites: the sites.
        constraints: further demands on the selection.
        costs: what blocks cost, in the currency of the budget.
    """

    scores: Tensor
    budget: Budget
    sites: Sequence[Site]
    constraints: Constraints
    costs: Costs

    @property
    def limit(self) -> float:
        """The most that the model may cost."""
        return self.budget.limit(self.costs.whole)

    @property
    def values(self) -> Tensor:
        """What each block is worth, from 0 up: its score is per cost."""
        lowest = self.scores.min() if len(self.scores) else 0.0
        return (self.scores - lowest) * self.costs.each

    def mask(self) -> Tensor:
        """The blocks that stay, (N,) bool."""
        if self.constraints.uniform:
            return self._uniform()
        taken, quotas = self._forced()
        spent = self.costs.of(Kept.from_mask(taken, self.sites), self.sites)
        if self.costs.curves or any(site.count % self._step(site) for site in self.sites):
            return self._stepwise(taken, quotas, self.limit - spent)
        item = self._items(taken)
        free = item >= 0
        values, costs = (_added(of[free], item[free]) for of in (self.values, self.costs.each))
        inside = [(torch.unique(item[blocks]), count // self._together(blocks, count)) for blocks, count in quotas]
        self._check(spent + sum(_cheapest(costs[items], count) for items, count in inside))
        taken[free] = best_items(values, costs, self.limit - spent, inside)[item[free]]
        return taken

    def _items(self, taken: Tensor) -> Tensor:
        """Of each block the item that it goes with, (N,), -1 where it must stay: a head, or a multiple of neurons."""
        item, start = torch.full_like(taken, -1, dtype=torch.long), 0
        for site, place in spans(self.sites):
            left, step = _span(place)[~taken[place]], self._step(site)
            queue = self._best_first(left) if step > 1 else left
            item[queue] = start + torch.arange(len(queue)) // step
            start += len(queue) // step
        return item

    def _together(self, blocks: Tensor, count: int) -> int:
        """How many of the blocks of a quota go together, which must divide what it asks for."""
        sites = [
            site for site, place in spans(self.sites) if len(blocks) and place.start <= int(blocks[0]) < place.stop
        ]
        step = self._step(sites[0]) if sites else 1
        if count % step:
            raise ValueError(
                f"`quotas` and `multiple_of` contradict each other: {count} further neurons of ffn are no multiple of "
                f"{step}; ask for {count % step} fewer, or {step - count % step} more."
            )
        return step

    def _forced(self) -> tuple[Tensor, list[tuple[Tensor, int]]]:
        """What must stay, (N,) bool; and of each kind with a quota the other blocks, and how many of them stay."""
        taken = Kept.from_dict(self.constraints.protected).mask(self.sites).bool()
        for site, place in spans(self.sites):
            least = self._least(site)
            if least > site.count:
                raise ValueError(
                    f"Site {site.name!r} must keep {least} {noun([site])} by `min_per_site`, but has only {site.count}."
                )
            have = int(taken[place].sum())
            step = self._step(site)
            self._take(taken, _span(place), min(-(-max(least, have) // step) * step, site.count) - have)
        quotas = []
        for kind, quota in self.constraints.quotas.items():
            blocks = self._blocks_of(kind)
            have = int(taken[blocks].sum())
            if not have <= quota <= len(blocks):
                raise ValueError(
                    f"Kind {kind!r} must keep exactly {quota} blocks by `quotas`, but it has {len(blocks)}, and {have} "
                    "are already required there."
                )
            quotas.append((blocks[~taken[blocks]], quota - have))
        return taken, quotas

    def _take(self, taken: Tensor, blocks: Tensor, missing: int) -> None:
        """Takes the best of some blocks that are not taken yet."""
        if missing > 0:
            taken[self._best_first(blocks[~taken[blocks]])[:missing]] = True

    def _best_first(self, blocks: Tensor) -> Tensor:
        return blocks[self.scores[blocks].argsort(descending=True, stable=True)]

    def _least(self, site: Site) -> int:
        """How many blocks a site must keep: where a silent one would stay, a real one costs no more."""
        return max(self.constraints.min_per_site, int(site.never_empty and site.count > 0))

    def _step(self, site: Site) -> int:
        return self.constraints.multiple_of if part(site) == "ffn" else 1

    def _blocks_of(self, kind: str) -> Tensor:
        places = [_span(place) for site, place in spans(self.sites) if site.kind == kind]
        if not places:
            kinds = sorted({site.kind for site in self.sites})
            raise ValueError(f"`quotas` names the kind {kind!r}; this model has {', '.join(map(repr, kinds))}.")
        return torch.cat(places)

    # -------------------------------------------------------------------------- a number of blocks for each site

    def _stepwise(self, taken: Tensor, quotas: Sequence[tuple[Tensor, int]], room: float) -> Tensor:
        """Where costs are curves, or neurons come in multiples: a number of blocks for each site, best first.

        Quotas are filled before, with the best blocks that fit.
        """
        if self.constraints.multiple_of > 1 and "ffn" in self.constraints.quotas:
            raise ValueError(
                "`multiple_of` and a quota of ffn do not go together here, where costs are no line or a layer has no "
                "multiple of neurons; leave one of them out."
            )
        values = self.values
        taken[within(quotas, values, self.costs.each, room)] = True
        is_free = ~taken
        for blocks, _ in quotas:
            is_free[blocks] = False
        least = self.costs.of(Kept.from_mask(taken, self.sites), self.sites)
        self._check(least)
        room = self.limit - least
        queues, groups = [], []
        for site, place in spans(self.sites):
            queue = self._best_first(_span(place)[is_free[place]])
            have = int(taken[place].sum())
            counts = self._counts(have, have + len(queue), site)
            spent, worth = self._curve(site, place)[counts], _sums(values[queue])[counts - have]
            queues.append([queue[: number - have] for number in counts.tolist()])
            groups.append(Group(worth, spent - spent[0]))
        for prefixes, number in zip(queues, best_steps(groups, room), strict=True):
            taken[prefixes[number]] = True
        return taken

    def _counts(self, least: int, most: int, site: Site) -> Tensor:
        """The numbers of blocks that a site may keep, rising."""
        step = self._step(site)
        multiples = range(-(-least // step) * step, most + 1, step)
        return torch.tensor(sorted({least, *multiples, *([most] if most == site.count else [])}))

    def _curve(self, site: Site, place: slice) -> Tensor:
        """What it costs to keep 0, 1, 2 ... blocks of a site."""
        curve = self.costs.curves.get(site.name)
        if curve is not None:
            return curve
        return _sums(self.costs.each[place])

    # ------------------------------------------------------------------------------- equally many in every site

    def _uniform(self) -> Tensor:
        """Equally many heads everywhere, and equally many neurons: every pair of numbers is looked at."""
        if self.constraints.quotas or self.constraints.protected:
            raise ValueError("`uniform` with a budget takes neither `quotas` nor `protected`; leave them out.")
        names = sorted({part(site) for site in self.sites})
        options = [self._uniform_options(name) for name in names]
        self._check(sum(float(spent[0]) for _, _, spent in options) + self.costs.outside)
        worth, spent = torch.zeros(1), torch.full((1,), self.costs.outside, dtype=torch.float64)
        steps = torch.zeros(1, dtype=torch.long)
        for counts, more_worth, more_spent in options:
            worth = (worth.unsqueeze(1) + more_worth).flatten()
            spent = (spent.unsqueeze(1) + more_spent).flatten()
            steps = (steps.unsqueeze(1) + torch.arange(len(counts))).flatten()
        worth = torch.where(spent <= self.limit * (1 + ROUNDING), worth, -torch.inf)
        # Blocks of the lowest score are worth nothing; they stay nevertheless where they fit.
        best = int(torch.where(worth == worth.max(), steps, -1).argmax())
        numbers = {}
        for name, (counts, _, _) in zip(reversed(names), reversed(options), strict=True):
            best, number = divmod(best, len(counts))
            numbers[name] = int(counts[number])
        taken = torch.zeros_like(self.scores, dtype=torch.bool)
        for site, place in spans(self.sites):
            self._take(taken, _span(place), numbers[part(site)])
        return taken

    def _uniform_options(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """For each number of blocks that all sites of a part may keep: the number, its total value, its total cost."""
        own = [(site, place) for site, place in spans(self.sites) if part(site) == name]
        most, least = min(site.count for site, _ in own), max(self._least(site) for site, _ in own)
        counts = self._counts(0, most, max((site for site, _ in own), key=lambda site: site.count))
        counts = counts[counts >= least]
        if not len(counts):
            what = noun([site for site, _ in own])
            raise ValueError(f"`uniform` cannot keep {least} {what} in each site: one has only {most}.")
        values, worth, spent = self.values, torch.zeros(len(counts)).double(), torch.zeros(len(counts)).double()
        for site, place in own:
            worth += _sums(values[self._best_first(_span(place))])[counts]
            spent += self._curve(site, place)[counts]
        return counts, worth, spent

    # ------------------------------------------------------------------------------------------- what cannot be

    def _check(self, least: float) -> None:
        """Raises if not even what must stay fits; says how far this model can go."""
        if least <= self.limit * (1 + ROUNDING):
            return
        budget, whole, parts = self.budget, self.costs.whole, parts_of(self.sites)
        bare = self.constraints in (Constraints(), Constraints(multiple_of=self.constraints.multiple_of))
        state = WITHOUT[parts] if bare else "with no more than the constraints ask for"
        if budget.name == "speedup":
            can = f"this model is {whole / least:.2f} times as fast here"
        elif budget.name == "ms":
            can = f"this model still takes {least:,.2f} ms here"
        else:
            what = {"params": "parameters", "flops": "FLOPs"}[budget.name]
            can = f"this model still has {least:,.0f} {what}, {100 * least / whole:.1f} % of what it has now"
        more = ADD_ALL if parts != "all" and bare else ""
        raise ValueError(
            f"`{budget.name}` {getattr(budget, budget.name):,} cannot be reached{ALONE[parts] if bare else ''}: "
            f"{state} {can}{more}."
        )


def _span(place: slice) -> Tensor:
    return torch.arange(place.start, place.stop)


def _added(numbers: Tensor, item: Tensor) -> Tensor:
    """The sum of the numbers of each item."""
    size = int(item.max()) + 1 if len(item) else 0
    return torch.zeros(size, dtype=torch.float64).index_add(0, item, numbers)


def _cheapest(costs: Tensor, count: int) -> float:
    """What so many blocks cost at the least."""
    return float(costs.sort().values[:count].sum())


def _sums(values: Tensor) -> Tensor:
    """The sum of the first 0, 1, 2 ... numbers."""
    return torch.cat([values.new_zeros(1), values.cumsum(0)])
