"""Budgets: never above, no further block fits, and the best of all choices on small cases."""

import copy
import pickle
from itertools import product

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from kheads import Budget, Constraints, Costs, Kept, Site, select
from kheads.blocks.budget import read_batch
from kheads.blocks.knapsack import STEPS, Group, best_items, best_steps
from kheads.blocks.site import Sites, spans

# Two attentions and two feed-forwards; a head costs as much as 7 neurons.
SITES = Sites(
    (
        Site("enc.0", "encoder", 3, 8, parameters=70),
        Site("enc.0.ffn", "ffn", 4, 1, "neuron", parameters=10),
        Site("enc.1", "encoder", 2, 8, parameters=70),
        Site("enc.1.ffn", "ffn", 4, 1, "neuron", parameters=10),
    ),
    parameters=1000,
    outside=570,
)
N = 13
EACH = torch.tensor([70.0] * 3 + [10.0] * 4 + [70.0] * 2 + [10.0] * 4, dtype=torch.float64)
numbers = st.lists(st.integers(-9, 9), min_size=N, max_size=N)


def every_mask() -> Tensor:
    return torch.tensor(list(product((0.0, 1.0), repeat=N)), dtype=torch.float64)


ALL = every_mask()


def worth(scores: Tensor, masks: Tensor) -> Tensor:
    """What `select` makes as large as it can: score times cost, scores from the lowest one up."""
    return masks @ ((scores - scores.min()) * EACH)


@given(numbers, st.integers(570, 999))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_choice_is_the_best_of_all_that_fit(values: list[int], params: int) -> None:
    scores = torch.tensor(values, dtype=torch.float64)
    mask = select(scores, Budget(params=params), SITES).mask(SITES)
    room = params - 570
    best = worth(scores, ALL[room >= ALL @ EACH]).max()
    assert mask @ EACH <= room
    assert worth(scores, mask) == pytest.approx(float(best))
    assert not ((room - mask @ EACH >= EACH) & (mask == 0)).any(), "a further block would fit"


@given(numbers, st.integers(720, 999), st.integers(1, 4), st.integers(0, 1))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_constraints_hold_within_a_budget(values: list[int], params: int, multiple: int, least: int) -> None:
    constraints = Constraints(min_per_site=least, protected={"enc.1": [1]}, multiple_of=multiple)
    scores, room = torch.tensor(values, dtype=torch.float64), params - 570
    if 70 * (1 + least) + 20 * (multiple * least if multiple * least <= 4 else 4) > room:
        return
    mask = select(scores, Budget(params=params), SITES, constraints).mask(SITES)
    counts = [int(mask[place].sum()) for _, place in spans(SITES)]
    assert mask @ EACH <= room and mask[8] == 1 and min(counts) >= least
    assert all(counts[place] % multiple == 0 or counts[place] == 4 for place in (1, 3))


def test_a_kind_with_a_quota_keeps_exactly_that() -> None:
    scores = torch.randn(N, generator=torch.Generator().manual_seed(0))
    kept = select(scores, Budget(params=800), SITES, Constraints(quotas={"encoder": 2}))
    mask = kept.mask(SITES)
    assert mask[EACH == 70].sum() == 2 and mask @ EACH <= 230 and (mask[EACH == 10] == 1).all()


# Sites of one kind whose blocks cost differently, as those of Swin do.
UNEVEN = Sites(
    (
        Site("enc.0", "encoder", 3, 8, parameters=40),
        Site("enc.0.ffn", "ffn", 4, 1, "neuron", parameters=20),
        Site("enc.1", "encoder", 2, 8, parameters=90),
        Site("enc.1.ffn", "ffn", 4, 1, "neuron", parameters=10),
    ),
    parameters=920,
    outside=500,
)
UNEVEN_EACH = torch.tensor([40.0] * 3 + [20.0] * 4 + [90.0] * 2 + [10.0] * 4, dtype=torch.float64)


@given(numbers, st.integers(500, 919), st.integers(0, 5), st.integers(0, 8), st.sampled_from([1, 2, 4]))
@settings(deadline=None, derandomize=True, max_examples=80)
def test_quotas_and_multiples_are_the_best_of_all_that_fit(
    values: list[int], params: int, heads: int, neurons: int, multiple: int
) -> None:
    scores, room = torch.tensor(values, dtype=torch.float64), params - 500
    asked = Constraints(quotas={"encoder": heads, "ffn": neurons}, multiple_of=multiple)
    places = {site.name: place for site, place in spans(UNEVEN)}
    counts = {name: ALL[:, place].sum(1) for name, place in places.items()}
    allowed = (room >= UNEVEN_EACH @ ALL.T) & (counts["enc.0"] + counts["enc.1"] == heads)
    allowed &= counts["enc.0.ffn"] + counts["enc.1.ffn"] == neurons
    allowed &= (counts["enc.0.ffn"] % multiple == 0) & (counts["enc.1.ffn"] % multiple == 0)
    if not allowed.any():
        with pytest.raises(ValueError, match=r"cannot be reached|contradict each other"):
            select(scores, Budget(params=params), UNEVEN, asked)
        return
    mask = select(scores, Budget(params=params), UNEVEN, asked).mask(UNEVEN)
    value = (scores - scores.min()) * UNEVEN_EACH
    assert bool(allowed[(mask == ALL).all(1)])
    assert mask @ value == pytest.approx(float((ALL[allowed] @ value).max()))


def test_multiples_that_fill_a_budget_to_its_edge_are_found() -> None:
    ffn = Site("ffn", "ffn", 4, 1, "neuron", parameters=5)
    sites = Sites((ffn, Site("a", "encoder", 4, 8, parameters=12), Site("b", "encoder", 2, 8, parameters=5)), 128, 50)
    scores = [1.0, 1.0, 0.0, 0.0, 0.9, 0.9, 0.0, 0.0, 0.5, 0.5]
    kept = select(scores, Budget(params=84), sites, Constraints(multiple_of=2)).to_dict()
    assert kept == {"ffn": [0, 1], "a": [0, 1], "b": []}


def test_too_many_ways_to_meet_a_quota_still_meet_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kheads.blocks.knapsack.MOST_COMBINATIONS", 1)
    scores = torch.tensor([0.0, 0, 0, 0, 0, 0, 0, 9, 9, 1, 1, 1, 1])
    mask = select(scores, Budget(params=700), UNEVEN, Constraints(quotas={"encoder": 2})).mask(UNEVEN)
    assert mask[UNEVEN_EACH >= 40].sum() == 2 and mask @ UNEVEN_EACH <= 200
    mask = select(scores, Budget(params=580), UNEVEN, Constraints(quotas={"encoder": 2})).mask(UNEVEN)
    assert mask[:3].sum() == 2 and mask @ UNEVEN_EACH == 80


def test_a_quota_that_is_no_multiple_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="3 further neurons of ffn are no multiple of 2; ask for 1 fewer, or 1 more"):
        select(torch.rand(N), Budget(params=900), SITES, Constraints(quotas={"ffn": 3}, multiple_of=2))


def test_a_uniform_number_of_neurons_is_a_multiple_for_layers_of_other_sizes_too() -> None:
    sites = Sites(
        (Site("a", "ffn", 6, 1, "neuron", parameters=1), Site("b", "ffn", 9, 1, "neuron", parameters=1)), 25, 10
    )
    kept = select(torch.rand(15), Budget(params=22), sites, Constraints(uniform=True, multiple_of=4)).to_dict()
    assert [len(blocks) for blocks in kept.values()] == [4, 4]


@pytest.mark.parametrize("params", [700, 800, 900])
def test_uniform_keeps_as_many_heads_and_as_many_neurons_everywhere(params: int) -> None:
    scores = torch.randn(N, generator=torch.Generator().manual_seed(params))
    mask = select(scores, Budget(params=params), SITES, Constraints(uniform=True)).mask(SITES)
    heads, neurons = (
        {int(mask[place].sum()) for site, place in spans(SITES) if site.kind == kind} for kind in ("encoder", "ffn")
    )
    assert len(heads) == len(neurons) == 1 and mask @ EACH <= params - 570
    more = [(heads.copy().pop() + a, neurons.copy().pop() + b) for a, b in ((1, 0), (0, 1))]
    assert all(140 * h + 20 * n > params - 570 or h > 2 or n > 4 for h, n in more)


@pytest.mark.parametrize("share", [0.63, 0.74, 0.99])
def test_uniform_takes_what_fits_where_scores_do_not_tell_blocks_apart(share: float) -> None:
    """Blocks of the lowest score add nothing to the total; one of them fewer is no better."""
    limit = share * 1000 - 570
    for scores in (torch.ones(N), torch.tensor([1.0] * 7 + [0.0] * 6)):
        kept = select(scores, Budget(params=share), SITES, Constraints(uniform=True)).to_dict()
        heads, neurons = (len(kept[name]) for name in ("enc.0", "enc.0.ffn"))
        spent = 140 * heads + 20 * neurons
        assert spent <= limit
        assert heads == 2 or spent + 140 > limit
        assert neurons == 4 or spent + 20 > limit


def test_a_site_that_cannot_be_empty_keeps_its_best_block() -> None:
    sites = Sites(
        (Site("a", "decoder", 3, 8, parameters=5, never_empty=True), Site("b", "decoder", 3, 8, parameters=5)), 40, 10
    )
    kept = select([0.0, 0.2, 0.1, 5.0, 6.0, 7.0], Budget(params=20), sites).to_dict()
    assert kept == {"a": [1], "b": [2]}


def test_one_amount_is_given_and_there_are_blocks_to_choose_from() -> None:
    with pytest.raises(TypeError, match="either `budget` or `k`"):
        select(torch.zeros(N), Budget(params=0.9), SITES, k=3)
    with pytest.raises(ValueError, match="There are no heads left to choose from"):
        select(torch.zeros(4), Budget(heads=1), SITES[1:2])


@pytest.mark.parametrize("constraints", [None, Constraints(quotas={"encoder": 0}), Constraints(multiple_of=2)])
def test_a_model_without_blocks_is_whole_or_cannot_be_smaller(constraints: Constraints | None) -> None:
    sites = Sites((Site("a", "encoder", 0, 8),), parameters=100, outside=100)
    assert len(select([], Budget(params=100), sites, constraints)) == 0
    with pytest.raises(ValueError, match="`params` 99 cannot be reached"):
        select([], Budget(params=99), sites, constraints)
    timed = Costs("ms", torch.zeros(0, dtype=torch.float64), 9.0, 9.0, {"a": torch.zeros(1, dtype=torch.float64)})
    with pytest.raises(ValueError, match=r"`speedup` 2\.0 cannot be reached"):
        select([], Budget(speedup=2.0), sites, constraints, costs=timed)


def test_a_number_of_heads_leaves_neurons_alone() -> None:
    scores = torch.arange(N, dtype=torch.float64)
    for budget in (Budget(heads=2), Budget(heads=0.4)):
        kept = select(scores, budget, SITES).to_dict()
        assert kept == {"enc.0": [], "enc.0.ffn": [0, 1, 2, 3], "enc.1": [0, 1], "enc.1.ffn": [0, 1, 2, 3]}
    only = SITES[:1] + SITES[2:3]
    assert (
        select(scores[:5], Budget(heads=2), only) == select(scores[:5], 2, only) == select(scores[:5], k=2, sites=only)
    )


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from([1, 3, 4])), min_size=1, max_size=9), st.integers(0, 25))
@settings(deadline=None, derandomize=True)
def test_items_are_the_best_that_fit(items: list[tuple[int, int]], limit: int) -> None:
    values, costs = (torch.tensor(column, dtype=torch.float64) for column in zip(*items, strict=True))
    taken = best_items(values, costs, limit)
    masks = torch.tensor(list(product((False, True), repeat=len(items))))
    fitting = masks[(masks.double() @ costs) <= limit]
    assert costs[taken].sum() <= limit
    assert float(values[taken].sum()) == float((fitting.double() @ values).max())


@given(st.integers(0, 30), st.floats(0.05, 1.0))
@settings(deadline=None, derandomize=True)
def test_steps_along_curves_are_the_best_but_for_a_part_in_two_thousand(seed: int, share: float) -> None:
    """As good as the best choice of a limit that is smaller by the rounding, and never above the limit itself."""
    generator = torch.Generator().manual_seed(seed)

    def rising() -> Tensor:
        steps = torch.rand(6, generator=generator, dtype=torch.float64)
        return torch.cat([torch.zeros(1, dtype=torch.float64), (steps * (steps > 0.3)).cumsum(0)])

    groups = [Group(rising() + torch.arange(7) * 0.01, rising()) for _ in range(3)]
    limit = share * sum(float(group.cost[-1]) for group in groups)
    taken = best_steps(groups, limit)
    spent = sum(float(group.cost[number]) for group, number in zip(groups, taken, strict=True))
    gained = sum(float(group.worth[number]) for group, number in zip(groups, taken, strict=True))
    best = max(
        sum(float(group.worth[number]) for group, number in zip(groups, pick, strict=True))
        for pick in product(range(7), repeat=3)
        if sum(float(group.cost[number]) for group, number in zip(groups, pick, strict=True)) <= limit * (1 - 1 / STEPS)
    )
    assert spent <= limit * (1 + 1e-6) and gained >= best - 1e-9
    assert all(
        number == 6 or spent + float(group.cost[number + 1] - group.cost[number]) > limit
        for group, number in zip(groups, taken, strict=True)
    )


def test_time_that_comes_in_steps_is_filled_to_their_edge() -> None:
    """Neurons that cost nothing more are kept, and a head is left out rather than passing the limit."""
    stairs = torch.tensor([0.0, 2.0, 2.0, 5.0, 5.0], dtype=torch.float64)
    lines = {"enc.0": torch.arange(4) * 4.0, "enc.1": torch.arange(3) * 4.0}
    curves = {**{name: line.double() for name, line in lines.items()}, "enc.0.ffn": stairs, "enc.1.ffn": stairs}
    each = torch.tensor([4.0] * 3 + [1.25] * 4 + [4.0] * 2 + [1.25] * 4, dtype=torch.float64)
    costs = Costs("ms", each, whole=40.0, outside=10.0, curves=curves)
    kept = select(torch.ones(N) + torch.arange(N) * 1e-3, Budget(ms=16.0), SITES, costs=costs)
    counts = [len(blocks) for blocks in kept.to_dict().values()]
    assert costs.of(kept, SITES) <= 16.0 and counts[1] in (0, 2, 4) and counts[3] in (0, 2, 4)


def test_what_cannot_be_reached_is_refused_with_what_can() -> None:
    heads = Sites((SITES[0], SITES[2]), 1000, 650)
    costs = Costs("ms", torch.ones(5, dtype=torch.float64), 20.0, 14.1)
    nothing = "cannot be reached with heads alone: without any attention this model"
    with pytest.raises(
        ValueError, match=f'`params` 0.5 {nothing} still has 650 parameters, 65.0 % .*; add `parts="all"`'
    ):
        select([0.0] * 5, Budget(params=0.5), heads)
    with pytest.raises(ValueError, match=f"`speedup` 3.0 {nothing} is 1.42 times as fast here"):
        select([0.0] * 5, Budget(speedup=3.0), heads, costs=costs)
    with pytest.raises(ValueError, match="`params` 100 cannot be reached: without any head or neuron"):
        select([0.0] * N, Budget(params=100), SITES)
    with pytest.raises(ValueError, match="has to be found out on the model; give `costs=kheads"):
        select([0.0] * N, Budget(flops=0.5), SITES)
    with pytest.raises(TypeError, match="needs the sites as `kheads"):
        select([0.0] * N, Budget(params=0.5), tuple(SITES))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "must name one amount of heads, params, flops, speedup, ms; got none"),
        ({"params": 0.5, "ms": 3.0}, "got `params` and `ms`"),
        ({"speedup": 1.0}, "`speedup` must be a number above 1"),
        ({"params": 1.5}, "`params` must be a whole number from 1 up or a number above 0 to below 1"),
        ({"flops": 0.0}, "`flops` must be"),
        ({"params": 0.5, "at": (8, 128)}, "`at` is for"),
        ({"flops": 0.5, "at": (8,)}, "`at` must be two numbers"),
        ({"flops": 0.5, "threads": 2}, "`threads` is for"),
    ],
)
def test_budgets_that_say_nothing_clear_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budget(**fields)  # type: ignore[arg-type]  # wrong on purpose


def test_limits_and_words() -> None:
    assert Budget(params=0.7).limit(1000) == 700 and Budget(params=60).limit(1000) == 60
    assert Budget(speedup=2.0).limit(30.0) == 15.0 and Budget(ms=12.0).limit(30.0) == 12.0
    assert Budget(heads=0.5).limit(7) == 3 and Budget(heads=0.01).limit(7) == 1
    assert str(Budget(speedup=2.0)) == "2 times as fast" and str(Budget(params=0.7)) == "70 % of the parameters"
    assert Budget(flops=0.5).batch == (8, 128) and Budget(flops=0.5, at=[1, 32]).batch == (1, 32)
    assert read_batch("1x32") == (1, 32)
    with pytest.raises(ValueError, match="`at` must be BATCHxTOKENS, such as 8x128; got '8'"):
        read_batch("8")


def test_sites_stay_sites_when_they_are_copied() -> None:
    for other in (copy.deepcopy(SITES), pickle.loads(pickle.dumps(SITES))):
        assert other == SITES and (other.parameters, other.outside) == (1000, 570)
    assert Kept.everything(SITES).to_dict()["enc.1"] == [0, 1]
