"""Random subsets of data: the same seed gives the same rows, and a larger subset holds the smaller one."""

from __future__ import annotations

import numpy as np


def draw(total: int, count: int | None, seed: int) -> np.ndarray:
    """Which of `total` rows to take, at most `count` of them, in their order; None takes all."""
    if count is None or count >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).permutation(total)[:count])


def check_limits(max_train: int | None, max_eval: int | None) -> None:
    """Raises if a limit is no count."""
    for name, limit in (("max_train", max_train), ("max_eval", max_eval)):
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ValueError(f"`{name}` must be an integer from 1 up, or None for all rows; got {limit!r}.")
