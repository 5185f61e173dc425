"""Which items to take within a limit, so that their total value is as high as it can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_COMBINATIONS = 2**22  # of counts that are tried one by one; above it, the order of density decides
STEPS = 2000  # the limit is met to one part in so many
MOST_OPTIONS = 256  # counts of a group that are looked at; what is left over is filled up in single steps
ROUNDING = 1e-9  # of the limit, by which sums of floating-point numbers may pass it


def best_items(values: Tensor, costs: Tensor, limit: float, quotas: Sequence[tuple[Tensor, int]] = ()) -> Tensor:
    """The items of highest total value whose costs fit into the limit, (N,) bool; no further item would fit.

    Items of equal cost are taken in the order of their value, the lower index first. With D different costs, every
    combination of how many of each are taken is tried but for the most frequent one, which takes what is left. That is
    exact. Where there are more than `MOST_COMBINATIONS`, items are taken by value per cost for as long as they fit,
    which misses the best total by less than the value of one item; of a quota the best are taken that fit.

    Args:
        values: one number per item, from 0 up.
        costs: one number per item, from 0 up.
        limit: the most that the items taken may cost; what the quotas need at the least must fit.
        quotas: items of which exactly so many are taken; no item is in two.
    """
    bound = torch.zeros_like(costs, dtype=torch.bool)
    for items, _ in quotas:
        bound[items] = True
    taken = (costs == 0) & ~bound
    choices = [_Choices.exactly(_classes(items, values, costs), count, values, costs) for items, count in quotas]
    classes = _classes((~taken & ~bound).nonzero().flatten(), values, costs)
    choices += [_Choices.any_number(group, values, costs) for group in classes[:-1]]
    if math.prod(choice.size for choice in choices) > MOST_COMBINATIONS:
        taken[within(quotas, values, costs, limit)] = True
    else:
        taken[_best_combination(choices, classes[-1:], values, costs, limit)] = True
    return fill(taken, values, costs, limit, ~bound)


def within(quotas: Sequence[tuple[Tensor, int]], values: Tensor, costs: Tensor, limit: float) -> Tensor:
    """So many items of each quota as it asks for, as indices: the best ones, or cheaper ones where those do not fit."""

    def chosen(thrift: float) -> Tensor:
        wanted = (1 - thrift) * values / values.max().clamp(min=1e-300) - thrift * costs / costs.max().clamp(min=1e-300)
        best = [items[wanted[items].argsort(descending=True, stable=True)][:count] for items, count in quotas]
        return torch.cat([*best, torch.arange(0)])

    if not quotas or not len(values):
        return torch.arange(0)
    low, high, room = 0.0, 1.0, limit * (1 + ROUNDING)
    if float(costs[chosen(low)].sum()) <= room:
        return chosen(low)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if float(costs[chosen(middle)].sum()) <= room else (middle, high)
    return chosen(high)


def fill(taken: Tensor, values: Tensor, costs: Tensor, limit: float, free: Tensor | None = None) -> Tensor:
    """Adds items by value per cost, of those that are free, for as long as one fits."""
    taken = taken.clone()
    room = limit * (1 + ROUNDING) - float(costs[taken].sum())
    density = values / costs.clamp(min=1e-300)
    left = (~taken if free is None else ~taken & free).nonzero().flatten()
    left = left[density[left].argsort(descending=True, stable=True)]
    while len(left := left[costs[left] <= room]):
        # As many of the next ones as fit one after another, then whatever still fits.
        together = int((costs[left].cumsum(0) <= room).sum())
        taken[left[: max(together, 1)]] = True
        room -= float(costs[left[: max(together, 1)]].sum())
        left = left[max(together, 1) :]
    return taken


def _classes(items: Tensor, values: Tensor, costs: Tensor) -> list[Tensor]:
    """The items by what they cost, each class best first, the largest class last."""
    prices, members = torch.unique(costs[items], return_inverse=True)
    classes = [items[members == number] for number in range(len(prices))]
    return sorted((group[values[group].argsort(descending=True, stable=True)] for group in classes), key=len)


@dataclass(frozen=True)
class _Choices:
    """How many of some classes may be taken: what each way is worth and costs, and how many of each class it takes.

    Attributes:
        classes: the classes, best items first.
        numbers: of every class in every way, (ways, classes); None where they are more than can be tried.
        size: how many ways there are.
        worth: what each way is worth, (ways,).
        spent: what each way costs, (ways,).
    """

    classes: Sequence[Tensor]
    numbers: Tensor | None
    size: int
    worth: Tensor
    spent: Tensor

    @classmethod
    def any_number(cls, group: Tensor, values: Tensor, costs: Tensor) -> _Choices:
        """Any number of one class."""
        return cls._of([group], torch.arange(len(group) + 1).unsqueeze(1), values, costs)

    @classmethod
    def exactly(cls, classes: Sequence[Tensor], count: int, values: Tensor, costs: Tensor) -> _Choices:
        """So many in all; the last class has what the others do not."""
        size = math.prod(len(group) + 1 for group in classes[:-1])
        if size > MOST_COMBINATIONS:
            return cls(classes, None, size, torch.empty(0), torch.empty(0))
        numbers = torch.zeros(1, 0, dtype=torch.long)
        for group in classes[:-1]:
            more = torch.arange(len(group) + 1)
            pairs = torch.cartesian_prod(torch.arange(len(numbers)), more)
            numbers = torch.cat([numbers[pairs[:, 0]], pairs[:, 1:]], 1)
        last = count - numbers.sum(1, keepdim=True)
        most = len(classes[-1]) if classes else 0
        possible = ((last >= 0) & (last <= most)).flatten()
        numbers = torch.cat([numbers, last], 1)[possible, : len(classes)]
        return cls._of(classes, numbers, values, costs)

    @classmethod
    def _of(cls, classes: Sequence[Tensor], numbers: Tensor, values: Tensor, costs: Tensor) -> _Choices:
        worth, spent = (torch.zeros(len(numbers), dtype=torch.float64) for _ in "ab")
        for group, taking in zip(classes, numbers.T, strict=True):
            worth += _sums(values[group])[taking]
            spent += taking * costs[group[0]]
        return cls(classes, numbers, len(numbers), worth, spent)


def _best_combination(
    choices: Sequence[_Choices], last: Sequence[Tensor], values: Tensor, costs: Tensor, limit: float
) -> Tensor:
    """The items of the best combination of ways, as indices; a last class fills what the others leave."""
    room = limit * (1 + ROUNDING)
    worth, spent = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for choice in choices:
        worth = (worth.unsqueeze(1) + choice.worth).flatten()
        spent = (spent.unsqueeze(1) + choice.spent).flatten()
    worth = torch.where(spent <= room, worth, -torch.inf)
    found: list[Tensor] = [torch.arange(0)]
    for group in last:
        fitting = ((room - spent) / costs[group[0]]).floor().clamp(min=0, max=len(group)).long()
        worth = worth + _sums(values[group])[fitting]
        found.append(group[: int(fitting[worth.argmax()])])
    best = int(worth.argmax())
    for choice in reversed(choices):
        best, way = divmod(best, choice.size)
        assert choice.numbers is not None, "ways that are not listed are not tried"
        found += [group[:number] for group, number in zip(choice.classes, choice.numbers[way].tolist(), strict=True)]
    return torch.cat(found)


def _sums(values: Tensor) -> Tensor:
    """The total value of the first 0, 1, 2 ... items."""
    return torch.cat([values.new_zeros(1), values.cumsum(0)])


@dataclass(frozen=True)
class Group:
    """Items of which a number is taken, best first, at a cost that need not be a line.

    Attributes:
        worth: the value of taking the first 0, 1, 2 ... steps, (S + 1,), rising.
        cost: what that costs, (S + 1,), never falling.
    """

    worth: Tensor
    cost: Tensor


def best_steps(groups: Sequence[Group], limit: float) -> list[int]:
    """How many steps of each group to take: the multiple-choice knapsack, by dynamic programming.

    Costs are rounded up to cells, so many that all roundings together are less than one part in `STEPS` of the limit.
    What they leave is filled up with the next best steps, until none fits.
    """
    cells = STEPS * max(len(groups), 1)
    size = limit * (1 + ROUNDING) / cells
    best = torch.zeros(cells + 1, dtype=torch.float64)
    chosen: list[Tensor] = []
    for group in groups:
        if size <= 0:
            break
        looked_at = _spread(len(group.cost))
        prices = (group.cost[looked_at] / size - 1e-6).ceil().clamp(min=0).long()
        found, pick = torch.full_like(best, -torch.inf), torch.zeros(cells + 1, dtype=torch.int32)
        for step, price in zip(looked_at.tolist(), prices.tolist(), strict=True):
            if price > cells:
                break
            candidate = best[: cells + 1 - price] + group.worth[step]
            better = candidate > found[price:]
            found[price:] = torch.where(better, candidate, found[price:])
            pick[price:] = torch.where(better, step, pick[price:])
        best = found
        chosen.append(pick)
    taken, cell = [0] * len(groups), cells
    for number in range(len(chosen) - 1, -1, -1):
        taken[number] = int(chosen[number][cell])
        cell -= int((groups[number].cost[taken[number]] / size - 1e-6).ceil().clamp(min=0))
    return _topped_up(groups, taken, limit * (1 + ROUNDING))


def _spread(size: int) -> Tensor:
    """Indices from the first to the last, evenly, and no more than `MOST_OPTIONS`."""
    if size <= MOST_OPTIONS:
        return torch.arange(size)
    return torch.linspace(0, size - 1, MOST_OPTIONS).round().long()


def _topped_up(groups: Sequence[Group], taken: list[int], limit: float) -> list[int]:
    """Takes further steps, the best per cost first, for as long as one fits."""
    room = limit - sum(float(group.cost[number]) for group, number in zip(groups, taken, strict=True))
    while True:
        fitting = []
        for place, (group, number) in enumerate(zip(groups, taken, strict=True)):
            if number + 1 < len(group.cost) and (price := float(group.cost[number + 1] - group.cost[number])) <= room:
                gain = float(group.worth[number + 1] - group.worth[number])
                fitting.append((gain / max(price, 1e-300), -place, price))
        if not fitting:
            return taken
        _, place, price = max(fitting)
        taken[-place] += 1
        room -= price
