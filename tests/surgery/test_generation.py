"""Generation with the cache equals generation without it, whichever sites are emptied."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from families import inputs
from kheads import Kept, discover, remove

Fresh = Callable[[str], Any]


def emptied(model: Any, names: set[str]) -> Any:
    heads = {site.name: [] if site.name in names else list(range(site.count)) for site in discover(model)}
    return remove(copy.deepcopy(model), Kept.from_dict(heads))


def prompt(family: str) -> dict[str, torch.Tensor]:
    return {name: value for name, value in inputs(family).items() if not name.startswith("decoder")}


@torch.no_grad()
@pytest.mark.parametrize("beams", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_cached_equals_uncached_with_sites_emptied(generating_family: str, beams: int, fresh: Fresh) -> None:
    """Each decoder and cross site alone, and all together; the batch is padded on the left."""
    model, given = fresh(generating_family), prompt(generating_family)
    names = [site.name for site in discover(model) if site.kind != "encoder"]
    for chosen in [*({name} for name in names), set(names)]:
        pruned = emptied(model, chosen)
        tokens = [
            pruned.generate(**given, max_new_tokens=5, num_beams=beams, do_sample=False, use_cache=cache)
            for cache in (True, False)
        ]
        assert torch.equal(*tokens), chosen


@torch.no_grad()
def test_a_manual_cached_step_equals_the_whole_forward(generating_family: str, fresh: Fresh) -> None:
    model, given = fresh(generating_family), inputs(generating_family)
    names = [site.name for site in discover(model) if site.kind != "encoder"]
    key = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
    for chosen in [*({name} for name in names), set(names)]:
        pruned = emptied(model, chosen)
        whole = pruned(**given).logits[:, -1]
        first = {**given, key: given[key][:, :-2]}
        if key == "input_ids":
            first["attention_mask"] = given["attention_mask"][:, :-2]
        out = pruned(**first, use_cache=True)
        rest = {**given, key: given[key][:, -2:], "past_key_values": out.past_key_values}
        if key == "input_ids":  # a user who steps by hand gives the positions of a padded batch as generate() does
            positions = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
            whole = pruned(**given, position_ids=positions).logits[:, -1]
            out = pruned(**first, position_ids=positions[:, :-2], use_cache=True)
            rest |= {"past_key_values": out.past_key_values, "position_ids": positions[:, -2:]}
        assert torch.allclose(pruned(**rest, use_cache=True).logits[:, -1], whole, atol=2e-5), chosen


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt-neox", "qwen3"])
def test_a_static_cache_works_too(name: str, fresh: Fresh) -> None:
    model, given = fresh(name), prompt(name)
    first = discover(model)[0].name
    pruned = emptied(model, {first})
    dynamic = pruned.generate(**given, max_new_tokens=4, do_sample=False)
    static = pruned.generate(
        **given, max_new_tokens=4, do_sample=False, cache_implementation="static", disable_compile=True
    )
    assert torch.equal(dynamic, static)
