"""Numbers that are none: what a weight or a score that is not finite does is stopped where it begins, by name.

NaN has no order. A selection by it would keep heads by their position, and nothing would look wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

PIECE = 1 << 22  # values that are looked at at once


class NotFiniteError(ValueError):
    """A number that a choice of heads rests on is NaN or infinite, or says nothing."""


def check_weights(model: nn.Module) -> None:
    """Raises, naming the first one, if a weight of a model is not finite."""
    name = first_not_finite(model)
    if name is not None:
        raise NotFiniteError(
            f"The model's tensor {name} holds values that are not finite (NaN or infinite); give a model that is whole."
        )


def first_not_finite(model: nn.Module) -> str | None:
    """The first weight or buffer of a model with a value that is not finite; None if there is none.

    Attention masks may be buffers, and in them minus infinity has its place.
    """
    for name, tensor in model.named_parameters():
        if tensor.is_floating_point() and not _finite(tensor.detach()):
            return name
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and bool(torch.isnan(buffer).any()):
            return name
    return None


def _finite(tensor: Tensor) -> bool:
    """Whether all values are; piece by piece, as to ask it of a whole embedding takes several times its memory."""
    return all(bool(torch.isfinite(piece).all()) for piece in torch.split(tensor.flatten(), PIECE))


def check_gradient(gradient: Tensor, model: nn.Module, number: int) -> None:
    """Raises if the gradient that a batch gave is not finite.

    Args:
        gradient: of the gates.
        model: whose gates they are.
        number: which batch it was, from 1 up.
    """
    if not gradient.isfinite().all():
        weight = first_not_finite(model)
        why = f"the tensor {weight} is not finite" if weight else "the weights are finite, so look at these examples"
        raise NotFiniteError(f"Batch {number} of the examples that score the heads gives no number as gradient: {why}.")


def check_told_apart(scores: Tensor) -> None:
    """Raises if several heads all have the same score, so that nothing but their position would choose."""
    if len(scores) > 1 and bool((scores == scores[0]).all()):
        raise NotFiniteError(
            f"All {len(scores)} heads have the same score ({scores[0].item():g}), so nothing says which to keep; check "
            "that the loss depends on the heads and that the examples have labels, or take another method."
        )
