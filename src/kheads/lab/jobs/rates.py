"""Learning rates where the user names none."""

from __future__ import annotations

from typing import Any

# Measured in experiments/learning_rate on the embedded model, 384 wide. By the square of the width, BERT-base gets
# 2.5e-5 and BERT-large 1.4e-5, within what their authors recommend.
WIDTH, RATE = 384, 1e-4
LEAST, MOST = 1e-5, 2e-4


def fine_tuning_rate(model: Any) -> float:
    """A rate at which an encoder learns from little data: the wider the model, the smaller."""
    width = getattr(model.config, "hidden_size", None) or WIDTH
    return float(min(max(RATE * (WIDTH / width) ** 2, LEAST), MOST))
