"""Sites, sets of heads and the one selection."""

import json

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from kheads import Constraints, Kept, Site, select

SITES = (
    Site("enc.0", "encoder", 4, 8),
    Site("dec.0", "decoder", 3, 8),
    Site("dec.0.cross", "cross", 5, 8),
)
H = 12


def scores(seed: int = 0) -> torch.Tensor:
    return torch.randn(H, generator=torch.Generator().manual_seed(seed))


def test_head_set_round_trips_through_dict_and_json() -> None:
    kept = Kept.from_dict({"enc.0": [3, 1], "dec.0": []})
    assert kept.to_dict() == {"enc.0": [1, 3], "dec.0": []}
    assert Kept.from_dict(kept.to_dict()) == kept == Kept.from_json(kept.to_json())
    assert json.loads(kept.to_json()) == kept.to_dict()
    assert len(kept) == 2 and list(kept) == [("enc.0", 1), ("enc.0", 3)]
    assert hash(kept) == hash(Kept.from_dict({"enc.0": [1, 3], "dec.0": []}))


def test_mask_follows_the_global_order() -> None:
    kept = Kept.from_dict({"dec.0.cross": [4], "enc.0": [0]})
    mask = kept.mask(SITES)
    assert mask.nonzero().flatten().tolist() == [0, 11]
    assert Kept.from_mask(mask, SITES).to_dict() == {"enc.0": [0], "dec.0": [], "dec.0.cross": [4]}


@given(st.lists(st.integers(-2, 2), min_size=H, max_size=H), st.integers(1, H))
@settings(deadline=None, derandomize=True)
def test_select_is_the_stable_top_k(values: list[int], k: int) -> None:
    """Exactly k heads, none left out that scores higher, ties to the lower index."""
    kept = select(values, k, SITES)
    best = sorted(range(H), key=lambda head: (-values[head], head))[:k]
    assert kept.mask(SITES).nonzero().flatten().tolist() == sorted(best)


@given(st.integers(0, 50), st.integers(3, H), st.integers(0, 1), st.integers(0, 3))
@settings(deadline=None, derandomize=True)
def test_constraints_hold_exactly_and_cost_as_little_as_possible(seed: int, k: int, least: int, cross: int) -> None:
    """The greedy choice equals the best of all subsets that honour the constraints."""
    constraints = Constraints(min_per_site=least, quotas={"cross": cross}, protected={"dec.0": [2]})
    values = scores(seed)
    best = _best_by_enumeration(values, k, constraints)
    if best is None:
        with pytest.raises(ValueError):
            select(values, k, SITES, constraints)
        return
    kept = select(values, k, SITES, constraints)
    assert len(kept) == k
    assert 2 in kept.to_dict()["dec.0"]
    assert len(kept.to_dict()["dec.0.cross"]) == cross
    assert all(len(heads) >= least for heads in kept.to_dict().values())
    assert float((values * kept.mask(SITES)).sum()) == pytest.approx(best)


def _best_by_enumeration(values: torch.Tensor, k: int, constraints: Constraints) -> float | None:
    best = None
    for code in range(2**H):
        if code.bit_count() != k:
            continue
        mask = torch.tensor([float(code >> head & 1) for head in range(H)])
        counts = [int(part.sum()) for part in mask.split([4, 3, 5])]
        if min(counts) >= constraints.min_per_site and counts[2] == constraints.quotas["cross"] and mask[6]:
            total = float((values * mask).sum())
            best = total if best is None else max(best, total)
    return best


# Sites of any size, some of them empty, with scores that often tie.
models = st.lists(
    st.tuples(st.sampled_from(["encoder", "decoder", "cross"]), st.integers(0, 5)), min_size=1, max_size=5
)


def _sites(model: list[tuple[str, int]]) -> tuple[Site, ...]:
    return tuple(Site(f"site.{number}", kind, count, 2) for number, (kind, count) in enumerate(model))


@given(models, st.data())
@settings(deadline=None, derandomize=True)
def test_a_mask_is_what_counting_block_by_block_gives(model: list[tuple[str, int]], data: st.DataObject) -> None:
    sites = _sites(model)
    everywhere = [(site.name, index) for site in sites for index in range(site.count)]
    stays = data.draw(st.lists(st.booleans(), min_size=len(everywhere), max_size=len(everywhere)))
    kept = Kept.from_mask(torch.tensor(stays, dtype=torch.float64), sites)
    assert list(kept) == [block for block, stay in zip(everywhere, stays, strict=True) if stay]
    assert list(kept.to_dict()) == [site.name for site in sites]
    assert kept.mask(sites).tolist() == [float(stay) for stay in stays]
    assert kept.mask(sites).dtype == torch.float64


@given(models, st.data())
@settings(deadline=None, derandomize=True, max_examples=200)
def test_select_takes_what_a_greedy_loop_takes(model: list[tuple[str, int]], data: st.DataObject) -> None:
    sites = _sites(model)
    size = sum(site.count for site in sites)
    if not size:
        return
    values = data.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
    k = data.draw(st.integers(1, size))
    safe = data.draw(st.sets(st.sampled_from([(s.name, index) for s in sites for index in range(s.count)]), max_size=2))
    protected = {site.name: sorted(index for name, index in safe if name == site.name) for site in sites}
    kinds = data.draw(st.sets(st.sampled_from(sorted({site.kind for site in sites})), max_size=2))
    quotas = {kind: data.draw(st.integers(0, 4)) for kind in sorted(kinds)}
    constraints = Constraints(data.draw(st.integers(0, 1)), data.draw(st.booleans()), protected, quotas)
    expected = _greedily(values, k, sites, constraints)
    if expected is None:
        with pytest.raises(ValueError):
            select(values, k, sites, constraints)
    else:
        assert select(values, k, sites, constraints).mask(sites).nonzero().flatten().tolist() == expected


def _greedily(values: list[int], k: int, sites: tuple[Site, ...], asked: Constraints) -> list[int] | None:
    """What must be kept, then the best block of each demand, one after another; None where that cannot be met."""
    blocks = [(site, index) for site in sites for index in range(site.count)]
    best = sorted(range(len(blocks)), key=lambda place: -values[place])  # stable: the lower index wins a tie
    taken = {place for place, (site, index) in enumerate(blocks) if index in asked.protected[site.name]}
    if asked.uniform and (k % len(sites) or k // len(sites) < asked.min_per_site):
        return None
    least = k // len(sites) if asked.uniform else asked.min_per_site
    demands = [({site.name}, least, asked.uniform) for site in sites]
    demands += [({s.name for s in sites if s.kind == kind}, count, True) for kind, count in asked.quotas.items()]
    demands += [({s.name for s in sites if s.kind not in asked.quotas}, k - sum(asked.quotas.values()), True)]
    for names, count, exact in demands:
        for place in best:
            if sum(blocks[other][0].name in names for other in taken) < count and blocks[place][0].name in names:
                taken.add(place)
        have = sum(blocks[other][0].name in names for other in taken)
        if have < count or (exact and have > count):
            return None
    return sorted(taken)


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`mask` must have shape \(12,\), one number per block; got \(11,\)"):
        Kept.from_mask(torch.ones(11), SITES)


def test_uniform_keeps_the_same_number_everywhere() -> None:
    kept = select(scores(), 6, SITES, Constraints(uniform=True))
    assert [len(heads) for heads in kept.to_dict().values()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("k", "constraints", "message"),
    [
        (5, Constraints(uniform=True), "multiple of the number of sites (3); got k = 5. The nearest are 3 and 6."),
        (12, Constraints(uniform=True), "Site 'dec.0' must keep 4 heads by `uniform`, but has only 3."),
        (3, Constraints(uniform=True, min_per_site=2), "keeps 1 heads in each site, below `min_per_site` = 2."),
        (2, Constraints(min_per_site=1), "The model must keep exactly 2 heads, but 3 are already required there."),
        (12, Constraints(min_per_site=5), "Site 'enc.0' must keep 5 heads by `min_per_site`, but has only 4."),
        (4, Constraints(quotas={"cross": 6}), "`quotas` ask for 6 heads, more than k = 4."),
        (9, Constraints(quotas={"cross": 6}), "Kind 'cross' must keep 6 heads by `quotas`, but has only 5."),
        (
            9,
            Constraints(quotas={"vision": 1}),
            "names the kind 'vision'; this model has 'cross', 'decoder', 'encoder'.",
        ),
        (9, Constraints(quotas={"cross": 0}), "The rest of the model must keep 9 heads, but has only 7."),
        (3, Constraints(protected={"dec.0": [3]}), "Site 'dec.0' has 3 heads (0 to 2); got head 3."),
        (
            3,
            Constraints(protected={"dec.0.cross": [0, 1]}, quotas={"cross": 1}),
            "Kind 'cross' must keep exactly 1 heads by `quotas`, but 2 are already required there.",
        ),
    ],
)
def test_what_cannot_be_honoured_says_why(k: int, constraints: Constraints, message: str) -> None:
    with pytest.raises(ValueError) as error:
        select(scores(), k, SITES, constraints)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("values", "k", "kind", "message"),
    [
        (torch.zeros(H), 0, ValueError, "`k` must be between 1 and 12 (the model's heads); got 0."),
        (torch.zeros(H), 200, ValueError, "`k` must be between 1 and 12 (the model's heads); got 200."),
        (torch.zeros(H), 2.0, TypeError, "`k` must be an integer between 1 and 12 (the model's heads); got 2.0."),
        (
            torch.zeros(H),
            0.5,
            TypeError,
            "`k` must be an integer between 1 and 12 (the model's heads); a share is `Budget(heads=0.5)`; got 0.5.",
        ),
        (
            torch.zeros(H),
            None,
            TypeError,
            "`select` takes either `budget` or `k`, which say how much may stay; give one of them.",
        ),
        (torch.zeros(H), True, TypeError, "`k` must be an integer between 1 and 12 (the model's heads); got True."),
        (torch.zeros(5), 2, ValueError, "`scores` must have shape (12,), one number per head; got (5,)."),
        (
            torch.full((H,), float("nan")),
            2,
            ValueError,
            "`scores` must be finite; got nan at index 0 (head 0 of site 'enc.0').",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    values: torch.Tensor, k: int, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as error:
        select(values, k, SITES)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({"enc.0": [-1]}, "Blocks of site 'enc.0' must be integers from 0 up; got -1."),
        ({"enc.0": [1.5]}, "Blocks of site 'enc.0' must be integers from 0 up; got 1.5."),
        ({"enc.0": [1, 1]}, "Blocks of site 'enc.0' are named twice: [1, 1]."),
    ],
)
def test_malformed_head_sets_are_refused(heads: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Kept.from_dict(heads)
    assert str(error.value) == message


def test_unknown_sites_are_refused_with_the_sites_there_are() -> None:
    with pytest.raises(ValueError, match=r"has no site 'enc.7'; its sites are 'enc.0', 'dec.0'"):
        Kept.from_dict({"enc.7": [0]}).mask(SITES)
