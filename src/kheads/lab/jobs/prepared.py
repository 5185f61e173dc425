"""A task and a model that fit each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kheads.storage import processors
from kheads.tasks.tokens import check_tokens, tokens_of
from kheads.training.trainer import GatedTrainer


@dataclass(frozen=True)
class Prepared:
    """A task and a model that fit each other: what `prune` needs of both.

    Attributes:
        model: the model to train and prune.
        processor: what turns raw inputs into model inputs; saved beside the model.
        train: training data.
        evals: evaluation sets by name.
        metric: the headline metric; higher is better unless `lower_is_better`.
        able: whether the model can do the task as it is: no part of it is new, and its outputs are the task's labels.
        labelled: whether the training data has labels; if not, the model is able, and its own answers have to do.
        trainer_options: passed to the trainer: data_collator, compute_metrics, ...
        arguments: TrainingArguments that are the task's and not the user's.
        arguments_class: the class of the training arguments; None for the trainer's plain one.
        trainer_class: `GatedTrainer` or a subclass.
        notes: what was done to the data, in sentences for the user.
        lower_is_better: whether a smaller metric is a better one.
        score: evaluates a model by other means than one forward pass per batch, such as beam search; its metrics by
            evaluation set are added to those of the trainer.
        token_columns: columns of the data that hold tokens, where there are any.
    """

    model: PreTrainedModel
    processor: Any
    train: Any
    evals: Mapping[str, Any]
    metric: str
    able: bool = False
    labelled: bool = True
    trainer_options: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    arguments_class: type | None = None
    trainer_class: Any = GatedTrainer
    notes: tuple[str, ...] = ()
    lower_is_better: bool = False
    score: Callable[[PreTrainedModel], dict[str, dict[str, Any]]] | None = None
    token_columns: tuple[str, ...] = ("input_ids", "labels")

    def __post_init__(self) -> None:
        """Text that the tokenizer cannot read, or reads for another model, is refused before anything is trained."""
        if not isinstance(self.processor, PreTrainedTokenizerBase):
            return
        most = processors.positions_of(self.model)
        for name, data in {"train": self.train, **self.evals}.items():
            longest = max(data["length"], default=0) if "length" in getattr(data, "column_names", ()) else 0
            if most is not None and longest > most:
                raise ValueError(
                    f"`max_length` must be at most {most}, the model's positions; the set {name!r} has a text of "
                    f"{longest} tokens."
                )
            for column in self.token_columns:
                ids = tokens_of(data, column)
                if ids is not None:
                    check_tokens(ids, self.processor, processors.embeddings_of(self.model), f"The set {name!r}")
