"""Removal equals the hard mask, for every family and any subset, and what is left is an ordinary model."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from conftest import subsets
from families import FAMILIES, inputs, logits
from kheads import Kept, discover, gated, ghosts, remove
from kheads.anatomy import locate

Fresh = Callable[[str], Any]


def differences(model: PreTrainedModel, pruned: PreTrainedModel, mask: Tensor, family: str, unit: str) -> Tensor:
    """Of the logits, as shares of the largest: float32 rounds these, and processors round differently."""
    given = inputs(family)
    with gated(model, mask.float(), unit):
        expected = logits(model, given)
    difference = (logits(pruned, given) - expected).abs()
    if not FAMILIES[family].encoder_decoder and difference.dim() == 3 and FAMILIES[family].generates:
        difference = difference * given["attention_mask"].unsqueeze(-1)
    return difference / expected.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("unit", ["group", "query"])
def test_removal_equals_the_hard_mask(family: str, backend: str, unit: str, fresh: Fresh) -> None:
    model = fresh(family)
    model.set_attn_implementation(backend)
    sites = discover(model, unit)
    if unit == "query" and all(site.unit == "head" for site in sites):
        pytest.skip("no head shares keys and values here, so both units are the same")
    for kept in subsets(sites):
        pruned = remove(copy.deepcopy(model), kept, unit)
        assert differences(model, pruned, kept.mask(sites), family, unit).max() < 1e-5
        if unit == "group":
            assert [site.count for site in discover(pruned)] == [len(heads) for heads in kept.to_dict().values()]


@torch.no_grad()
def test_removal_in_two_steps_equals_one(family: str, fresh: Fresh) -> None:
    """A pruned model can be pruned again; its record still speaks of the original's heads."""
    model = fresh(family)
    sites = discover(model)
    size = sum(site.count for site in sites)
    first = (torch.rand(size, generator=torch.Generator().manual_seed(0)) < 0.7).double()
    second = first * (torch.rand(size, generator=torch.Generator().manual_seed(1)) < 0.6).double()
    once = remove(copy.deepcopy(model), Kept.from_mask(second, sites))
    twice = remove(copy.deepcopy(model), Kept.from_mask(first, sites))
    remaining = second[first.bool()]
    remove(twice, Kept.from_mask(remaining, discover(twice)))
    assert torch.equal(logits(once, inputs(family)), logits(twice, inputs(family)))
    assert {name: site["ghost"] for name, site in once.config.kheads["sites"].items()} == {
        name: site["ghost"] for name, site in twice.config.kheads["sites"].items()
    }
    live = [name for name, site in once.config.kheads["sites"].items() if not site["ghost"]]
    assert all(once.config.kheads["sites"][name] == twice.config.kheads["sites"][name] for name in live)


def test_the_heads_are_really_gone(fresh: Fresh) -> None:
    """BERT: one head is 3 (d x w + w) + w x d parameters, and that many go."""
    model = fresh("bert")
    before = model.num_parameters()
    remove(model, Kept.from_dict({"bert.encoder.layer.0.attention": [0, 2]}))
    assert before - model.num_parameters() == 10 * (3 * (32 * 8 + 8) + 8 * 32)
    layer = model.bert.encoder.layer[1].attention
    assert layer.self.query.weight.shape == (0, 32) and layer.self.num_attention_heads == 0
    assert model.bert.encoder.layer[0].attention.self.num_attention_heads == 2
    assert model.bert.encoder.layer[0].attention.self.all_head_size == 16


@torch.no_grad()
def test_an_emptied_site_adds_its_output_bias_alone(fresh: Fresh) -> None:
    model = remove(fresh("bert"), Kept.from_dict({}))
    layer = model.bert.encoder.layer[1].attention
    hidden = torch.randn(2, 5, 32)
    expected = layer.output.LayerNorm(hidden + layer.output.dense.bias)
    assert torch.allclose(layer(hidden)[0], expected, atol=1e-6)
    assert ghosts(model) == ()


def test_ghosts_are_reported_and_stay_silent(fresh: Fresh) -> None:
    """Where a site cannot be empty one head stays with no output; it counts as removed."""
    for family, expected in (("llama", 1), ("qwen3", 2), ("gpt2", 3), ("marian", 1), ("bert2gpt2", 6)):
        model = remove(fresh(family), Kept.from_dict({}))
        assert len(ghosts(model)) == expected
        assert all(site.count == 0 for site in discover(model))
        assert all(not found.output.weight.any() for found in locate(model) if found.ghost)


def test_uneven_query_heads_repeat_their_keys_and_values(fresh: Fresh) -> None:
    """Kept 1, 2, 0 and 0 of the query heads of four groups: g = 1, and the second key-value head is there twice."""
    model = fresh("llama")
    remove(model, Kept.from_dict({"model.layers.1.self_attn": [0, 2, 3]}), unit="query")
    site = model.config.kheads["sites"]["model.layers.1.self_attn"]
    assert (site["query"], site["kv"]) == ([0, 2, 3], [0, 1, 1])
    attention = model.model.layers[1].self_attn
    assert attention.num_key_value_groups == 1 and attention.k_proj.out_features == 18


def test_whole_groups_shrink_the_cache(fresh: Fresh) -> None:
    model = fresh("llama")
    remove(model, Kept.from_dict({site.name: [1] for site in discover(model)}))
    cache = model(**inputs("llama"), use_cache=True).past_key_values
    assert [layer.keys.shape[1] for layer in cache.layers] == [1, 1, 1]


def test_dtype_device_mode_and_frozen_weights_stay(fresh: Fresh) -> None:
    model = fresh("bert").to(torch.bfloat16).train()
    attention = model.bert.encoder.layer[0].attention
    attention.self.query.weight.requires_grad_(False)
    remove(model, Kept.from_dict({"bert.encoder.layer.0.attention": [1]}))
    assert model.training and attention.self.query.weight.dtype == torch.bfloat16
    assert not attention.self.query.weight.requires_grad and attention.self.key.weight.requires_grad


def test_tied_embeddings_stay_tied(fresh: Fresh) -> None:
    for family in ("marian", "gpt2", "t5"):
        model = fresh(family)
        remove(model, subsets(discover(model))[3])
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@torch.no_grad()
def test_attention_maps_have_the_heads_that_are_left(fresh: Fresh) -> None:
    model = fresh("bert")
    model.set_attn_implementation("eager")
    remove(model, Kept.from_dict({"bert.encoder.layer.0.attention": [1], "bert.encoder.layer.2.attention": [0, 3]}))
    maps = model(**inputs("bert"), output_attentions=True).attentions
    assert [attention.shape[1] for attention in maps] == [1, 0, 2]


def test_training_goes_on_with_gradient_checkpointing(family: str, fresh: Fresh) -> None:
    """Every remaining weight that can learn gets the gradient it gets without checkpointing."""
    grads = []
    kept = subsets(discover(fresh(family)))[4]
    for checkpointing in (False, True):
        model = remove(fresh(family), kept)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        model.config.update({key: 0.0 for key in model.config.to_dict() if key.endswith("dropout")})
        model.eval()
        if checkpointing and model.supports_gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.train()
            for module in model.modules():
                for name in ("dropout", "attention_dropout", "activation_dropout"):
                    if isinstance(getattr(module, name, None), float):
                        setattr(module, name, 0.0)
        logits(model, inputs(family)).square().mean().backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys() and len(grads[0]) > 10
    assert all(torch.allclose(grads[0][name], grads[1][name], atol=1e-4, rtol=1e-3) for name in grads[0])


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "marian", "llama"])
def test_the_result_compiles(name: str, fresh: Fresh) -> None:
    model = fresh(name)
    remove(model, subsets(discover(model))[3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend="aot_eager")
        assert torch.allclose(logits(compiled, inputs(name)), logits(model, inputs(name)), atol=1e-5)
    torch.compiler.reset()


def test_the_result_serves_in_a_pipeline(fresh: Fresh, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]))
    tokenizer = transformers.BertTokenizer(str(vocabulary))
    model = fresh("bert")
    remove(model, subsets(discover(model))[3])
    classify = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    assert classify("good bad")[0]["label"].startswith("LABEL_")


def test_bad_requests_change_nothing(fresh: Fresh) -> None:
    model = fresh("bert")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for heads, message in (
        ({"bert.encoder.layer.9.attention": [0]}, "has no site 'bert.encoder.layer.9.attention'"),
        ({"bert.encoder.layer.0.attention": [0, 4]}, r"has 4 heads \(0 to 3\); got head 4"),
    ):
        with pytest.raises(ValueError, match=message):
            remove(model, Kept.from_dict(heads))
    with gated(model, torch.ones(12)), pytest.raises(RuntimeError, match="gated; leave"):
        remove(model, Kept.from_dict({}))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="meta device"):
        remove(fresh("bert").to("meta"), Kept.from_dict({}))
    pruned = remove(model, Kept.from_dict({}))
    with pytest.raises(ValueError, match="has no heads left; got head 0"):
        remove(pruned, Kept.from_dict({"bert.encoder.layer.0.attention": [0]}))


def test_wrapped_models_are_unwrapped(fresh: Fresh) -> None:
    model = fresh("bert")
    assert remove(nn.DataParallel(model), Kept.from_dict({})) is model
