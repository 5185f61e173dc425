"""Removal equals the hard mask, for every family and any subset, and what is left is an ordinary model."""

import copy
import json
import pickle
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
from kheads import Kept, UnsupportedModelError, discover, gated, ghosts, remove
from kheads.anatomy import locate
from kheads.surgery.rebuild import packed, unpacked
from kheads.surgery.removal import architecture
from zoo import ZOO, Tiny

Fresh = Callable[[str], Any]


def differences(
    model: PreTrainedModel, pruned: PreTrainedModel, mask: Tensor, family: str, unit: str, parts: str
) -> Tensor:
    """Of the logits, as shares of the largest: float32 rounds these, and processors round differently."""
    given = inputs(family)
    with gated(model, mask.float(), unit, parts):
        expected = logits(model, given)
    difference = (logits(pruned, given) - expected).abs()
    if not FAMILIES[family].encoder_decoder and difference.dim() == 3 and FAMILIES[family].generates:
        difference = difference * given["attention_mask"].unsqueeze(-1)
    return difference / expected.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("parts", ["heads", "all"])
@pytest.mark.parametrize("unit", ["group", "query"])
def test_removal_equals_the_hard_mask(family: str, backend: str, unit: str, parts: str, fresh: Fresh) -> None:
    model = fresh(family)
    model.set_attn_implementation(backend)
    sites = discover(model, unit, parts)
    if unit == "query" and all(site.unit in ("head", "neuron") for site in sites):
        pytest.skip("no head shares keys and values here, so both units are the same")
    for kept in subsets(sites):
        pruned = remove(copy.deepcopy(model), kept, unit)
        assert differences(model, pruned, kept.mask(sites), family, unit, parts).max() < 1e-5
        if unit == "group":
            counts = [site.count for site in discover(pruned, parts=parts)]
            assert counts == [len(blocks) for blocks in kept.to_dict().values()]


@torch.no_grad()
@pytest.mark.parametrize("parts", ["heads", "ffn", "all"])
def test_removal_in_two_steps_equals_one(family: str, parts: str, fresh: Fresh) -> None:
    """A pruned model can be pruned again; its record still speaks of the original's heads and neurons."""
    model = fresh(family)
    sites = discover(model, parts=parts)
    size = sum(site.count for site in sites)
    first = (torch.rand(size, generator=torch.Generator().manual_seed(0)) < 0.7).double()
    second = first * (torch.rand(size, generator=torch.Generator().manual_seed(1)) < 0.6).double()
    once = remove(copy.deepcopy(model), Kept.from_mask(second, sites))
    twice = remove(copy.deepcopy(model), Kept.from_mask(first, sites))
    remaining = second[first.bool()]
    remove(twice, Kept.from_mask(remaining, discover(twice, parts=parts)))
    assert torch.equal(logits(once, inputs(family)), logits(twice, inputs(family)))
    for section in ("sites", "neurons"):
        one, two = (model.config.kheads.get(section, {}) for model in (once, twice))
        assert {name: site["ghost"] for name, site in one.items()} == {
            name: site["ghost"] for name, site in two.items()
        }
        assert all(one[name] == two[name] for name, site in one.items() if not site["ghost"])


@torch.no_grad()
def test_heads_and_neurons_one_after_the_other(family: str, fresh: Fresh) -> None:
    """What a set names tells which part is cut; the other stays as it is, and the order does not matter."""
    model = fresh(family)
    heads, neurons = (subsets(discover(model, parts=parts))[3] for parts in ("heads", "ffn"))
    one, two = remove(remove(fresh(family), heads), neurons), remove(remove(fresh(family), neurons), heads)
    both = remove(fresh(family), Kept.from_dict({**heads.to_dict(), **neurons.to_dict()}))
    assert torch.equal(logits(one, inputs(family)), logits(both, inputs(family)))
    assert torch.equal(logits(two, inputs(family)), logits(both, inputs(family)))
    assert one.config.kheads == two.config.kheads == both.config.kheads
    alone = remove(model, heads)
    assert "neurons" not in alone.config.kheads
    assert discover(alone, parts="ffn") == discover(fresh(family), parts="ffn")


def test_a_set_that_names_nothing_removes_heads_alone(fresh: Fresh) -> None:
    model = remove(fresh("bert"), Kept.from_dict({}))
    assert [site.count for site in discover(model, parts="all")] == [0, 40] * 3
    model = remove(fresh("bert"), Kept.from_dict({"bert.encoder.layer.1": [3, 7]}))
    assert [site.count for site in discover(model, parts="all")] == [4, 0, 4, 2, 4, 0]


def test_neurons_of_experts_are_refused_by_name() -> None:
    """Also where some layers have none: neurons go from all layers or from none."""
    fields = {**ZOO["qwen3_moe"].fields, "mlp_only_layers": [0]}
    for tiny in (ZOO["mixtral"], Tiny("Qwen3MoeForCausalLM", fields)):
        model = tiny.build()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(UnsupportedModelError, match=r"SparseMoeBlock, whose neurons kheads cannot remove"):
            remove(model, Kept.from_dict({"model.layers.0.mlp": [0]}))
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_the_neurons_are_really_gone(fresh: Fresh) -> None:
    """BERT: one neuron is d + 1 + d parameters, and that many go."""
    model = fresh("bert")
    before = model.num_parameters()
    remove(model, Kept.from_dict({"bert.encoder.layer.0": [0, 2]}))
    assert before - model.num_parameters() == 118 * (2 * 32 + 1)
    llama = remove(fresh("llama"), Kept.from_dict({"model.layers.0.mlp": [0, 2]}))
    mlp = llama.model.layers[0].mlp
    assert (mlp.intermediate_size, mlp.up_proj.out_features, mlp.down_proj.in_features) == (2, 2, 2)


def test_the_record_of_neurons_is_short(fresh: Fresh) -> None:
    """A bit for each of 300,000, not a number."""
    site = {"query": list(range(0, 300_000, 3)), "of": 300_000, "ghost": False}
    text = json.dumps(packed(site))
    assert len(text) < 51_000
    back = unpacked("mlp", json.loads(text))
    assert back == {**site, "kv": site["query"], "of_kv": 300_000}


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


def test_a_silent_neuron_counts_as_removed_and_learns_nothing(fresh: Fresh) -> None:
    """GPT-2's feed-forward cannot be empty; copies of it are as silent as it is."""
    model = fresh("gpt2")
    sites = discover(model, parts="ffn")
    remove(model, Kept.from_dict({site.name: [] for site in sites}))
    assert ghosts(model) == tuple(site.name for site in sites)
    assert all(site.count == 0 for site in discover(model, parts="ffn"))
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        optimizer = torch.optim.AdamW(one.parameters(), lr=0.1, weight_decay=0.1)
        before = one.transformer.h[0].mlp.c_proj.bias.detach().clone()
        for _ in range(3):
            optimizer.zero_grad()
            logits(one.train(), inputs("gpt2")).square().mean().backward()
            optimizer.step()
        mlp = one.transformer.h[0].mlp
        assert mlp.c_proj.weight.shape == (1, 32) and not mlp.c_proj.weight.any()
        assert not torch.equal(mlp.c_proj.bias, before)
    model.transformer.h[0].mlp.c_proj.weight.data.fill_(1)
    with pytest.raises(ValueError, match=r"silent neuron of the emptied site 'transformer.h.0.mlp' has weights"):
        architecture(model)


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
    kept = subsets(discover(fresh(family), parts="all"))[4]
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
    remove(model, subsets(discover(model, parts="all"))[3])
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
        ({"bert.encoder.layer.0": [40]}, r"has 40 neurons \(0 to 39\); got neuron 40"),
        ({"bert.encoder.layer.0": [0], "bert.encoder.layer.9": [0]}, "has no site 'bert.encoder.layer.9'"),
        ({"bert.encoder.layer.0": [0], "bert.pooler": []}, "has no site 'bert.pooler'"),
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
    assert remove(nn.DataParallel(model), Kept.from_dict({"bert.encoder.layer.0": [1]})) is model
    assert [site.count for site in discover(nn.DataParallel(model), parts="ffn")] == [1, 0, 0]
