"""What several runs say together: means and their intervals over seeds, and how far two sets of heads agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

Varied = TypeVar("Varied", bound=Hashable)  # what runs differ in besides their seed, such as K

LEVEL = 0.95
DRAWS = 10_000

# An interval that reaches from the least to the greatest of n values, as a bootstrap over few values does, covers the
# truth with probability 1 - 2^(1 - n). Below this many values that is less than `LEVEL`.
ENOUGH = 6
# Fewer seeds than this decide nothing: of two, both lie on the same side every second time, whatever the truth is.
DECIDES = 3


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bootstrap interval.

    Attributes:
        mean: of the values.
        low: lower end; not a number where there is one value.
        high: upper end; not a number where there is one value.
        std: standard deviation of the values (n - 1); not a number where there is one value.
        count: how many values there are. Below `ENOUGH` the interval is narrower than it claims to be.
    """

    mean: float
    low: float
    high: float
    std: float
    count: int

    @property
    def is_range(self) -> bool:
        """Whether the ends are only the two values there are, and no interval."""
        return self.count == 2


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean over seeds.

    Args:
        values: one number per seed.
    """
    sample = _sample(values)
    if len(sample) == 1:
        return Interval(float(sample[0]), torch.nan, torch.nan, torch.nan, 1)
    low, high = bootstrap(values, lambda draws: draws.mean(1))
    return Interval(float(sample.mean()), low, high, float(sample.std()), len(sample))


def seed_means(values: Mapping[tuple[Varied, int], float]) -> dict[int, float]:
    """Each seed's mean over whatever else was varied.

    Runs of one seed share its data, its first weights and often its trained model, so they are not independent.

    Args:
        values: numbers by what was varied (such as K) and seed.
    """
    seeds = sorted({seed for _, seed in values})
    found = {seed: [value for (_, one), value in values.items() if one == seed] for seed in seeds}
    return {seed: sum(numbers) / len(numbers) for seed, numbers in found.items()}


def over_seeds(values: Mapping[tuple[Varied, int], float]) -> Interval:
    """The mean over seeds of each seed's mean; what is drawn anew for the interval is seeds, and no single run.

    Args:
        values: numbers by what was varied (such as K) and seed.
    """
    return mean_interval(list(seed_means(values).values()))


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """The mean of a - b over pairs, such as two methods at the same seed and K.

    Args:
        a: one number per pair.
        b: the other number of each pair, in the same order.
    """
    if len(a) != len(b):
        raise ValueError(f"`a` and `b` must be pairs; got {len(a)} and {len(b)} values.")
    return mean_interval([one - other for one, other in zip(a, b, strict=True)])


def agreement(
    kept_a: Mapping[str, Sequence[int]] | Iterable[tuple[str, int]],
    kept_b: Mapping[str, Sequence[int]] | Iterable[tuple[str, int]],
    total: int,
) -> float:
    """How far two sets of heads agree, beyond chance: 1 where one holds the other, 0 where they overlap as by lot.

    The overlap of independent sets of a and b heads out of H is a b / H on average; that is taken off both from the
    overlap that is there and from the largest possible one. Where every overlap is certain (a set is empty, or holds
    every head), it is 1. For two sets of one size this is Cohen's kappa.

    Args:
        kept_a: a `Kept`, or `{site: [head, ...]}` as in a record.
        kept_b: the other one.
        total: the number of heads there are, H.
    """
    a, b = _heads(kept_a), _heads(kept_b)
    if max(len(a), len(b)) > total:
        raise ValueError(f"`total` must be the number of all heads; got {total} for sets of {len(a)} and {len(b)}.")
    expected = len(a) * len(b) / total
    largest = min(len(a), len(b))
    return 1.0 if largest == expected else (len(a & b) - expected) / (largest - expected)


def bootstrap(values: Sequence[float], statistic: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """The 95 % percentile interval of a statistic.

    Few values are drawn in every possible way, so there is no chance in the result; many are drawn with a fixed seed.

    Args:
        values: the sample.
        statistic: maps draws, (N, n), to one number each, (N,).
    """
    sample = _sample(values)
    count = len(sample)
    if count**count <= DRAWS:
        index = torch.tensor(list(itertools.product(range(count), repeat=count)))
    else:
        index = torch.randint(count, (DRAWS, count), generator=torch.Generator().manual_seed(0))
    found = statistic(sample[index])
    low = torch.quantile(found, (1 - LEVEL) / 2, interpolation="lower")
    high = torch.quantile(found, (1 + LEVEL) / 2, interpolation="higher")
    return float(low), float(high)


def median(draws: Tensor) -> Tensor:
    """The median of each draw, (N, n) -> (N,): the mean of the middle two where n is even, which torch's is not."""
    return torch.quantile(draws, 0.5, dim=1)


def _sample(values: Sequence[float]) -> Tensor:
    sample = torch.tensor([float(value) for value in values], dtype=torch.float64)
    if not len(sample):
        raise ValueError("There are no values to average; give at least one.")
    if not sample.isfinite().all():
        raise ValueError("Values must be finite; leave failed runs out.")
    return sample


def _heads(kept: Mapping[str, Sequence[int]] | Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    if isinstance(kept, Mapping):
        return {(site, head) for site, heads in kept.items() for head in heads}
    return {(site, head) for site, head in kept}
