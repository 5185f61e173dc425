"""Differentiable subset pruning: the paper's own method."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from kheads.blocks.fields import NotNegative, OneOf, Positive, Share, Steps
from kheads.methods.base import Goal, Learned, Moment, Options, Schedule, as_steps
from kheads.methods.look import Look
from kheads.methods.phases import GENTLE, Cut, LearnGates, Outline, Phase, Repair, Train
from kheads.subset import anneal, gumbel, soft_knapsack, soft_top_k

# The paper: tau cools down in 25,000 of about 36,800 steps (Table 2; 3 epochs of MNLI at batch 32).
PAPER_COOLDOWN = 0.68
SILENT = 1e-8  # a smaller gate is closed
# Measured in experiments/LOG.md: few heads need the longer training after the choice, many heads the longer way to it.
FEW = 0.06  # share of the heads below which few are kept
EARLY: Options = {"warmup": 0.2, "cooldown": 0.15, "budget_cooldown": 0.15, "noise_cooldown": 0.35}

PRESETS: Mapping[str, Options] = {
    "paper": {},
    # Measured in experiments/LOG.md: the model learns the task with all heads, then heads leave, then the rest adapts.
    "short": {
        "relaxation": "threshold",
        "tau_start": 1.0,
        "tau_end": 0.01,
        "gate_lr": 0.1,
        "warmup": 0.3,
        "cooldown": 0.35,
        "budget_cooldown": 0.35,
        "noise_cooldown": 0.65,
        "few": FEW,
    },
    # The same for a frozen model, which has nothing to learn before heads leave and cannot adapt afterwards.
    "frozen": {
        "relaxation": "threshold",
        "tau_start": 1.0,
        "tau_end": 0.01,
        "gate_lr": 0.1,
        "cooldown": 0.95,
        "budget_cooldown": 0.95,
        "noise_cooldown": 0.65,
    },
    # The same for a model that is trained already, in the part of the training that ends with its cut and repair.
    "trained": {
        "relaxation": "threshold",
        "tau_start": 1.0,
        "tau_end": 0.01,
        "gate_lr": 0.1,
        "warmup": 0.4,
        "cooldown": 0.55,
        "budget_cooldown": 0.55,
        "noise_cooldown": 1.0,
    },
    # The paper's for translation: tau cools down in 15,000 of about 66,000 steps, pipelined in 250 of about 1,100.
    "translation": {
        "tau_start": 0.1,
        "tau_end": 1e-8,
        "cooldown": 0.227,
        "gate_lr": 0.2,
        "gate_lr_schedule": "constant",
    },
}


@dataclass(frozen=True)
class DSP(Learned):
    """Learns a relaxed K-subset of the heads: Gumbel noise, soft top-K, temperature annealed to a hard choice.

    The fields' defaults are the paper's for BERT (Table 2). They assume tens of thousands of steps: with a few hundred,
    every gate stays at K/H until the subset is settled. The preset "short" is for those, "frozen" for the gates of a
    frozen model (pipelined), "trained" for a model that can do the task already; they are what `prune` and the command
    line take unless told otherwise.

    Differs: `budget_cooldown` lets the sum of the gates itself go from H to K, so that heads leave one by one from a
    model that works, and `warmup` trains with all heads open before that. Both are off in the paper. Constraints split
    the heads into pools, each with its own relaxed top-K, so that training ends with the subset that is kept.

    Attributes:
        relaxation: The soft top-K: "successive" (the paper's recursion) or "threshold" (bounded; needed where the
            budget is annealed).
        tau_start: Temperature at the start.
        tau_end: Temperature after the cooldown.
        cooldown: How long the temperature falls.
        annealed: Let the temperature fall; otherwise it stays at tau_start.
        gate_lr: Learning rate of the gates' weights.
        gate_lr_schedule: How that rate goes: "linear" or "constant".
        noise: Scale of the Gumbel noise.
        noise_cooldown: How long the noise takes to fade; 0 keeps it to the end.
        warmup: How long all heads stay open.
        budget_cooldown: How long the sum of the gates takes from all heads to K after the warm-up, by a cubic; 0 means
            it is K throughout. When it has arrived, the gates are the hard subset.
        few: Where a smaller share of the heads than this is kept, they are chosen early, by 35 % of the training; 0
            never does.
        choice: How much of the training the choice takes where the model is trained already; then it is cut, repaired,
            and trained on.
    """

    reference: ClassVar[str] = "Li, Cotterell and Sachan 2021, sections 3 and 4.3"
    idea: ClassVar[str] = "learn a relaxed K-subset, cooled down to a hard one"
    look: ClassVar[Look] = Look("Joint DSP", slot=0)
    presets: ClassVar[Mapping[str, Options]] = PRESETS
    for_task: ClassVar[Mapping[str, Options]] = {"translation": {"preset": "translation"}}

    relaxation: Annotated[str, OneOf(("successive", "threshold"))] = "successive"
    tau_start: Positive = 1000.0
    tau_end: Positive = 1e-8
    cooldown: Steps = PAPER_COOLDOWN
    annealed: bool = True
    gate_lr: Positive = 0.5
    gate_lr_schedule: Schedule = "linear"
    noise: NotNegative = 1.0
    noise_cooldown: Steps = 0
    warmup: Steps = 0
    budget_cooldown: Steps = 0
    few: Share = 0
    choice: Share = 0.65

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.budget_cooldown or self.few) and self.relaxation != "threshold":
            raise ValueError('`budget_cooldown` and `few` make k fractional, which needs relaxation="threshold".')

    @classmethod
    def usual_preset(cls, outline: Outline) -> str:
        """The better one wherever both were measured."""
        return "frozen" if outline.frozen else "trained" if outline.trained and outline.repairs else "short"

    @classmethod
    def look_in(cls, frozen: bool) -> Look:
        """The paper compares both, so each has a colour."""
        return Look("Pipelined DSP", slot=1, marker="diamond", dash="dashdot") if frozen else cls.look

    def phases(self, outline: Outline) -> tuple[Phase, ...]:
        """A trained model learns its gates for a part of the training; cut and repaired, it trains on with the rest."""
        if outline.frozen or not (outline.trained and outline.repairs):
            return super().phases(outline)
        return (LearnGates(steps=self.choice), Cut(), Repair(), Train(stage="pruned", name="adapt", rate=GENTLE))

    def check(self, goal: Goal) -> None:
        """The paper's recursion counts heads; where blocks have prices, the soft knapsack stands in for "threshold"."""
        if goal.costs is not None and self.relaxation != "threshold":
            raise ValueError(
                f'{goal.budget} needs relaxation="threshold", because the recursion of the paper counts heads; the '
                'preset "short" has it.'
            )

    def gates(self, w: Tensor, goal: Goal, moment: Moment) -> Tensor:
        """Eqs. 10-19: perturb the weights and relax the top-K, at the moment's temperature and budget.

        Differs: a gate below `SILENT` is 0. It is lost in the rounding of float32 anyway, and what it multiplies would
        sink into denormal numbers, with which a CPU takes up to fifty times as long for a training step.
        """
        paced = self.paced(goal)
        budget = paced.budget(goal, moment)
        if budget == goal.whole:
            return torch.ones_like(w)
        if paced.budget_cooldown and budget == goal.limit:
            return goal.mask(w)
        logits = w + paced._noise_scale(moment) * gumbel(len(w), moment.generator()).to(w.device)
        return torch.hardshrink(self._relaxed(logits, goal, budget, paced.temperature(moment)), SILENT)

    def paced(self, goal: Goal) -> DSP:
        """The method with the schedule that suits how many heads are kept."""
        early = goal.limit < self.few * goal.whole
        return dataclasses.replace(self, **EARLY) if early else self

    def _relaxed(self, logits: Tensor, goal: Goal, budget: float, tau: float) -> Tensor:
        """The soft top-K, of every pool where constraints split the heads; protected heads are open."""
        if goal.constraints is None:
            return self._relaxed_pool(logits, goal, None, budget, tau)
        gates = torch.ones_like(logits)
        to_go = (budget - goal.limit) / (goal.whole - goal.limit)  # of the way, which every pool goes in step
        for blocks, staying in goal.pools(logits):
            index = torch.tensor(blocks, device=logits.device)
            most = float(goal.prices[blocks].sum())
            within = staying + (most - staying) * to_go if to_go else staying
            if within < most:
                gates = gates.index_copy(0, index, self._relaxed_pool(logits[index], goal, blocks, within, tau))
        return gates

    def _relaxed_pool(self, logits: Tensor, goal: Goal, pool: list[int] | None, budget: float, tau: float) -> Tensor:
        """The soft top-K where blocks are counted, and the soft knapsack where they have prices."""
        if goal.costs is not None:
            prices = goal.prices if pool is None else goal.prices[pool]
            return soft_knapsack(logits, prices.to(logits), budget, tau)
        whole = budget == int(budget) and self.relaxation == "successive"
        return soft_top_k(logits, int(budget) if whole else budget, tau, self.relaxation)

    def temperature(self, moment: Moment) -> float:
        """Eq. 24, from the end of the warm-up on."""
        if not self.annealed:
            return self.tau_start
        waited = as_steps(self.warmup, moment.total)
        return anneal(max(moment.step - waited, 0), self.tau_start, self.tau_end, as_steps(self.cooldown, moment.total))

    def budget(self, goal: Goal, moment: Moment) -> float:
        """What the gates, times their prices, sum to: all during the warm-up, then a cubic down to K, or K at once."""
        waited = as_steps(self.warmup, moment.total)
        if moment.step < waited:
            return goal.whole
        length = as_steps(self.budget_cooldown, moment.total)
        if moment.step - waited >= length:
            return goal.limit
        left = 1 - (moment.step - waited) / length
        return goal.limit + (goal.whole - goal.limit) * left**3

    def status(self, goal: Goal, moment: Moment) -> dict[str, float]:
        """Temperature and budget."""
        paced = self.paced(goal)
        return {"temperature": paced.temperature(moment), "budget": float(paced.budget(goal, moment))}

    def _noise_scale(self, moment: Moment) -> float:
        return self.noise * (1 - moment.fraction(self.noise_cooldown) if self.noise_cooldown else 1)
