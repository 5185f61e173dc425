"""What to look at: budgets of parameters, FLOPs or speed, or numbers of heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from kheads.blocks.budget import Budget
from kheads.blocks.fields import OneOf, check_fields


@dataclass(frozen=True)
class Request:
    """What to look at.

    Attributes:
        budgets: What the budgets are of: params, flops or speedup.
        parts: What may go: heads, ffn or all; by default heads alone and, beside it, all.
        ks: Numbers of heads to keep, in any order, in place of such budgets; heads alone may go then.
        timed: Measure speed, too.
        at: Examples and tokens of the batch that speed and FLOPs are about; by default 8 of the usual length.
    """

    budgets: Annotated[str, OneOf(("params", "flops", "speedup"))] = "params"
    parts: Annotated[str, OneOf(("heads", "ffn", "all"))] | None = None
    ks: Sequence[int] = ()
    timed: bool = True
    at: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def budget(self, removed: float, batch: tuple[int, int]) -> Budget:
        """What is left when so much of the whole cost is removed."""
        if self.budgets == "params":
            return Budget(params=1 - removed)
        if self.budgets == "flops":
            return Budget(flops=1 - removed, at=batch)
        return Budget(speedup=max(1.01, math.floor(100 / (1 - removed) + 1e-9) / 100), at=batch)
