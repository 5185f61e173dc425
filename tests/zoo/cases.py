"""Built once, copied for every test: making a model takes longer than copying it."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from zoo import ZOO


@cache
def built(name: str) -> Any:
    """The tiny model of that name, for reading only."""
    return ZOO[name].build()


def build(name: str) -> Any:
    """An untouched copy of the tiny model."""
    return copy.deepcopy(built(name))
