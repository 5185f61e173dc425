"""Gates in a training loop of one's own; everything else of the loop stays as it was.

pruner = kheads.attach(model, method="dsp", k=12, steps=1000)
optimizer = torch.optim.AdamW([{"params": weights, "lr": 5e-5}, pruner.param_group()])
for batch in batches:
(model(**batch).loss + pruner.penalty()).backward()
pruner.step()
optimizer.step(); optimizer.zero_grad()
kept = pruner.finish()
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from kheads.anatomy import unwrap
from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.kept import Kept
from kheads.methods.base import Method
from kheads.methods.finite import check_weights
from kheads.methods.phases import LearnGates, Outline
from kheads.methods.registry import DEFAULT, as_method, key_of
from kheads.surgery.gates import attach as attach_gates
from kheads.surgery.gates import detach
from kheads.surgery.removal import remove
from kheads.training.aim import aimed, check_asked
from kheads.training.learned_gates import LearnedGates, schedule


def attach(
    model: nn.Module,
    method: str | type[Method] | Method = DEFAULT,
    *,
    k: int | None = None,
    budget: Budget | None = None,
    steps: int,
    parts: str | None = None,
    constraints: Constraints | None = None,
    unit: str = "group",
    seed: int = 0,
) -> Pruner:
    """Puts gates that learn on a model, for a training loop of your own.

    Args:
        model: a supported model. If none of its parameters trains, the gates learn alone (pipelined).
        method: a method that learns: its key, its class, or an instance with its hyperparameters.
        k: how many heads to keep.
        budget: how much may stay, instead of `k`.
        steps: how many optimizer steps the loop has; schedules follow it.
        parts: what may go: "heads", "ffn" or "all"; by default heads with `k`, and all with any other budget.
        constraints: further demands on the selection.
        unit: what counts as a head where query heads share keys and values.
        seed: seed of the first weights and of the noise.
    """
    model = unwrap(model)
    check_weights(model)
    frozen = not any(parameter.requires_grad for parameter in model.parameters())
    chosen: Any = as_method(method, outline=Outline(frozen))
    if not any(isinstance(phase, LearnGates) for phase in chosen.phases(Outline(frozen))):
        raise ValueError(
            f"`attach` needs a method that learns gates; {key_of(chosen)} scores a trained model: use kheads.prune."
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"`steps` must be the number of optimizer steps, from 1 up; got {steps!r}.")
    asked = k if budget is None else budget
    if asked is None or (k is not None and budget is not None):
        raise TypeError("`attach` takes either `k` or `budget`, which say how much may stay; give one of them.")
    check_asked(budget, None)
    goal = aimed(model, asked, parts, constraints, unit)
    chosen.check(goal)
    return Pruner(model, LearnedGates(chosen, goal, seed), steps)


class Pruner:
    """The gates of a loop: what the optimizer and the loss need of them, and the end."""

    def __init__(self, model: nn.Module, gates: LearnedGates, steps: int):
        self.model, self.gates, self.steps, self.steps_done = model, gates, steps, 0
        self._group: dict[str, Any] = {"params": [gates.w], "lr": gates.method.gate_lr, "weight_decay": 0.0}
        attach_gates(model, gates, gates.goal.unit)
        gates.set_moment(0, steps)

    def param_group(self) -> dict[str, Any]:
        """The gates' own group for the optimizer: their learning rate, no weight decay."""
        return self._group

    def penalty(self) -> Tensor:
        """What to add to the loss; 0 where the method asks for nothing."""
        penalty = self.gates.penalty()
        return self.gates.w.new_zeros(()) if penalty is None else penalty

    def step(self) -> None:
        """Call it after backward and before the optimizer's step: clips the gates' gradient and moves time on."""
        self.gates.clip()
        method = self.gates.method
        self._group["lr"] = method.gate_lr * schedule(method.gate_lr_schedule, self.steps, self.steps_done)
        self.steps_done += 1
        self.gates.set_moment(self.steps_done, self.steps)

    @property
    def kept(self) -> Kept:
        """The heads of highest weight at this moment, K or what fits; what the model is evaluated with in eval mode."""
        return self.gates.kept()

    def finish(self) -> Kept:
        """Takes the gates off, removes the other heads from the model, and returns the heads that stay."""
        check_weights(self.model)
        kept = self.kept
        self.cancel()
        remove(self.model, kept, self.gates.goal.unit)
        return kept

    def cancel(self) -> None:
        """Takes the gates off and leaves the model as it is."""
        detach(self.model)
