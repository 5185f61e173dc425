"""Metrics of classification and scoring, as functions of guesses and truth, (N,) each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# What a headline metric is reported with.
METRICS: dict[str, tuple[str, ...]] = {
    "accuracy": ("accuracy",),
    "f1": ("f1", "accuracy"),
    "matthews": ("matthews",),
    "pearson": ("pearson", "spearman"),
}
REGRESSION = "pearson"
# Where nobody labels the evaluation data: the share of answers that are those of the whole model.
AGREEMENT = "agreement"


def accuracy(guesses: np.ndarray, truth: np.ndarray) -> float:
    """The share of right guesses."""
    return float((guesses == truth).mean())


def f1(guesses: np.ndarray, truth: np.ndarray) -> float:
    """F1 of the second label; 0 if it was neither there nor guessed."""
    both, either = int(((guesses == 1) & (truth == 1)).sum()), int((guesses == 1).sum() + (truth == 1).sum())
    return 2 * both / either if either else 0.0


def matthews(guesses: np.ndarray, truth: np.ndarray) -> float:
    """Matthews' correlation for any number of classes: that of the two indicator matrices; 0 if either is constant."""
    classes = np.union1d(guesses, truth)
    return _correlation(guesses[:, None] == classes, truth[:, None] == classes)


def pearson(guesses: np.ndarray, truth: np.ndarray) -> float:
    """Pearson's correlation; 0 if either is constant."""
    return _correlation(guesses[:, None], truth[:, None])


def spearman(guesses: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks."""
    return pearson(_ranks(guesses), _ranks(truth))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Covariance over deviations, summed over columns, (N, C) each; 0 if one of them is constant."""
    if (left == left[0]).all() or (right == right[0]).all():
        return 0.0
    left, right = left.astype(np.float64), right.astype(np.float64)
    left, right = left - left.mean(axis=0), right - right.mean(axis=0)
    return float((left * right).sum() / np.sqrt((left**2).sum() * (right**2).sum()))


FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    AGREEMENT: accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
