"""What several runs say together."""

import math

import pytest
import torch

from kheads import Kept
from kheads.measuring.statistics import (
    Interval,
    agreement,
    bootstrap,
    mean_interval,
    median,
    over_seeds,
    paired_difference,
    seed_means,
)


def test_two_values_give_their_range_and_one_gives_no_interval() -> None:
    assert mean_interval([1.0, 3.0]) == Interval(2.0, 1.0, 3.0, math.sqrt(2), 2)
    single = mean_interval([0.5])
    assert (single.mean, single.count) == (0.5, 1)
    assert all(math.isnan(value) for value in (single.low, single.high, single.std))


def test_two_values_are_a_range_and_more_are_an_interval() -> None:
    assert mean_interval([1.0, 3.0]).is_range
    assert not mean_interval([1.0]).is_range and not mean_interval([1.0, 2.0, 3.0]).is_range


def test_seeds_are_drawn_and_not_their_runs() -> None:
    """Two seeds with six K each are two values, however little the K of one seed differ."""
    values = {(k, seed): seed + 0.01 * k for k in range(6) for seed in (0, 1)}
    assert seed_means(values) == pytest.approx({0: 0.025, 1: 1.025})
    found = over_seeds(values)
    assert found.count == 2 and (found.low, found.high) == pytest.approx((0.025, 1.025))
    pairs = mean_interval(list(values.values()))
    assert pairs.count == 12 and pairs.high - pairs.low < found.high - found.low
    assert found.mean == pytest.approx(pairs.mean)


def test_a_seed_with_more_runs_does_not_weigh_more() -> None:
    assert over_seeds({("a", 0): 1.0, ("b", 0): 1.0, ("a", 1): 4.0}).mean == 2.5


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    """Forty values of an exponential distribution, 300 times: about 95 % of the intervals hold the true mean."""
    generator = torch.Generator().manual_seed(0)
    samples = torch.empty(300, 40, dtype=torch.float64).exponential_(1.0, generator=generator)
    intervals = [mean_interval(sample.tolist()) for sample in samples]
    assert 0.89 <= sum(found.low <= 1.0 <= found.high for found in intervals) / len(intervals) <= 0.98


def test_pairing_takes_out_what_both_share() -> None:
    """Seeds differ far more than methods do; the paired interval sees the difference all the same."""
    seeds = [0.1, 0.9, 0.4, 0.7, 0.2, 0.6]
    better = [value + 0.01 * (1 + index % 2) for index, value in enumerate(seeds)]
    paired = paired_difference(better, seeds)
    assert paired.mean == pytest.approx(0.015) and 0 < paired.low <= paired.mean <= paired.high
    assert mean_interval(better).low < mean_interval(seeds).high
    with pytest.raises(ValueError, match="must be pairs; got 1 and 2"):
        paired_difference([1.0], [1.0, 2.0])


def test_the_bootstrap_of_a_median_stays_inside_the_sample() -> None:
    sample = [1.0, 1.1, 1.2, 9.0, 1.05, 1.15, 1.12, 1.08]
    low, high = bootstrap(sample, median)
    assert 1.0 <= low <= 1.11 <= high < 9.0
    assert bootstrap(sample, median) == (low, high)
    assert median(torch.tensor([[1.0, 2.0, 3.0, 10.0]])).item() == 2.5


def test_agreement_is_one_for_equal_sets_and_zero_by_lot() -> None:
    kept = {"a": [0, 1], "b": [3]}
    assert agreement(kept, Kept.from_dict(kept), 24) == 1.0
    assert agreement(kept, {"a": [0, 1, 2, 3], "b": [3]}, 24) == 1.0
    assert agreement(kept, {"a": [2], "b": [1, 2]}, 24) < 0
    generator = torch.Generator().manual_seed(0)
    draws = [[("s", int(head)) for head in torch.randperm(72, generator=generator)[:12]] for _ in range(400)]
    mean = sum(agreement(one, other, 72) for one, other in zip(draws[::2], draws[1::2], strict=True)) / 200
    assert abs(mean) < 0.03
    assert agreement(kept, {"a": [], "b": []}, 24) == 1.0
    with pytest.raises(ValueError, match="`total` must be the number of all heads; got 2"):
        agreement(kept, kept, 2)


def test_no_values_and_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="no values to average"):
        mean_interval([])
    with pytest.raises(ValueError, match="must be finite"):
        mean_interval([1.0, math.nan])
