"""Unknown attention classes are adopted only if a batch proves their layout; nothing is ever guessed."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kheads
from kheads import Kept, UnsupportedModelError, adopt, discover, gated, remove
from kheads.anatomy import LAYOUTS
from kheads.surgery.rebuild import rebuild
from kheads.surgery.removal import architecture
from zoo import ZOO, outputs, randomise

WIDTH, HEADS = 6, 4


class Attention(nn.Module):
    """A plain attention, with knobs for what a stranger could do differently."""

    def __init__(self, norm: bool = False, talk: bool = False, kv: int = HEADS) -> None:
        super().__init__()
        self.head_dim, self.num_heads, self.n_rep = WIDTH, HEADS, HEADS // kv
        self.wq = nn.Linear(16, HEADS * WIDTH)
        self.wk, self.wv = nn.Linear(16, kv * WIDTH), nn.Linear(16, kv * WIDTH)
        self.wo = nn.Linear(HEADS * WIDTH, 16)
        self.norm = nn.RMSNorm(HEADS * WIDTH) if norm else nn.Identity()
        self.talk = nn.Parameter(torch.eye(HEADS)) if talk else None

    def forward(self, x: Tensor) -> Tensor:
        q = self.norm(self.wq(x)).unflatten(-1, (self.num_heads, WIDTH)).transpose(1, 2)
        k, v = (part(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2) for part in (self.wk, self.wv))
        k, v = k.repeat_interleave(self.n_rep, 1), v.repeat_interleave(self.n_rep, 1)
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        if self.talk is not None:
            weights = torch.einsum("bhqk,hg->bgqk", weights, self.talk)
        return self.wo((weights @ v).transpose(1, 2).flatten(-2))


class Fused(nn.Module):
    """One projection, in which each head has its query, key and value side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = WIDTH
        self.qkv, self.proj = nn.Linear(16, 3 * HEADS * WIDTH), nn.Linear(HEADS * WIDTH, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, WIDTH)).permute(0, 2, 3, 1, 4).unbind(2)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


class ShyAttention(Attention):
    """Never calls its output projection, so no gate can fire."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.wv(x), self.wo.weight, self.wo.bias)


class Model(nn.Module):
    def __init__(self, build: Callable[[], nn.Module], layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleDict({"attention": build()}) for _ in range(layers)])

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            x = x + layer["attention"](x)
        return {"out": x}


def model_of(build: Callable[[], nn.Module]) -> Any:
    return randomise(Model(build)).eval()


def batch() -> dict[str, Tensor]:
    return {"x": torch.randn((2, 5, 16), generator=torch.Generator().manual_seed(0))}


@torch.no_grad()
@pytest.mark.parametrize("build", [Attention, lambda: Attention(kv=2), Fused], ids=["apart", "shared", "fused"])
def test_a_strange_class_is_adopted_and_pruned_exactly(build: Callable[[], nn.Module]) -> None:
    model, given = model_of(build), batch()
    with pytest.raises(UnsupportedModelError, match=r"kheads.adopt\(model, inputs\)"):
        discover(model)
    state, table = copy.deepcopy(model.state_dict()), dict(LAYOUTS)
    assert adopt(model, given) == ("layers.0.attention", "layers.1.attention")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert table == LAYOUTS  # what was proven for this model is not claimed for others of the class
    sites = discover(model, "query")
    assert [site.count for site in sites] == [HEADS, HEADS]
    kept = Kept.from_dict({"layers.0.attention": [3], "layers.1.attention": []})
    with gated(model, kept.mask(sites).float(), "query"):
        masked = model(**given)["out"]
    assert torch.allclose(remove(model, kept, "query")(**given)["out"], masked, atol=1e-5)
    assert adopt(model, given) == ()


def test_feed_forwards_of_a_strange_class_are_refused_by_name() -> None:
    model = model_of(Attention)
    adopt(model, batch())
    for parts in ("ffn", "all"):
        with pytest.raises(UnsupportedModelError, match=r"layers.0 has an attention and no feed-forward that kheads"):
            discover(model, parts=parts)
        with pytest.raises(UnsupportedModelError), gated(model, torch.ones(8), parts=parts):
            pass


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Attention(norm=True), "fails with heads removed"),
        (lambda: Attention(talk=True), "fails with heads removed"),
        (ShyAttention, "the gates of layers.0.attention have no effect on the outputs"),
        (
            lambda: nn.ModuleDict({"query": nn.Linear(4, 4), "key": nn.Linear(4, 4), "value": nn.Linear(4, 4)}),
            "no names",
        ),
    ],
)
def test_what_cannot_be_proven_is_refused_by_name(build: Callable[[], nn.Module], reason: str) -> None:
    model = model_of(build)
    with pytest.raises(UnsupportedModelError, match=reason) as error:
        adopt(model, batch())
    assert type(model.layers[0]["attention"]).__name__ in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(UnsupportedModelError):
        discover(model)


def test_a_silent_mistake_is_noticed() -> None:
    """A class that runs with fewer heads and computes something else: its scale depends on the number of heads."""

    class Scaled(Attention):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.num_heads

    with pytest.raises(UnsupportedModelError, match="removing heads is not gating them"):
        adopt(model_of(Scaled), batch())


def test_refusals_are_not_adopted() -> None:
    with pytest.raises(UnsupportedModelError, match="open_attention"):
        adopt(nn.ModuleList([nn.MultiheadAttention(8, 2)]), {})


def test_the_layout_is_saved_with_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A model of transformers whose class is not in the table comes back with its proven layout."""
    model, given = ZOO["bert"].build(), ZOO["bert"].inputs()
    monkeypatch.delitem(LAYOUTS, "BertAttention")
    adopt(model, given)
    heads, feeds = discover(model), discover(model, parts="ffn")
    remove(model, Kept.from_dict({heads[0].name: [1, 2], feeds[1].name: [3]}))
    kheads.save(model, tmp_path / "out")
    loaded = kheads.load(tmp_path / "out")
    assert [site.count for site in discover(loaded, parts="all")] == [2, 0, 0, 1]
    with torch.no_grad():
        assert torch.allclose(outputs(loaded, given), outputs(model, given), atol=1e-6)


def test_a_plain_module_is_saved_as_its_record_and_its_state(tmp_path: Path) -> None:
    model, given = model_of(Attention), batch()
    adopt(model, given)
    remove(model, Kept.from_dict({"layers.0.attention": [1, 2]}))
    (tmp_path / "heads.json").write_text(json.dumps(architecture(model)))
    again = rebuild(Model(Attention), json.loads((tmp_path / "heads.json").read_text()))
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(again(**given)["out"], model(**given)["out"])
    assert discover(again) == discover(model)
