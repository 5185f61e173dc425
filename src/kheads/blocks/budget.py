"""A budget: how much of a model may stay, in the user's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from kheads.blocks.fields import Count, Part, Range, check_fields

AMOUNTS = ("heads", "params", "flops", "speedup", "ms")
TIMES = ("speedup", "ms")  # what has to be measured on a device
AT = (8, 128)  # the batch whose time or work counts, where none is named


def read_batch(text: str, where: str = "at") -> tuple[int, int]:
    """Reads examples and tokens, written as in 8x128.

    Args:
        text: what was given.
        where: how the user named it, for the error.
    """
    numbers = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if numbers is None:
        raise ValueError(f"`{where}` must be BATCHxTOKENS, such as 8x128; got {text!r}.")
    return int(numbers[1]), int(numbers[2])


@dataclass(frozen=True)
class Budget:
    """How much of a model may stay. Exactly one amount is given; a number below 1 is a share of the whole model.

    Attributes:
        heads: This many heads, or this share of them; neurons all stay.
        params: This many parameters, or this share of the whole model's.
        flops: This many floating-point operations for a batch, or this share of the whole model's.
        speedup: This many times as fast as the whole model, on this device.
        ms: This many milliseconds for a batch, on this device.
        at: Examples and tokens of the batch that `flops`, `speedup` and `ms` are about; by default 8 x 128.
        threads: Threads of the CPU that `speedup` and `ms` are about; by default as many as torch uses.
    """

    heads: Count | Part | None = None
    params: Count | Part | None = None
    flops: Count | Part | None = None
    speedup: Annotated[float, Range(above=1)] | None = None
    ms: Annotated[float, Range(above=0)] | None = None
    at: Sequence[Count] | None = None
    threads: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        given = [name for name in AMOUNTS if getattr(self, name) is not None]
        if len(given) != 1:
            named = " and ".join(f"`{name}`" for name in given) or "none"
            raise ValueError(f"A budget must name one amount of {', '.join(AMOUNTS)}; got {named}.")
        if self.at is not None:
            if len(self.at) != 2:
                raise ValueError(f"`at` must be two numbers, examples and tokens, such as (8, 128); got {self.at!r}.")
            object.__setattr__(self, "at", (int(self.at[0]), int(self.at[1])))
            if self.currency in ("heads", "params"):
                raise ValueError(f"`at` is for `flops`, `speedup` and `ms`; `{self.name}` is the same for every batch.")
        if self.threads is not None and self.name not in TIMES:
            raise ValueError(f"`threads` is for `speedup` and `ms`; `{self.name}` does not depend on them.")

    @property
    def name(self) -> str:
        """The amount that was given."""
        return next(name for name in AMOUNTS if getattr(self, name) is not None)

    @property
    def amount(self) -> float:
        """How much was given."""
        return float(getattr(self, self.name))

    @property
    def currency(self) -> str:
        """What is counted: "heads", "params", "flops" or "ms"."""
        return "ms" if self.name in TIMES else self.name

    @property
    def batch(self) -> tuple[int, int]:
        """Examples and tokens of the batch."""
        return (int(self.at[0]), int(self.at[1])) if self.at is not None else AT

    def limit(self, whole: float) -> float:
        """The most that may stay, of a model that costs so much as a whole."""
        if self.name == "speedup":
            return whole / self.amount
        if isinstance(getattr(self, self.name), int) or self.name == "ms":
            return self.amount
        share = self.amount * whole
        return max(1.0, float(int(share + 1e-9))) if self.name == "heads" else share

    def __str__(self) -> str:
        """The amount in words."""
        value = getattr(self, self.name)
        if self.name == "speedup":
            return f"{value:g} times as fast"
        if self.name == "ms":
            return f"{value:g} ms"
        what = {"heads": "heads", "params": "parameters", "flops": "FLOPs"}[self.name]
        return f"{value:,} {what}" if isinstance(value, int) else f"{100 * value:g} % of the {what}"
