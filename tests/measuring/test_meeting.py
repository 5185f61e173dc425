"""Budgets are met on the model that was cut: counts never above, times aimed at anew, and what cannot be is said."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kheads
from kheads import Kept
from kheads.blocks.budget import Budget
from kheads.blocks.costs import Costs
from kheads.blocks.site import total
from kheads.measuring import meeting
from kheads.measuring.measurement import cut_copy, flops, size
from kheads.measuring.meeting import Reached, meet, reaches, settled, tightened
from kheads.measuring.pricing import price
from kheads.measuring.timing import Ratio
from zoo import ZOO
from zoo.cases import build

SITES = kheads.discover(build("bert"), parts="all")
SCORES = torch.rand(total(SITES), generator=torch.Generator().manual_seed(0))
LINE = Costs("ms", torch.full((total(SITES),), 80 / total(SITES), dtype=torch.float64), 100.0, 20.0)
Given = dict[str, Tensor]


@pytest.fixture
def given() -> Given:
    return ZOO["bert"].inputs()


def choosing(costs: Costs, asked: list[Budget] | None = None) -> Callable[[Budget], Kept]:
    def choose(budget: Budget) -> Kept:
        if asked is not None:
            asked.append(budget)
        return kheads.select(SCORES, budget, SITES, costs=costs)

    return choose


def slower(monkeypatch: pytest.MonkeyPatch, by: float, rest: float = LINE.outside) -> None:
    """A device on which the cut model takes `by` times what is expected of its blocks, and something beside them."""

    def compared(model: Any, small: Any, budget: Budget, inputs: Any) -> tuple[Reached, Ratio]:
        kept = Kept.from_dict({site.name: range(site.count) for site in kheads.discover(small, parts="all")})
        ms = rest + by * (LINE.of(kept, SITES) - LINE.outside)
        value = 100 / ms if budget.name == "speedup" else ms
        return Reached(value, 0.995 * value, 1.005 * value), Ratio(100 / ms, 99.5 / ms, 100.5 / ms)

    monkeypatch.setattr(meeting, "compared", compared)


@pytest.mark.parametrize("budget", [Budget(params=0.8), Budget(flops=0.5), Budget(heads=3), Budget(flops=20_000)])
def test_counts_are_met_and_no_more_fits(budget: Budget, given: Given) -> None:
    model = build("bert")
    costs = price(model, budget, SITES, given)
    met = meet(model, choosing(costs), budget, costs, given)
    small = cut_copy(model, met.kept)
    assert (met.parameters, met.flops) == (size(small)["parameters"], flops(small, given))
    limit = budget.limit(costs.whole)
    assert met.tries == 1 and met.speedup is None and met.asked is budget
    assert met.reached.low == met.reached.value == met.reached.high <= limit
    gone = costs.each[met.kept.mask(SITES) == 0]
    assert met.reached.value + float(gone[gone > 0].min()) > limit


def test_costs_of_another_model_are_noticed(given: Given) -> None:
    budget = Budget(params=0.8)
    costs = price(build("bert"), budget, SITES)
    with pytest.raises(
        ValueError, match=r"The chosen blocks leave [\d,]+ params, and the budget allows [\d,]+; give the"
    ):
        meet(build("bert"), lambda _: Kept.everything(SITES), budget, costs, given)


@pytest.mark.parametrize("budget", [Budget(speedup=2, threads=1), Budget(ms=50, threads=1)])
def test_a_time_that_is_missed_is_aimed_at_anew(budget: Budget, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    slower(monkeypatch, 1.2)
    asked, told = list[Budget](), list[str]()
    met = meet(build("bert"), choosing(LINE, asked), budget, LINE, given, told.append)
    assert met.tries == len(asked) > 1 and asked[0] is budget and met.asked is budget
    assert reaches(met.reached, budget) and met.speedup is not None and met.speedup.ratio >= 1.98
    limits = [one.limit(LINE.whole) for one in asked]
    assert limits == sorted(limits, reverse=True) and all(one.threads == 1 for one in asked)
    assert met.kept == kheads.select(SCORES, asked[-1], SITES, costs=LINE)
    assert any("choosing again" in text for text in told)


def test_a_time_that_is_reached_is_left(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    slower(monkeypatch, 1.0)
    met = meet(build("bert"), choosing(LINE), Budget(speedup=3), LINE, given)
    assert met.tries == 1 and met.reached.value >= 2.97 and met.parameters < size(build("bert"))["parameters"]


@pytest.mark.parametrize("budget", [Budget(speedup=2), Budget(ms=50)])
def test_a_time_that_is_far_exceeded_gives_blocks_back(
    budget: Budget, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest model that was seen to reach it is taken."""
    slower(monkeypatch, 0.5)
    asked = list[Budget]()
    met = meet(build("bert"), choosing(LINE, asked), budget, LINE, given)
    limits = [one.limit(LINE.whole) for one in asked]
    assert len(asked) > 1 and limits[1] > limits[0] and reaches(met.reached, budget)
    assert len(met.kept) == max(len(kheads.select(SCORES, one, SITES, costs=LINE)) for one in asked[: met.tries])
    assert not meeting.exceeds(met.reached, budget)


def test_between_too_far_and_not_far_enough_it_goes_on(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times jump where blocks no longer fill what the hardware works on at once; the aim that lies between is found."""

    def compared(model: Any, small: Any, budget: Budget, inputs: Any) -> tuple[Reached, Ratio]:
        kept = Kept.from_dict({site.name: range(site.count) for site in kheads.discover(small, parts="all")})
        expected = LINE.of(kept, SITES)
        ms = 60 if expected > 48 else 49.5 if expected > 44 else 40
        return Reached(ms, 0.995 * ms, 1.005 * ms), Ratio(100 / ms, 99.5 / ms, 100.5 / ms)

    monkeypatch.setattr(meeting, "compared", compared)
    met = meet(build("bert"), choosing(LINE), Budget(ms=50), LINE, given)
    assert (met.reached.value, met.tries) == (49.5, 3)


def test_what_cannot_be_reached_is_said(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes as far as blocks can go, and no further."""
    slower(monkeypatch, 1.0, rest=40.0)
    asked = list[Budget]()
    with pytest.raises(ValueError) as error:
        meet(build("bert"), choosing(LINE, asked), Budget(speedup=4), LINE, given)
    text = str(error.value)
    assert re.match(
        r"`speedup` 4 was not reached in \w+ tr\w+: the fastest was 2\.\d\d times as fast as the whole", text
    )
    assert "Without any of these blocks it is 5.00 times as fast here (20.00 of 100.00 ms)" in text
    assert "20 % of its time is outside of blocks, in embeddings, norms and the rest" in text
    with pytest.raises(
        ValueError, match=r"`speedup` 9 cannot be reached: without any head or neuron this model is 5\.00"
    ):
        meet(build("bert"), choosing(LINE), Budget(speedup=9), LINE, given)


def test_it_gives_up_after_some_tries(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    def stubborn(*_: Any) -> tuple[Reached, Ratio]:
        return Reached(1.9, 1.89, 1.91), Ratio(1.9, 1.89, 1.91)

    monkeypatch.setattr(meeting, "compared", stubborn)
    asked = list[Budget]()
    with pytest.raises(ValueError, match=f"not reached in {meeting.TRIES} tries"):
        meet(build("bert"), choosing(LINE, asked), Budget(speedup=2), LINE, given)
    assert len(asked) <= meeting.TRIES + 1


def test_what_counts_as_reached() -> None:
    fast, short = Budget(speedup=2), Budget(ms=50)
    assert reaches(Reached(1.985, 1.9, 2.01), fast) and not reaches(Reached(1.97, 1.9, 2.1), fast)
    assert not reaches(Reached(1.99, 1.985, 1.995), fast) and reaches(Reached(2.2, 2.1, 2.3), fast)
    assert reaches(Reached(50.4, 49.9, 51), short) and not reaches(Reached(51, 49, 53), short)
    assert settled(Reached(2.0, 1.99, 2.01), fast) and not settled(Reached(2.0, 1.9, 2.1), fast)
    assert settled(Reached(1.5, 1.45, 1.55), fast) and not settled(Reached(3, 2.5, 3.5), fast)
    assert tightened(fast, fast, Reached(1.6, 1.5, 1.7), 1).amount == pytest.approx(2.5 * 1.005)
    assert tightened(short, short, Reached(60, 59, 61), 2).amount == pytest.approx(50 * 50 / 60 / 1.01)


def test_both_models_take_turns_until_it_is_settled(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rounds are enough for a quiet device; threads and modes are as before."""
    rounds = list[int]()

    def interleaved(calls: Any, repeats: int, *_: Any, warmup: int) -> Tensor:
        rounds.append(repeats)
        for call in calls:
            call()
        noise = 1 + torch.arange(repeats, dtype=torch.float64) / (10 * repeats if len(rounds) < 2 else 1e6)
        return torch.stack([0.2 * noise, torch.full_like(noise, 0.1)])

    monkeypatch.setattr(meeting, "interleaved", interleaved)
    model = build("bert").train()
    small = cut_copy(model, Kept.everything(SITES))
    before = torch.get_num_threads()
    reached, ratio = meeting.compared(model, small, Budget(speedup=2.05, threads=1), given)
    assert rounds[:2] == [10, 10] and ratio.low <= reached.value <= ratio.high
    assert model.training and torch.get_num_threads() == before
    assert meeting.compared(model, small, Budget(ms=100), given)[0].value == pytest.approx(100)


def test_a_real_clock_gives_intervals(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "SECONDS", 0.0)
    model = build("bert")
    reached, ratio = meeting.compared(model, cut_copy(model, Kept.everything(SITES)), Budget(ms=1), given)
    assert 0 < reached.low <= reached.value <= reached.high and ratio.low <= ratio.ratio <= ratio.high
