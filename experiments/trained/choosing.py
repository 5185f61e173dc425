"""Two other ways to learn which heads stay, to compare with joint DSP; `choosing.sh` runs them.

With this folder on PYTHONPATH: `--method choosing:Simple`, or `--method choosing:FromScores --set scores_of=RESULT`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from kheads.blocks.fields import Text
from kheads.methods.base import Goal, Moment
from kheads.methods.dsp import DSP
from kheads.methods.look import Look


@dataclass(frozen=True)
class FromScores(DSP):
    """Joint DSP whose weights start at the scores of another method: their logarithms, as spread out as random ones.

    Attributes:
        scores_of: The result.json with the scores.
    """

    idea: ClassVar[str] = "joint DSP that starts from gradients"
    look: ClassVar[Look] = Look("DSP from gradients", slot=1)

    scores_of: Text = "result.json"

    def initial(self, size: int, seed: int) -> Tensor:
        """Zero mean, and the standard deviation of U(-0.5, 0.5)."""
        scores = torch.tensor(json.loads(Path(self.scores_of).read_text())["scores"], dtype=torch.float64)
        logs = scores.clamp(min=1e-12).log()
        return (logs - logs.mean()) / logs.std() * 12**-0.5


@dataclass(frozen=True)
class Simple(DSP):
    """Exact k-subset gradients (Ahmed et al., 2023, SIMPLE): hard subsets forward, exact marginals backward.

    The budget, its warm-up and its fall are DSP's; a subset of that size is drawn with probability proportional to the
    product of exp(w) of its heads.
    """

    idea: ClassVar[str] = "hard subsets, with the gradient of their exact marginals"
    look: ClassVar[Look] = Look("SIMPLE", slot=2)

    def gates(self, w: Tensor, goal: Goal, moment: Moment) -> Tensor:
        """A drawn subset, whose gradient is that of the marginals."""
        budget = round(self.budget(goal, moment))
        if budget == goal.total:
            return torch.ones_like(w)
        if self.budget_cooldown and self.budget(goal, moment) == goal.k:
            return goal.mask(w)
        chances = open_chances(w, budget)
        marginals = exact_marginals(chances, budget)
        drawn = draw(chances.detach(), budget, moment.generator())
        return drawn + marginals - marginals.detach()


def open_chances(w: Tensor, k: int) -> Tensor:
    """Chances of independent heads that sum to k; given that k are open, the constant in them does not matter."""
    fixed = w.detach()
    low, high = float(fixed.min()) - 40, float(fixed.max()) + 40
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if float(torch.sigmoid(fixed - middle).sum()) > k else (low, middle)
    return torch.sigmoid(w - middle)


def counts(chances: Tensor, k: int) -> list[Tensor]:
    """Chances that 0 to k of the first i heads are open, for every i."""
    now = torch.zeros(k + 1, dtype=chances.dtype)
    now[0] = 1
    found = [now]
    for chance in chances:
        now = now * (1 - chance) + torch.cat((now.new_zeros(1), now[:-1])) * chance
        found.append(now)
    return found


def exact_marginals(chances: Tensor, k: int) -> Tensor:
    """The chance of each head to be open, given that k are: chance_i P(k - 1 of the others) / P(k of all)."""
    before = counts(chances, k)
    after = counts(chances.flip(0), k)[::-1]  # after[i]: of the heads from i on
    others = [(before[i][:k] * after[i + 1][:k].flip(0)).sum() for i in range(len(chances))]
    return chances * torch.stack(others) / before[-1][k]


def draw(chances: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """A subset of k heads, drawn exactly, from the last head to the first."""
    ways, left = counts(chances, k), k
    drawn = torch.zeros_like(chances)
    numbers = torch.rand(len(chances), generator=generator, dtype=torch.float64)
    for i in range(len(chances) - 1, -1, -1):
        if left and float(numbers[i]) < float(chances[i] * ways[i][left - 1] / ways[i + 1][left]):
            drawn[i], left = 1, left - 1
    return drawn
