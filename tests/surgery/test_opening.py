"""torch's own attention, opened: the same outputs, and heads that can be gated, removed and saved."""

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kheads
from kheads import Kept, UnsupportedModelError, discover, gated, open_attention, remove
from kheads.surgery.rebuild import OpenAttention, rebuild
from kheads.surgery.removal import architecture
from zoo import randomise

PADDED = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] * 6])


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDED},
    "additive padding": {"key_padding_mask": PADDED.float(), "need_weights": False},
    "boolean": {"attn_mask": noise(5, 6) > 1},
    "per head": {"attn_mask": noise(12, 5, 6), "average_attn_weights": False},
    "both": {"attn_mask": noise(5, 6), "key_padding_mask": PADDED.float(), "need_weights": False},
    "causal": {"attn_mask": torch.ones(5, 6).triu(1).bool(), "is_causal": True, "need_weights": False},
}


@torch.no_grad()
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", [{}, {"kdim": 6, "vdim": 10}, {"bias": False}])
def test_an_opened_attention_computes_what_torch_computes(masks: dict, batch_first: bool, options: dict) -> None:
    attention = randomise(nn.MultiheadAttention(16, 4, batch_first=batch_first, **options)).eval()
    opened = OpenAttention(attention)
    given = [
        noise(3, 5, 16),
        noise(3, 6, options.get("kdim", 16), seed=1),
        noise(3, 6, options.get("vdim", 16), seed=2),
    ]
    if not batch_first:
        given = [part.transpose(0, 1) for part in given]
    (expected, weights), (output, own) = attention(*given, **masks), opened(*given, **masks)
    assert torch.allclose(output, expected, atol=1e-6)
    assert (weights is None) == (own is None) and (own is None or torch.allclose(own, weights, atol=1e-6))


@torch.no_grad()
def test_unbatched_inputs_and_bad_hints() -> None:
    attention = randomise(nn.MultiheadAttention(16, 4)).eval()
    given = [noise(5, 16)] * 3
    for one, other in zip(attention(*given), OpenAttention(attention)(*given), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        OpenAttention(attention)(*given, is_causal=True)
    with pytest.raises(ValueError, match="`add_bias_kv` or `add_zero_attn` cannot be opened"):
        OpenAttention(nn.MultiheadAttention(16, 4, add_bias_kv=True))


def transformer() -> Any:
    return randomise(nn.Transformer(16, 4, 2, 2, 20, dropout=0.0, batch_first=True)).eval()


def sentences() -> dict[str, Any]:
    return {
        "src": noise(3, 6, 16),
        "tgt": noise(3, 5, 16, seed=1),
        "src_key_padding_mask": PADDED,
        "memory_key_padding_mask": PADDED,
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(5),
        "tgt_is_causal": True,
    }


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nn_transformer_can_be_pruned_and_saved() -> None:
    model, given = transformer(), sentences()
    with pytest.raises(UnsupportedModelError, match=r"kheads.open_attention\(model\)"):
        discover(model)
    expected = model(**given)
    assert torch.allclose(open_attention(model)(**given), expected, atol=1e-5)
    sites = discover(model)
    assert [site.kind for site in sites] == ["encoder"] * 2 + ["decoder", "cross"] * 2
    for seed in range(3):
        mask = (torch.rand(24, generator=torch.Generator().manual_seed(seed)) < 0.3 * seed).float()
        pruned = remove(copy.deepcopy(model), Kept.from_mask(mask.double(), sites))
        with gated(model, mask):
            assert torch.allclose(pruned(**given), model(**given), atol=1e-5)
    record = json.loads(json.dumps(architecture(pruned)))
    again = rebuild(transformer(), record)
    again.load_state_dict(pruned.state_dict())
    assert torch.equal(again(**given), pruned(**given))
    assert discover(again) == discover(pruned)


def test_gradients_modes_and_frozen_weights_stay() -> None:
    model, given = transformer().train(), sentences()
    model.encoder.requires_grad_(False)
    open_attention(model)
    assert not any(parameter.requires_grad for parameter in model.encoder.parameters())
    values = torch.full((24,), 0.5, requires_grad=True)
    with gated(model, values):
        model(**given).square().mean().backward()
    assert values.grad is not None and values.grad.all()
    assert model.decoder.layers[0].self_attn.training
    assert kheads.open_attention(model) is model  # a second time there is nothing to do


def test_a_shared_attention_stays_one() -> None:
    attention = nn.MultiheadAttention(16, 4)
    model: Any = open_attention(nn.ModuleDict({"one": attention, "two": attention}))
    assert model["one"] is model["two"] and len(discover(model)) == 1
    assert architecture(model)["opened"] == ["one", "two"]


@torch.no_grad()
def test_a_mask_for_every_head_follows_the_heads() -> None:
    """A three-dimensional mask has rows for all heads of the unpruned module; the pruned one takes its own."""
    model: Any = open_attention(nn.ModuleDict({"attention": randomise(nn.MultiheadAttention(16, 4, batch_first=True))}))
    given = [noise(3, 5, 16)] * 3
    sites = discover(model)
    kept = Kept.from_dict({"attention": [1, 3]})
    with gated(model, kept.mask(sites).float()):
        expected = model["attention"](*given, attn_mask=noise(12, 5, 5))[0]
    pruned: Any = remove(copy.deepcopy(model), kept)
    assert torch.allclose(pruned["attention"](*given, attn_mask=noise(12, 5, 5))[0], expected, atol=1e-6)
