"""A loss without labels: they are drawn from the model's own predictions.

The squared gradient of such a loss is the Fisher information: how much what the model says depends on a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

NEVER = -1e9  # the logit of what is no choice; with -inf, its gradient would be no number
SPANS = ("start_logits", "end_logits")


def drawn_loss(model: nn.Module, inputs: Mapping[str, Any], generator: torch.Generator) -> Tensor:
    """The mean loss of a batch against labels that the model itself would give, each as often as it believes in it.

    Scores are drawn around the model's own, with the variance that a squared error takes for granted. Where every token
    has a label, examples count the same, however many tokens they have. Where an example may have several labels, each
    is drawn by itself.

    Args:
        model: gives one row of logits for each example or each token, one score, or where an answer begins and ends.
        inputs: a batch without labels.
        generator: draws on the CPU, so that every device has the same labels.
    """
    outputs = model(**inputs)
    sides = [found for name in SPANS if isinstance(found := getattr(outputs, name, None), Tensor)]
    if len(sides) == len(SPANS):
        return torch.stack([_of_places(side, inputs, generator) for side in sides]).mean()
    logits = getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
        raise ValueError(
            f"The examples have no labels, and {type(model).__name__} does not give one row of logits for each of "
            "them or of their tokens, from which labels could be drawn; give examples with labels."
        )
    if logits.dim() == 3:
        return _of_tokens(logits, inputs, generator)
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if problem == "regression" or logits.shape[-1] == 1:
        noise = torch.randn(logits.shape, generator=generator).to(logits)
        return (logits - logits.detach() - noise).square().mean()
    if problem == "multi_label_classification":
        labels = torch.bernoulli(logits.detach().float().sigmoid().cpu(), generator=generator)
        return binary_cross_entropy_with_logits(logits.float(), labels.to(logits.device))
    return _of_classes(logits, generator).mean()


def _of_classes(logits: Tensor, generator: torch.Generator) -> Tensor:
    """The loss of each row of logits, (N, C) to (N,), against a class drawn from it."""
    chances = logits.detach().float().softmax(-1).cpu()
    labels = torch.multinomial(chances, 1, generator=generator).squeeze(-1)
    return cross_entropy(logits.float(), labels.to(logits.device), reduction="none")


def _of_tokens(logits: Tensor, inputs: Mapping[str, Any], generator: torch.Generator) -> Tensor:
    """The mean over examples of the mean over their tokens, (B, T, C) to one number; padding does not count."""
    mask = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
    if not isinstance(mask, Tensor) or mask.shape != logits.shape[:2]:
        mask = torch.ones(logits.shape[:2], device=logits.device)
    weights = mask / mask.sum(1, keepdim=True).clamp(min=1) / len(mask)
    counted = weights > 0
    return (_of_classes(logits[counted], generator) * weights[counted]).sum()


def _of_places(logits: Tensor, inputs: Mapping[str, Any], generator: torch.Generator) -> Tensor:
    """The mean loss against a token of each example, (B, T) to one number; padding is never drawn."""
    mask = inputs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == logits.shape:
        logits = logits.float().masked_fill(mask == 0, NEVER)
    return _of_classes(logits, generator).mean()
