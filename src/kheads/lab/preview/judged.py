"""Quality beside the unpruned model, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kheads.lab.jobs.prepared import Prepared
from kheads.lab.report.style import scale
from kheads.lab.terminal import metric as written

Metrics = Mapping[str, Mapping[str, Any]]  # by evaluation set


@dataclass(frozen=True)
class Judged:
    """By what models are judged: the headline metric on the first evaluation set, beside the unpruned model.

    Attributes:
        metric: the headline metric.
        lower_is_better: whether a smaller metric is a better one.
        evaluation: the first evaluation set, on which that metric counts.
        examples: how many are in that set.
        unpruned: metrics of the model as it was given.
    """

    metric: str
    lower_is_better: bool
    evaluation: str
    examples: int
    unpruned: Metrics

    def quality(self, metrics: Metrics) -> float:
        """The headline metric."""
        return float(metrics[self.evaluation][self.metric])

    def loss(self, metrics: Metrics) -> float:
        """How much worse a model is than the unpruned one: in points, or in percent where lower is better."""
        whole, found = self.quality(self.unpruned), self.quality(metrics)
        return 100 * (found / whole - 1) if self.lower_is_better else scale(self.metric) * (whole - found)


def judged_by(prepared: Prepared, unpruned: Metrics) -> dict[str, Any]:
    """The fields of `Judged`, for this data and model."""
    evaluation, rows = next(iter(prepared.evals.items()))
    return {
        "metric": prepared.metric,
        "lower_is_better": prepared.lower_is_better,
        "evaluation": evaluation,
        "examples": len(rows),
        "unpruned": unpruned,
    }


def quality_of(judged: Judged) -> str:
    """The metric, and what it was measured on."""
    return f"{judged.metric} on {judged.evaluation} ({judged.examples:,} examples)"


def value_told(judged: Judged, metrics: Metrics) -> str:
    """Such as: 88.2 %."""
    return written(judged.metric, judged.quality(metrics))


def points_told(judged: Judged, limit: float) -> str:
    """Such as: 1 point; 2 % where lower is better."""
    return f"{limit:g} %" if judged.lower_is_better else f"{limit:g} point{'s'[: limit != 1]}"


def below_told(judged: Judged, worse: float) -> str:
    """Such as: 0.80 points below."""
    words = ("% worse", "% better") if judged.lower_is_better else ("points below", "points above")
    return f"{abs(rounded(worse)):.2f} {words[rounded(worse) < 0]}"


def rounded(value: float) -> float:
    """To two digits."""
    return round(value, 2) + 0.0  # there is no -0.00
