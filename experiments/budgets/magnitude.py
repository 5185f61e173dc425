"""The same share of every layer by the size of its weights: what a user would do without kheads.

kheads prune MODEL --method magnitude:Magnitude --uniform --no-repair --speedup 2 ... (with this folder in PYTHONPATH)
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import kheads


@dataclass(frozen=True)
class Magnitude(kheads.Retrain):
    """Scores a block by the norm of the weights that carry its output into the model, then cuts and trains on."""

    idea: ClassVar[str] = "keep the blocks with the largest output weights"
    reference: ClassVar[str] = "magnitude pruning, after Han et al. 2015"
    look: ClassVar[kheads.Look] = kheads.Look("Magnitude", marker="star", colour="#7570b3")

    def estimate(self, model: nn.Module, goal: kheads.Goal, evidence: kheads.Evidence) -> Tensor:
        """The norm of each block's output weights, in the order of the sites."""
        weights = [site.weight(model).detach().double().cpu() for site in goal.sites]
        return torch.cat([torch.linalg.vector_norm(weight, dim=(0, 2)) for weight in weights])
