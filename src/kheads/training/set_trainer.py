"""A trainer whose metric is told which evaluation set it judges.

Trainer gives a metric the predictions and labels alone. That is too little where the answer to one example is put
together from several rows, as it is for long texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import SequentialSampler

from kheads.training.trainer import GatedTrainer


def check_order(labels: Any, expected: Any) -> None:
    """Raises if predictions are not those of the rows of the data, one by one."""
    if not np.array_equal(np.asarray(labels), np.asarray(expected)):
        raise RuntimeError("The predictions are not in the order of the evaluation data; this is a bug in kheads.")


class SetTrainer(GatedTrainer):
    """Trainer with gates; `compute_metrics` takes the predictions and, after them, the data set."""

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's."""
        with self._judging(test_dataset):
            return super().predict(test_dataset, *args, **kwargs)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's, which calls it again with each of several sets, or with its name."""
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(data, str):
            data = self.eval_dataset[data]  # type: ignore[index]  # Trainer takes a name only where there are several
        if isinstance(data, dict):
            return super().evaluate(eval_dataset, *args, **kwargs)
        with self._judging(data):
            return super().evaluate(eval_dataset, *args, **kwargs)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """Rows in their order; Trainer would group them by length, and nobody could tell which is which."""
        return SequentialSampler(eval_dataset)

    @contextmanager
    def _judging(self, data: Any) -> Iterator[None]:
        whole: Callable[..., Any] | None = self.compute_metrics
        self.compute_metrics = None if whole is None else partial(whole, data=data)
        try:
            yield
        finally:
            self.compute_metrics = whole
