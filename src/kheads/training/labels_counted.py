"""How much of a mean loss each example is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def items_per_example(batch: Any, shifted: bool = False) -> Tensor:
    """How many labels of each example count in a mean loss, (B,): tokens that are not -100, or one label."""
    labels: Tensor | None = batch.get("labels") if hasattr(batch, "get") else None
    if labels is None:
        size = next((len(value) for value in batch.values() if isinstance(value, Tensor) and value.dim()), 1)
        return torch.ones(size)
    if labels.is_floating_point() or labels.dim() < 2:
        return torch.ones(len(labels))
    labels = labels[..., 1:] if shifted else labels
    return (labels != -100).flatten(1).sum(1)
