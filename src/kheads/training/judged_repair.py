"""Whether a repair did any good to a model that has learned since the one that the repair follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from kheads.methods.base import LossFunction

WORSE = (
    "The repair was undone: the model learned along with the gates, and following the one before them made its loss "
    "larger."
)


class Before:
    """A model as it was before its repair.

    Args:
        model: not repaired yet.
        batches: on which its loss is compared.
        loss: the mean loss of a batch, and how many items of each example are in it.
    """

    def __init__(self, model: nn.Module, batches: Iterable[Mapping[str, Any]], loss: LossFunction):
        self.model, self.batches, self.loss = model, list(batches), loss
        self.weights = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.lost = self._mean()

    def restored_if_better(self) -> bool:
        """Undoes the repair if the model was better without it."""
        if self._mean() <= self.lost:
            return False
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                value.copy_(self.weights[name])
        return True

    @torch.no_grad()
    def _mean(self) -> float:
        self.model.eval()
        lost, items = 0.0, 0.0
        for batch in self.batches:
            mean, counts = self.loss(self.model, batch)
            lost, items = lost + float(mean) * float(counts.sum()), items + float(counts.sum())
        return lost / max(items, 1.0)
