"""A pruned model takes a LoRA adapter like any other: it learns, merges back, and saves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import Tensor

import kheads
from conftest import subsets
from families import inputs, logits
from kheads import DSP, Kept, UnsupportedModelError, discover, ghosts, prune, remove
from small_runs import arguments, data

Fresh = Callable[[str], Any]
pytestmark = [
    pytest.mark.filterwarnings("ignore:Initializing zero-element tensors"),  # emptied sites have no rows to adapt
    pytest.mark.filterwarnings("ignore:Adapter 'default'. .* LoRA tensor.s. have invalid shape"),  # the same
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False"),  # GPT-2's Conv1D
]


def pruned(model: Any) -> Any:
    """About half of the heads and neurons are gone, and all of the first attention and the first feed-forward."""
    sites = discover(model, parts="all")
    mask = (torch.rand(sum(site.count for site in sites), generator=torch.Generator().manual_seed(1)) < 0.5).double()
    return remove(model, Kept.from_mask(mask * subsets(sites)[2].mask(sites), sites))


def adapted(model: Any, given: dict[str, Tensor]) -> Any:
    """The model with an adapter on every linear layer, trained for some steps."""
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear"))
    learning = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, 0.05)
    for _ in range(3):
        optimizer.zero_grad()
        logits(wrapped, given).pow(2).mean().backward()
        optimizer.step()
    return wrapped.eval()


@torch.no_grad()
def computed(model: Any, given: dict[str, Tensor]) -> Tensor:
    return logits(model.eval(), given)


def test_an_adapter_learns_merges_and_saves(family: str, fresh: Fresh, tmp_path: Path) -> None:
    """The adapter has effect, also on the sites that are left; emptied sites stay silent; nothing is lost."""
    model, given = pruned(fresh(family)), inputs(family)
    sites, before, silent = discover(model, parts="all"), computed(model, given), ghosts(model)
    wrapped = adapted(model, given)
    after = computed(wrapped, given)
    assert (after - before).abs().max() > 1e-2
    for kind in (True, False):
        site = max((site for site in sites if (site.kind == "ffn") == kind), key=lambda found: found.count)
        moved = [p for name, p in wrapped.named_parameters() if f"{site.output}." in name and "lora_B" in name]
        assert moved and any(parameter.abs().max() > 1e-3 for parameter in moved)
    merged = wrapped.merge_and_unload()
    assert torch.allclose(computed(merged, given), after, atol=1e-4)
    assert discover(merged, parts="all") == sites and ghosts(merged) == silent
    folder = kheads.save(merged, tmp_path / "merged")
    assert torch.equal(computed(kheads.load(folder), given), computed(merged, given))


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_an_adapter_is_kept_beside_the_pruned_model(family: str, fresh: Fresh, tmp_path: Path) -> None:
    model, given = pruned(fresh(family)), inputs(family)
    folder = kheads.save(model, tmp_path / "pruned")
    wrapped = adapted(model, given)
    wrapped.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(kheads.load(folder), tmp_path / "adapter")
    assert torch.equal(computed(again, given), computed(wrapped, given))


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_wrapped_model_is_refused_until_it_is_merged(family: str, fresh: Fresh, tmp_path: Path) -> None:
    wrapped: Any = peft.get_peft_model(fresh(family), peft.LoraConfig(target_modules="all-linear"))
    heads = sum(site.count for site in discover(fresh(family)))
    for use in (
        lambda: discover(wrapped),
        lambda: remove(wrapped, Kept.from_dict({})),
        lambda: kheads.gated(wrapped, torch.ones(heads)).__enter__(),
        lambda: prune(wrapped, 3, DSP(), data("bert"), None, arguments(tmp_path)),
    ):
        with pytest.raises(
            UnsupportedModelError, match=r"merge the adapter first: `model = model.merge_and_unload\(\)`"
        ):
            use()
    assert sum(site.count for site in discover(wrapped.merge_and_unload())) == heads
