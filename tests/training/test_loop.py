"""A loop of one's own: gates attached by one call, and what is kept at the end."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kheads
from families import inputs, logits
from small_runs import data

Fresh = Callable[[str], Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_torch.py"


def train(model: Any, pruner: kheads.Pruner, weights: list[Any], steps: int) -> list[float]:
    """A few steps; returns the learning rates of the gates."""
    rows = {key: torch.stack([row[key] for row in data("bert")]) for key in data("bert")[0]}
    optimizer = torch.optim.SGD([{"params": weights, "lr": 1e-3}, pruner.param_group()])
    rates = []
    for _ in range(steps):
        (model(**rows).loss + pruner.penalty()).backward()
        pruner.step()
        rates.append(optimizer.param_groups[-1]["lr"])
        optimizer.step()
        optimizer.zero_grad()
    return rates


@pytest.mark.parametrize("method", ["dsp", "ste", "voita"])
def test_what_was_evaluated_is_what_is_left(method: str, fresh: Fresh) -> None:
    """In eval mode the gates are the hard subset, and the model without the others gives the same logits."""
    model = fresh("bert").train()
    weights = list(model.parameters())
    pruner = kheads.attach(model, method=method, k=5, steps=12)
    before = pruner.gates.w.detach().clone()
    rates = train(model, pruner, weights, 12)
    assert not torch.equal(pruner.gates.w, before) and rates[0] > rates[-1] > 0
    evaluated = logits(model.eval(), inputs("bert"))
    kept = pruner.finish()
    assert len(kept) == 5 and sum(site.count for site in kheads.discover(model)) == 5
    assert torch.allclose(logits(model, inputs("bert")), evaluated, atol=1e-5)


def test_the_penalty_of_voita_reaches_the_gates(fresh: Fresh) -> None:
    model = fresh("bert").train()
    pruner = kheads.attach(model, method=kheads.Voita(weight=1.0), k=5, steps=4)
    pruner.penalty().backward()
    assert pruner.gates.w.grad is not None and (pruner.gates.w.grad > 0).all()
    assert float(kheads.attach(fresh("bert"), k=5, steps=4).penalty()) == 0


def test_a_spike_is_clipped_and_time_moves_on(fresh: Fresh) -> None:
    pruner = kheads.attach(fresh("bert").train(), method="ste", k=5, steps=4)
    pruner.gates.w.grad = torch.full_like(pruner.gates.w, 1e9)
    pruner.step()
    assert pruner.gates.w.grad.norm() <= 1 + 1e-6 and pruner.gates.moment == kheads.Moment(1, 4)
    pruner.gates.w.grad.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="the gradient of the gates became non-finite"):
        pruner.step()


def test_a_frozen_model_gets_the_preset_for_it_and_can_be_left_alone(fresh: Fresh) -> None:
    model = fresh("bert").requires_grad_(False)
    untouched = copy.deepcopy(model.state_dict())
    pruner = kheads.attach(model, k=5, steps=4)
    assert pruner.gates.method == kheads.DSP.preset("frozen")
    pruner.cancel()
    assert all(torch.equal(value, untouched[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "michel", "k": 5, "steps": 4}, "michel scores a trained model: use kheads.prune"),
        ({"method": "best", "k": 5, "steps": 4}, "The method must be one of dsp, ste"),
        ({"k": 99, "steps": 4}, "`k` must be between 1 and 12"),
        ({"k": 5, "steps": 0}, "`steps` must be the number of optimizer steps, from 1 up; got 0"),
    ],
)
def test_bad_requests_leave_the_model_alone(given: dict[str, Any], message: str, fresh: Fresh) -> None:
    model = fresh("bert")
    with pytest.raises(ValueError, match=message):
        kheads.attach(model, **given)
    assert not any("kheads_gates" in name for name, _ in model.named_parameters())


def test_the_example_is_short_and_learns() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 45
    done = subprocess.run([sys.executable, str(EXAMPLE)], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("6 of 32 heads") and float(done.stdout.split()[-1].rstrip("%")) > 90
