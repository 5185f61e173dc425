"""A method of your own: keep the heads whose output weights are largest. No data, no training, one file."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import kheads


@dataclass(frozen=True)
class Magnitude(kheads.Estimated):
    """Scores a head by the norm of the weights that carry its output into the model.

    Attributes:
        power: Which norm; 2 is the usual one.
    """

    idea: ClassVar[str] = "keep the heads with the largest output weights"
    reference: ClassVar[str] = "magnitude pruning, after Han et al. 2015"
    look: ClassVar[kheads.Look] = kheads.Look("Magnitude", marker="star", colour="#7570b3")

    power: float = 2.0

    def estimate(self, model: nn.Module, goal: kheads.Goal, evidence: kheads.Evidence) -> Tensor:
        """One number per head, in the order of the sites."""
        return torch.cat([self.norms(site.weight(model)) for site in goal.sites])

    def norms(self, weight: Tensor) -> Tensor:
        """Of a site's output weights, (outputs, heads, width): one for each head."""
        norms: Tensor = torch.linalg.vector_norm(weight.detach().double(), self.power, dim=(0, 2))
        return norms.cpu()
