"""Feed-forward layers of every supported type: found in forward order, and a neuron gated is a neuron removed."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from kheads import Kept, Site, UnsupportedModelError, discover, gated, remove
from kheads.anatomy import FEEDS, MIXTURES, REFUSED_FEEDS, locate_feeds
from zoo import ZOO, outputs
from zoo.cases import build
from zoo.encoder_decoders import t5s
from zoo.text_encoders import sized
from zoo.tiny import Tiny, images, pair
from zoo.vision import patches

# Classes of feed-forwards that the configs of the zoo do not choose.
OTHERS: dict[str, Tiny] = {
    "t5": Tiny("T5ForConditionalGeneration", t5s(feed_forward_proj="gated-gelu"), pair),
    "mt5": Tiny("MT5ForConditionalGeneration", t5s(feed_forward_proj="relu"), pair),
    "umt5": Tiny("UMT5ForConditionalGeneration", t5s(feed_forward_proj="relu"), pair),
    "longt5": Tiny("LongT5ForConditionalGeneration", t5s(feed_forward_proj="gated-gelu", local_radius=3), pair),
    "pop2piano": Tiny("Pop2PianoForConditionalGeneration", t5s(feed_forward_proj="relu"), ZOO["pop2piano"].inputs),
    "dinov2": Tiny("Dinov2Model", patches(use_swiglu_ffn=True), images),
    "dinov2_with_registers": Tiny("Dinov2WithRegistersModel", patches(use_swiglu_ffn=True), images),
    "dinov3_vit": Tiny("DINOv3ViTModel", patches(use_gated_mlp=True), images),
    "bert": Tiny("BertModel", sized(chunk_size_feed_forward=2)),
    "qwen3_moe": Tiny("Qwen3MoeForCausalLM", {**ZOO["qwen3_moe"].fields, "mlp_only_layers": [0, 1]}),
}
ALL = {**ZOO, **{f"{name}:feed": tiny for name, tiny in OTHERS.items()}}
DENSE = [name for name in ALL if name.partition(":")[0] not in MIXTURES or name.endswith(":feed")]
every = pytest.mark.parametrize("name", DENSE)


def made(name: str) -> Any:
    return build(name) if name in ZOO else ALL[name].build()


def half(sites: tuple[Site, ...]) -> Kept:
    """About half of the blocks, other ones in each site; none of the last."""
    mask = (torch.rand(sum(site.count for site in sites), generator=torch.Generator().manual_seed(0)) < 0.5).double()
    return Kept.from_dict({**Kept.from_mask(mask, sites).to_dict(), sites[-1].name: []})


def nothing(sites: tuple[Site, ...]) -> Kept:
    return Kept.from_dict({site.name: [] for site in sites})


@torch.no_grad()
@every
@pytest.mark.parametrize("parts", ["ffn", "all"])
def test_a_neuron_gated_to_zero_is_a_neuron_removed(name: str, parts: str) -> None:
    """For uneven layers and an empty one, and for a model without any neuron; heads go along, or stay as they are."""
    model, given = made(name), ALL[name].inputs()
    sites = discover(model, parts=parts)
    whole = outputs(model, given)
    for kept in (half(sites), nothing(sites)):
        with gated(model, kept.mask(sites).float(), parts=parts):
            masked = outputs(model, given)
        assert (masked - whole).abs().max() > 1e-2
        pruned = remove(copy.deepcopy(model), kept)
        assert (outputs(pruned, given) - masked).abs().max() < 1e-5 * max(1.0, whole.abs().max().item())
        assert [site.count for site in discover(pruned, parts=parts)] == [len(blocks) for _, blocks in kept.blocks]
        if parts == "ffn":
            assert discover(pruned) == discover(model)


@torch.no_grad()
@pytest.mark.parametrize("name", ZOO)
def test_sites_come_in_the_order_of_the_forward_pass(name: str) -> None:
    """Heads are what they are without neurons; towers beside each other may run in any order."""
    model, heads, feeds = build(name), discover(build(name)), locate_feeds(build(name))
    if name.partition(":")[0] in MIXTURES:
        return
    sites = discover(model, parts="all")
    assert tuple(site for site in sites if site.kind != "ffn") == heads
    assert tuple(site for site in sites if site.kind == "ffn") == tuple(found.site for found in feeds)
    assert {(site.unit, site.width) for site in sites if site.kind == "ffn"} == {("neuron", 1)}
    seen: list[str] = []
    for site in sites:
        site.projection(model).register_forward_hook(lambda *_, name=site.output: seen.append(name))
    outputs(model, ZOO[name].inputs())
    order = {site.output: place for place, site in enumerate(sites)}
    for tower in {_tower(site.output) for site in sites}:
        ran = list(dict.fromkeys(order[output] for output in seen if _tower(output) == tower))
        assert ran == sorted(ran) and len(ran) == sum(_tower(site.output) == tower for site in sites)


def _tower(output: str) -> str:
    return output.partition(".")[0]


@pytest.mark.parametrize("name", [name for name in ZOO if name.partition(":")[0] in MIXTURES])
def test_mixtures_of_experts_are_refused_by_name_and_stay_whole(name: str) -> None:
    model, cls = build(name), MIXTURES[name.partition(":")[0]]
    for parts in ("ffn", "all"):
        with pytest.raises(UnsupportedModelError, match=rf'is a {cls}, whose neurons.*`parts="heads"`'):
            discover(model, parts=parts)
    assert discover(model, parts="heads") == discover(model)
    inside = [path for path, module in model.named_modules() if type(module).__name__ == cls]
    assert not any(found.site.name.startswith(path) for found in locate_feeds(model) for path in inside)


def test_the_table_has_no_class_that_is_not_tried() -> None:
    used = {type(found.module).__name__ for name in ALL for found in locate_feeds(made(name))}
    inside = {"DeepseekV2MLP", "DeepseekV3MLP", "Qwen2MoeMLP", "Qwen3NextMLP"}  # beside experts, too
    assert used | inside == set(FEEDS)


def test_what_is_not_understood_is_refused_by_name() -> None:
    model = build("bert")
    model.bert.encoder.layer[1].intermediate = nn.Identity()
    with pytest.raises(UnsupportedModelError, match=r"encoder.layer.1 \(BertLayer\) lacks one of the projections"):
        discover(model, parts="ffn")
    model = build("bert")
    model.bert.encoder.layer[1].intermediate.dense = nn.Linear(16, 19)
    with pytest.raises(UnsupportedModelError, match="has 19 rows, which do not fit 20 neurons"):
        discover(model, parts="all")
    model = build("llama")
    model.model.layers[1].mlp = nn.Identity()
    with pytest.raises(UnsupportedModelError, match=r"model.layers.1 has an attention and no feed-forward"):
        discover(model, parts="ffn")
    with pytest.raises(ValueError, match="`parts` must be one of 'heads', 'ffn', 'all'; got 'neurons'"):
        discover(build("bert"), parts="neurons")
    bloom = build("bloom")
    for layer in bloom.transformer.h:
        layer.mlp.pretraining_tp, layer.mlp.slow_but_exact = 2, True
    with pytest.raises(UnsupportedModelError, match=r"BloomMLP.*bypasses its output projection"):
        discover(bloom, parts="ffn")
    assert "BloomMLP" in REFUSED_FEEDS
