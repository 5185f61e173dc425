"""How precisely the relaxed top-K is computed, and where numbers are too large, too small or too cold to go on.

Differs: it is float64 on the CPU, whatever the dtype and device of the logits. In float32 the gradient of eqs. 14-19 is
NaN at tau <= 0.01, and H numbers are copied faster than K kernels are launched.
"""

from math import inf

import torch
from torch import Tensor

COLDEST = 1e-50  # a lower temperature is taken as this one; 1/tau and its products then stay inside float64
FARTHEST = 1e100  # scaled logits and adjoints are clamped here, far outside anything that reaches a gate


def exact(values: Tensor) -> Tensor:
    """Returns the values as they are computed with."""
    return values.to("cpu", torch.float64)


def check_finite(*ends: float) -> None:
    """Refuses logits whose smallest or largest is not finite."""
    if not all(-inf < end < inf for end in ends):  # false for NaN too
        raise ValueError("`logits` must be finite; got NaN or infinity.")
