"""Gates: the lost head mask, for any backend, and gates that train."""

import copy
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import kheads
from families import FAMILIES, inputs, logits
from kheads import Kept, discover, gated, open_attention
from kheads.surgery.gates import Gates, attach, detach
from zoo import ZOO, randomise
from zoo.cases import build

Fresh = Callable[[str], Any]


def total(model: nn.Module, parts: str = "heads") -> int:
    return sum(site.count for site in discover(model, parts=parts))


both_parts = pytest.mark.parametrize("parts", ["heads", "all"])


def half(w: Tensor) -> Tensor:
    return torch.sigmoid(w)


@torch.no_grad()
def test_every_head_moves_the_logits(family: str, fresh: Fresh) -> None:
    """The test models have no idle head, so that no mistake can hide: gating any one off moves them by over 1e-2."""
    model, given = fresh(family), inputs(family)
    base, size = logits(model, given), total(model)
    for head in range(size):
        values = torch.ones(size)
        values[head] = 0
        with gated(model, values):
            assert (logits(model, given) - base).abs().max() > 1e-2


@torch.no_grad()
@both_parts
def test_open_gates_change_nothing_and_leave_no_trace(family: str, parts: str, fresh: Fresh) -> None:
    model, given = fresh(family), inputs(family)
    base, size = logits(model, given), total(model, parts)
    with gated(model, torch.ones(size), parts=parts):
        assert torch.equal(logits(model, given), base)
    with pytest.raises(KeyError), gated(model, torch.zeros(size), parts=parts):
        raise KeyError
    assert not kheads.anatomy.is_gated(model)
    assert torch.equal(logits(model, given), base)


@torch.no_grad()
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_gates_do_not_depend_on_the_backend(family: str, backend: str, fresh: Fresh) -> None:
    model, given = fresh(family), inputs(family)
    values = torch.rand(total(model), generator=torch.Generator().manual_seed(0))
    with gated(model, values):
        expected = logits(model, given)
        model.set_attn_implementation(backend)
        difference = (logits(model, given) - expected).abs()
    if not FAMILIES[family].encoder_decoder and difference.dim() == 3:  # backends differ where only padding is seen
        difference = difference * given["attention_mask"].unsqueeze(-1)
    assert difference.max() < 1e-5


def test_values_get_gradients_that_agree_with_finite_differences(family: str, fresh: Fresh) -> None:
    model, given = fresh(family).double(), inputs(family)
    given = {name: value.double() if value.is_floating_point() else value for name, value in given.items()}
    values = torch.full((total(model),), 0.7, dtype=torch.float64, requires_grad=True)
    with gated(model, values):
        logits(model, given).square().mean().backward()
    assert values.grad is not None and (values.grad != 0).all()
    for head in (0, values.numel() - 1):
        step = torch.zeros_like(values)
        step[head] = 1e-3  # some norms compute in float32 whatever the model's dtype
        with torch.no_grad():
            up, down = (_loss(model, given, values + sign * step) for sign in (1, -1))
        assert values.grad[head].item() == pytest.approx((up - down) / 2e-3, rel=1e-2, abs=2e-4)


def _loss(model: nn.Module, given: dict[str, Tensor], values: Tensor) -> float:
    with gated(model, values):
        return logits(model, given).square().mean().item()


@torch.no_grad()
@both_parts
def test_one_row_per_example(family: str, parts: str, fresh: Fresh) -> None:
    """A row of (B, N) values does to its example what that vector does to a batch."""
    model, given = fresh(family), inputs(family)
    values = torch.rand((3, total(model, parts)), generator=torch.Generator().manual_seed(0))
    with gated(model, values, parts=parts):
        together = logits(model, given)
    for example in range(3):
        with gated(model, values[example], parts=parts):
            assert torch.allclose(logits(model, given)[example], together[example], atol=1e-5)
    message = r"`values` has 2 rows, one per example, but .* sees a batch of 3"
    with pytest.raises(ValueError, match=message), gated(model, values[:2], parts=parts):
        logits(model, given)


@torch.no_grad()
def test_one_row_per_example_where_examples_lie_in_one_row() -> None:
    """OPT's feed-forward sees tokens, not examples; too few rows are refused there, too."""
    model, given = build("opt"), ZOO["opt"].inputs()
    values = torch.rand((2, total(model, "ffn")), generator=torch.Generator().manual_seed(0))
    with gated(model, values, parts="ffn"):
        together = logits(model, given)
    assert not model._forward_pre_hooks and not model._forward_pre_hooks_with_kwargs
    for example in range(2):
        with gated(model, values[example], parts="ffn"):
            assert torch.allclose(logits(model, given)[example], together[example], atol=1e-5)
    message = r"`values` has 1 rows, one per example, but .* sees a batch of 12"
    with pytest.raises(ValueError, match=message), gated(model, values[:1], parts="ffn"):
        logits(model, given)


def test_nested_use_is_refused(fresh: Fresh) -> None:
    model = fresh("bert")
    values = torch.ones(12)
    with gated(model, values), pytest.raises(RuntimeError, match="gated already"), gated(model, values):
        pass
    attach(model, Gates(discover(model), 3, half))
    with pytest.raises(RuntimeError, match="gated already"), gated(model, values):
        pass


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (torch.ones(11), ValueError, r"`values` must have shape \(12,\) or \(batch, 12\).*got \(11,\)"),
        (torch.ones(1, 1, 12), ValueError, r"got \(1, 1, 12\)"),
        (torch.ones(12, device="meta"), ValueError, "must be on the model's device cpu; got meta"),
        (torch.ones(12, dtype=torch.long), TypeError, "must be a floating-point tensor .* got torch.int64"),
        ([1.0] * 12, TypeError, "got list"),
    ],
)
def test_bad_values_are_refused(values: Tensor, kind: type[Exception], message: str, fresh: Fresh) -> None:
    with pytest.raises(kind, match=message), gated(fresh("bert"), values):
        pass


def test_values_are_counted_in_the_words_of_the_parts(fresh: Fresh) -> None:
    for parts, size, word in (("ffn", 120, "neuron"), ("all", 132, "block")):
        message = rf"shape \({size},\) or \(batch, {size}\), one value per {word}; got \(12,\)"
        with pytest.raises(ValueError, match=message), gated(fresh("bert"), torch.ones(12), parts=parts):
            pass


def test_attached_gates_are_part_of_the_model(fresh: Fresh) -> None:
    model = fresh("bert")
    before = len(list(model.parameters()))
    gates = attach(model, Gates(discover(model), 3, half))
    assert "kheads_gates.w" in model.state_dict() and len(list(model.parameters())) == before + 1
    model.train()
    logits(model, inputs("bert")).sum().backward()
    assert gates.w.grad is not None and (gates.w.grad != 0).all()
    assert detach(model) is gates and not hasattr(model, "kheads_gates") and not kheads.anatomy.is_gated(model)
    with pytest.raises(ValueError, match="no gates attached"):
        detach(model)


def test_one_draw_per_forward_shared_by_all_sites(fresh: Fresh) -> None:
    draws: list[int] = []

    def draw(w: Tensor) -> Tensor:
        draws.append(len(draws))
        return half(w) + 0.01 * len(draws)

    model = fresh("marian")
    attach(model, Gates(discover(model), 3, draw))
    model.train()
    for _ in range(2):
        logits(model, inputs("marian"))
    assert len(draws) == 2
    model.eval()
    logits(model, inputs("marian"))
    assert len(draws) == 2


@torch.no_grad()
@both_parts
def test_evaluation_and_generation_use_the_hard_subset(generating_family: str, parts: str, fresh: Fresh) -> None:
    """In eval mode, also inside `generate()`, the model is the one that `remove` will give."""
    model, given = fresh(generating_family), inputs(generating_family)
    size = total(model, parts)
    w = torch.randn(size, generator=torch.Generator().manual_seed(5))
    gates = attach(model, Gates(discover(model, parts=parts), size // 2, half, w=w))
    model.train()
    model.eval()
    masked, prompt = logits(model, given), {k: v for k, v in given.items() if not k.startswith("decoder")}
    tokens = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    kept = gates.kept()
    detach(model)
    kheads.remove(model, kept)
    assert torch.allclose(logits(model, given), masked, atol=1e-5)
    assert torch.equal(model.generate(**prompt, max_new_tokens=4, do_sample=False), tokens)


def test_the_hard_subset_follows_w(fresh: Fresh) -> None:
    model = fresh("bert")
    gates = attach(model, Gates(discover(model), 1, half, w=torch.arange(12.0)))
    model.eval()
    assert gates.values().nonzero().item() == 11
    with torch.no_grad():
        gates.w[0] = 100
    assert gates.values().nonzero().item() == 0


def test_w_keeps_float64(fresh: Fresh) -> None:
    """Casting the model must not round w: heads would tie."""
    w = torch.linspace(1, 1 + 1e-9, 12, dtype=torch.float64)
    for cast in (lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.float(), lambda m: m.to("cpu")):
        model = fresh("bert")
        gates = attach(model, Gates(discover(model), 3, half, w=w))
        cast(model)
        assert gates.w.dtype == torch.float64 and torch.equal(gates.w, w)
        assert gates.kept() == Kept.from_dict(
            {site.name: ([1, 2, 3] if "layer.2" in site.name else []) for site in discover(model)}
        )


def test_a_copy_of_a_gated_model_has_its_own_gates(fresh: Fresh) -> None:
    model = fresh("bert")
    attach(model, Gates(discover(model), 3, half))
    model.train()
    logits(model, inputs("bert"))
    twin = copy.deepcopy(model)
    logits(twin, inputs("bert")).sum().backward()
    assert twin.kheads_gates.w.grad is not None and model.kheads_gates.w.grad is None
    torch.save(model.state_dict(), io.BytesIO())


def test_a_part_of_a_model_in_training_has_no_draw(fresh: Fresh) -> None:
    model = fresh("marian")
    attach(model, Gates(discover(model), 3, half))
    model.train()
    with pytest.raises(RuntimeError, match="call the model, not a part of it"):
        model.get_encoder()(input_ids=torch.ones(1, 3, dtype=torch.long))


def test_gradient_checkpointing_sees_the_same_draw(fresh: Fresh) -> None:
    """Recomputation in the backward uses the draw of its forward, and gives the gradient without checkpointing."""
    grads = []
    for checkpointing in (False, True):
        generator = torch.Generator().manual_seed(0)
        model = fresh("bert")
        gates = attach(model, Gates(discover(model), 3, lambda w: half(w + torch.rand(12, generator=generator))))  # noqa: B023
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        for _ in range(2):
            logits(model, inputs("bert")).square().sum().backward()
        grads.append(gates.w.grad)
    assert grads[0] is not None and grads[1] is not None and torch.allclose(grads[0], grads[1])


def test_a_recomputed_forward_with_a_newer_draw_is_refused(fresh: Fresh) -> None:
    model = fresh("bert")
    attach(model, Gates(discover(model), 3, half))
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    first, _ = (logits(model, inputs("bert")) for _ in range(2))
    with pytest.raises(RuntimeError, match="drawn again since"):
        first.sum().backward()


def test_reentrant_checkpointing_is_refused(fresh: Fresh) -> None:
    model = fresh("bert")
    attach(model, Gates(discover(model), 3, half))
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    with pytest.raises(RuntimeError, match="use_reentrant"):
        logits(model, inputs("bert"))


class Little(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return x + mixed


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # raised inside torch
def test_compiled_gates_draw_outside_the_graph() -> None:
    """torch.compile gives the same outputs and gradients, with one draw for each forward, and stops recompiling."""
    draws: list[Tensor] = []

    def draw(w: Tensor) -> Tensor:
        draws.append(torch.from_numpy(w.detach().numpy() * (1 + len(draws))))
        return half(w + draws[-1])

    x, found = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)), []
    for compiled in (False, True):
        draws.clear()
        torch.compiler.reset()
        model = open_attention(randomise(Little())).train()
        gates = attach(model, Gates(discover(model), 3, draw, w=torch.linspace(-1, 1, 4)))
        runs: Any = torch.compile(model, backend="aot_eager") if compiled else model
        outputs, frames = [], []
        for _ in range(4):
            outputs.append(runs(x))
            outputs[-1].square().sum().backward()
            frames.append(counters["frames"]["total"])
        assert len(draws) == 4 and frames[-1] == frames[-2] and (frames[0] > 0) == compiled
        runs.eval()
        found.append([*outputs, gates.w.grad, runs(x)])
    for plain, other in zip(*found, strict=True):
        assert torch.allclose(plain, other, atol=1e-6)


# Stands in for the package's `__init__`, so that only what gates, removal and measuring need themselves is loaded.
ALONE = """
import sys, types
kheads = types.ModuleType("kheads")
kheads.__path__ = [sys.argv[1]]
sys.modules["kheads"] = kheads
import torch
from torch import nn
from kheads.anatomy import discover
from kheads.measuring import measurement, live_memory, timing
from kheads.surgery import adoption, gates, rebuild, removal

model = rebuild.open_attention(nn.ModuleDict({"one": nn.MultiheadAttention(8, 2)}))
sites = discover(model)
attached = gates.attach(model, gates.Gates(sites, 1, torch.sigmoid))
attached.redraw()
removal.remove(model, gates.detach(model) and attached.kept())
print(*sorted({"torch._dynamo", "transformers", "torch._inductor"} & sys.modules.keys()))
"""


def test_gates_and_removal_load_neither_dynamo_nor_transformers() -> None:
    source = Path(kheads.__file__).parent
    run = subprocess.run([sys.executable, "-c", ALONE, source], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == ""


def test_gates_of_another_model_are_refused(fresh: Fresh) -> None:
    with pytest.raises(ValueError, match="made for other sites"):
        attach(fresh("bert"), Gates(discover(fresh("marian")), 3, half))
    for parts in ("ffn", "all"):
        with pytest.raises(ValueError, match="made for other sites"):
            attach(fresh("bert"), Gates(discover(fresh("marian"), parts=parts), 3, half))
