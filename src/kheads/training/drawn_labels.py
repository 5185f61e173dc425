"""A loss without labels: they are drawn from the model's own predictions.

The squared gradient of such a loss is the Fisher information: how much what the model says depends on a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def drawn_loss(model: nn.Module, inputs: Mapping[str, Any], generator: torch.Generator) -> Tensor:
    """The mean loss of a batch against labels that the model itself would give, each as often as it believes in it.

    Scores are drawn around the model's own, with the variance that a squared error takes for granted.

    Args:
        model: gives one row of logits for each example, or one score.
        inputs: a batch without labels.
        generator: draws on the CPU, so that every device has the same labels.
    """
    logits = getattr(model(**inputs), "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        raise ValueError(
            f"The examples have no labels, and {type(model).__name__} does not give one row of logits for each of "
            "them, from which labels could be drawn; give examples with labels."
        )
    if logits.shape[-1] == 1:
        noise = torch.randn(logits.shape, generator=generator).to(logits)
        return (logits - logits.detach() - noise).square().mean()
    chances = logits.detach().float().softmax(-1).cpu()
    labels = torch.multinomial(chances, 1, generator=generator).squeeze(-1)
    return cross_entropy(logits.float(), labels.to(logits.device))
