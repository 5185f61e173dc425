"""Training without dropout, for students that are to come as near as they can to one answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

NAMES = ("dropout", "attention_dropout", "hidden_dropout")  # under which modules keep a rate of their own


def without_dropout(model: nn.Module) -> None:
    """Switches dropout off; the config keeps its rates for whoever fine-tunes the model later."""
    for part, name, _ in _rates(model):
        setattr(part, name, 0.0)


@contextmanager
def dropout_off(model: nn.Module) -> Iterator[None]:
    """The same while the context is open."""
    before = _rates(model)
    without_dropout(model)
    try:
        yield
    finally:
        for part, name, rate in before:
            setattr(part, name, rate)


def _rates(model: nn.Module) -> list[tuple[nn.Module, str, float]]:
    """Every place that holds a rate of dropout, by name, and the rate."""
    found: list[tuple[nn.Module, str, float]] = []
    for part in model.modules():
        names = (*NAMES, "p") if isinstance(part, nn.Dropout) else NAMES
        found += [(part, name, rate) for name in names if isinstance(rate := getattr(part, name, None), float)]
    return found
