"""What the parts of a run work with: the model, its data, and a trainer for each part with a folder of its own."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, Subset
from transformers import PreTrainedModel, TrainerState, TrainingArguments

from kheads.methods.base import LossFunction
from kheads.training.asked import deciding
from kheads.training.batching import small_batches
from kheads.training.distillation import Teacher
from kheads.training.labels_counted import items_per_example
from kheads.training.learned_gates import LearnedGates
from kheads.training.memory import in_graph
from kheads.training.plan import Plan
from kheads.training.progress import progress, say

# Metrics of a model by evaluation set.
Score = Callable[[PreTrainedModel], dict[str, dict[str, Any]]]

FEWEST_EXAMPLES = 8  # a repair holds some of them back


@dataclass
class Bench:
    """The model of a run and what is done with it; every part of the run has a trainer and a folder of its own."""

    model: Any  # a PreTrainedModel
    data: tuple[Any, Any]
    args: TrainingArguments
    plan: Plan
    trainer_class: Any
    score: Score | None
    options: dict[str, Any]
    asked: dict[str, Any] = field(default_factory=dict)  # what the whole run is asked to do
    teacher: Teacher | None = None
    history: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def trainer(self, part: str, gates: LearnedGates | None = None, **changes: Any) -> Any:
        """A trainer for one part, with its own folder."""
        folder = str(Path(str(self.args.output_dir)) / part)
        args = dataclasses.replace(self.args, output_dir=folder, **changes)
        train, evaluation = self.data
        made = self.trainer_class(
            model=self.model,
            args=args,
            train_dataset=train,
            eval_dataset=evaluation,
            gates=gates,
            teacher=self.teacher,
            quiet=bool(changes),  # a part of a training may well be short
            **self.options,
        )
        # What makes a training what it is; its checkpoints serve no other.
        made.asked = {**deciding(args), **self.asked, "train_dataset": _size(train)}
        return made

    def train(self, part: str, gates: LearnedGates | None = None, **changes: Any) -> None:
        """One part of training, from its newest checkpoint where the run goes on."""
        begin = time.perf_counter()
        trainer = self.trainer(part, gates, **changes)
        trainer.train(resume_from_checkpoint=trainer.newest() if self.plan.resume else None)
        self.history[part] = _entries(trainer.state)
        self.remarks += [] if trainer.quiet else trainer.remarks
        self.seconds[part] = time.perf_counter() - begin
        self.model = _as_it_is(trainer.accelerator.unwrap_model(trainer.model))

    def evaluate(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Metrics and predictions by evaluation set; none without evaluation data."""
        if self.data[1] is None:
            return {}, {}
        named = self.data[1] if isinstance(self.data[1], Mapping) else {"eval": self.data[1]}
        trainer = self.trainer("evaluate", eval_strategy="no", load_best_model_at_end=False)
        outputs = {name: trainer.predict(data, metric_key_prefix=name) for name, data in named.items()}
        metrics = {name: named_metrics(output.metrics, name) for name, output in outputs.items()}
        for name, further in (self.score(self.model.eval()) if self.score else {}).items():
            metrics[name] |= further
        _as_it_is(self.model)
        self.remarks += [one for one in not_numbers(metrics) if one not in self.remarks]
        return metrics, {name: output.predictions for name, output in outputs.items()}

    @property
    def rounds(self) -> bool:
        """Whether evaluation multiplies numbers of 16 bits: the model's own, or by autocast."""
        return self.args.bf16 or self.args.fp16 or self.model.dtype not in (torch.float32, torch.float64)

    def tell(self, text: str) -> None:
        """Says what is being done, where people are looking."""
        if not self.args.disable_tqdm and PartialState().is_main_process:
            say(text)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Notes how long a part takes."""
        begin = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - begin

    # ------------------------------------------------------------------------------- examples that are only looked at

    @cached_property
    def labelled(self) -> bool:
        """Whether the training data has labels, or its collator makes them; or the trainer does without."""
        if not self.trainer_class.needs_labels or not hasattr(self.data[0], "__getitem__"):  # a stream, or none
            return True
        trainer, first = self.trainer("labels", disable_tqdm=True), self.data[0][0]
        if isinstance(first, Mapping) and {"label", "label_ids", *trainer.label_names} & first.keys():
            return True
        return any(name in batch for batch in self.batches(trainer, "", [0]) for name in trainer.label_names)

    def batches(self, trainer: Any, label: str, examples: Sequence[int]) -> Iterator[dict[str, Any]]:
        """A pass over some training examples in small batches of similar length; the same on every process."""
        data = self.data[0]
        order = small_batches(
            self._lengths(examples), len(examples), trainer.args.per_device_train_batch_size, in_graph(self.model)
        )
        if hasattr(data, "column_names"):
            data = trainer._remove_unused_columns(data, "estimation")
        loader: Any = DataLoader(Subset(data, examples), batch_sampler=_Listed(order), collate_fn=trainer.data_collator)
        yield from progress(loader, label, quiet=trainer.args.disable_tqdm)

    def examples(self, most: int | None, tokens: int | None = None) -> list[int]:
        """Training examples drawn by the seed: at most so many, None is all, and at most so many tokens."""
        size = len(self.data[0]) if self.data[0] is not None else 0
        drawn = torch.randperm(size, generator=torch.Generator().manual_seed(self.args.seed))[:most].tolist()
        lengths = self._lengths(drawn) if tokens is not None else None
        if lengths is None or tokens is None:
            return drawn
        within = int((np.cumsum(lengths) <= tokens).sum())
        return drawn[: max(FEWEST_EXAMPLES, within)]

    def loss(self, trainer: Any) -> LossFunction:
        """The mean loss of a batch and how many items of each example are in it; labels that are missing are drawn."""
        generator = torch.Generator().manual_seed(self.args.seed)

        def loss(model: nn.Module, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
            inputs = trainer._prepare_inputs(dict(batch))
            counts = items_per_example(inputs, trainer._shifts_labels)
            labelled = any(name in inputs for name in trainer.label_names)
            found = trainer.compute_loss(model, inputs) if labelled else trainer.drawn_loss(model, inputs, generator)
            return found, counts

        return loss

    def _lengths(self, examples: Sequence[int]) -> list[int] | None:
        """How many tokens some training examples have; None where they are not texts."""
        data = self.data[0]
        if "length" in getattr(data, "column_names", ()):  # a whole column is read faster than rows
            lengths = np.asarray(data["length"])
            return [int(lengths[index]) for index in examples]
        first = data[examples[0]] if examples else None  # the others may be images, which are slow to read
        if not isinstance(first, Mapping) or "input_ids" not in first:
            return None
        return [max(len(data[index]["input_ids"]), 1) for index in examples]

    # ---------------------------------------------------------------------------------------- how long

    def total_steps(self) -> int:
        """How many optimizer steps the training arguments ask for."""
        if self.args.max_steps > 0:
            return int(self.args.max_steps)
        batches = len(self.trainer("length").get_train_dataloader())
        per_epoch = math.ceil(batches / self.args.gradient_accumulation_steps)
        return max(1, math.ceil(per_epoch * self.args.num_train_epochs))

    @property
    def batch_size(self) -> int:
        """Examples per optimizer step, on one process."""
        return int(self.args.train_batch_size * self.args.gradient_accumulation_steps)


class _Listed(Sampler[list[int]]):
    """Batches that are known already."""

    def __init__(self, batches: list[list[int]]):
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


def _as_it_is(model: Any) -> Any:
    """The model without the autocast that accelerate leaves around its forward.

    Scores and repairs would be rounded, and the model that is returned would compute other numbers than the saved one.
    """
    before = vars(model).pop("_original_forward", None)
    if before is not None:
        vars(model).pop("forward", None)
    if before is not None and before != model.forward:  # it had a forward of its own
        model.forward = before
    return model


def _size(data: Any) -> str | None:
    """How many examples there are, if they can be counted."""
    return f"{len(data)} examples" if hasattr(data, "__len__") else None


def _entries(state: TrainerState) -> list[dict[str, Any]]:
    """The log of a training, and where it ended.

    Trainer's own last entry is left out: how long it took, and a mean loss that counts only the last attempt.
    """
    log: list[dict[str, Any]] = [entry for entry in state.log_history if "train_runtime" not in entry]
    return [*log, {"step": state.global_step}]


def named_metrics(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The trainer's metrics without their prefix, and without how long it took."""
    speed = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
    plain = {key.removeprefix(f"{prefix}_"): value for key, value in metrics.items()}
    return {key: value for key, value in plain.items() if key not in speed}


def not_numbers(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence on each metric that is no number; it is null in JSON."""
    return [
        f"The {key} on {name} is not a number ({value}): the model's outputs are not finite."
        for name, found in metrics.items()
        for key, value in found.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]
