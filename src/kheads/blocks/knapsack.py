"""Which items to take within a limit, so that their total value is as high as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_COMBINATIONS = 2**22  # of counts that are tried one by one; above it, the order of density decides
STEPS = 2000  # the limit is met to one part in so many
MOST_OPTIONS = 256  # counts of a group that are looked at; what is left over is filled up in single steps
ROUNDING = 1e-9  # of the limit, by which sums of floating-point numbers may pass it


def best_items(values: Tensor, costs: Tensor, limit: float) -> Tensor:
    """The items of highest total value whose costs fit into the limit, (N,) bool; no further item would fit.

    Items of equal cost are taken in the order of their value, the lower index first. With D different costs, every
    combination of how many of each are taken is tried but for the most frequent one, which takes what is left. That is
    exact. Where there are more than `MOST_COMBINATIONS`, items are taken by value per cost for as long as they fit,
    which misses the best total by less than the value of one item.

    Args:
        values: one number per item, from 0 up.
        costs: one number per item, from 0 up.
        limit: the most that the items taken may cost.
    """
    taken = costs == 0
    prices, members = torch.unique(costs[~taken], return_inverse=True)
    free = (~taken).nonzero().flatten()
    classes = [free[members == number] for number in range(len(prices))]
    classes = [group[values[group].argsort(descending=True, stable=True)] for group in classes]
    order = sorted(range(len(classes)), key=lambda number: len(classes[number]))
    combinations = torch.tensor([len(classes[number]) + 1.0 for number in order[:-1]]).prod()
    if len(classes) and combinations <= MOST_COMBINATIONS:
        ordered = [classes[number] for number in order]
        for group, taking in zip(ordered, _best_counts(ordered, values, costs, limit), strict=True):
            taken[group[:taking]] = True
    return fill(taken, values, costs, limit)


def fill(taken: Tensor, values: Tensor, costs: Tensor, limit: float) -> Tensor:
    """Adds items by value per cost, for as long as one fits."""
    taken = taken.clone()
    room = limit * (1 + ROUNDING) - float(costs[taken].sum())
    density = values / costs.clamp(min=1e-300)
    left = (~taken).nonzero().flatten()
    left = left[density[left].argsort(descending=True, stable=True)]
    while len(left := left[costs[left] <= room]):
        # As many of the next ones as fit one after another, then whatever still fits.
        together = int((costs[left].cumsum(0) <= room).sum())
        taken[left[: max(together, 1)]] = True
        room -= float(costs[left[: max(together, 1)]].sum())
        left = left[max(together, 1) :]
    return taken


def _best_counts(classes: Sequence[Tensor], values: Tensor, costs: Tensor, limit: float) -> list[int]:
    """How many of each class to take, the last of which fills what the others leave."""
    room = limit * (1 + ROUNDING)
    worth, spent = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for group in classes[:-1]:
        steps = torch.arange(len(group) + 1, dtype=torch.float64)
        worth = (worth.unsqueeze(1) + _sums(values[group])).flatten()
        spent = (spent.unsqueeze(1) + steps * costs[group[0]]).flatten()
    last = classes[-1]
    fitting = ((room - spent) / costs[last[0]]).floor().clamp(min=-1, max=len(last)).long()
    worth = torch.where(fitting < 0, -torch.inf, worth + _sums(values[last])[fitting.clamp(min=0)])
    best = int(worth.argmax())
    counts = [int(fitting[best].clamp(min=0))]
    for group in reversed(classes[:-1]):
        best, number = divmod(best, len(group) + 1)
        counts.insert(0, number)
    return counts


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
