"""Built once, copied for every test: making a model takes longer than copying it."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from kheads.anatomy import MIXTURES
from zoo import ZOO


@cache
def built(name: str) -> Any:
    """The tiny model of that name, for reading only."""
    return ZOO[name].build()


def parts(name: str) -> str:
    """All that can be cut: heads alone where the feed-forwards are mixtures of experts."""
    return "heads" if name.partition(":")[0] in MIXTURES else "all"


def build(name: str) -> Any:
    """An untouched copy of the tiny model."""
    return copy.deepcopy(built(name))
