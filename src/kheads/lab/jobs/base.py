"""A job: everything a user asks for in one run, and a task made ready for it.

The command line and sweeps both end as a `Job`, so what one can ask the other can ask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel

from kheads.methods import DSP, METHODS, Method
from kheads.training.trainer import GatedTrainer

# Where a task needs other hyperparameters than a method's defaults; what a user gives comes first.
#
# Translation: the paper's (Table 2). Its code adds Voita's penalty to the loss summed over the target tokens of a
# batch, kheads to the mean loss of a token: a lambda of that code is divided by the target tokens of its batches, about
# 3,500 where 4,096 are allowed.
TASK_METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "translation": {
        "dsp": {"preset": "translation"},
        "ste": {"lr": 0.2, "lr_schedule": "constant"},
        "voita": {"weight": 0.01},
        "michel": {"per_round": 4},
    },
}


@dataclass(frozen=True)
class Job:
    """One run of `prune` on a task.

    Attributes:
        model: a folder, a hub name, "minilm", or a size of encoder-decoder to train from scratch ("tiny", "small",
            "iwslt").
        k: how many heads to keep; None keeps all.
        method: a key of `METHODS`, or "none" to train and keep every head.
        method_options: fields of the method that differ from its defaults; for dsp also `preset`.
        pipelined: train the model first, then learn the gates of the frozen model.
        task: a key of `TASKS`, a GLUE task, or None for labelled files.
        data: what the task reads: `train`, `eval`, `columns` and so on, as the task documents.
        max_train: use so many training rows, blocks or images.
        max_eval: use so many rows of each evaluation set.
        max_length: cut texts to so many tokens; for clm the tokens in a block.
        epochs: passes over the data; None takes the task's.
        max_steps: optimizer steps; overrides `epochs` where positive.
        batch_size: examples per optimizer step.
        accumulate: split each batch into so many parts.
        lr: learning rate of the model; None takes the task's.
        lr_schedule: how that rate goes, as transformers calls it; None takes the task's.
        warmup_steps: steps in which that rate rises; None takes the task's.
        bf16: train in bfloat16.
        gradient_checkpointing: trade time for memory.
        report_to: a tracker.
        seed: seed of everything random.
        trained: the model is trained already.
        gate_steps: steps of the gates when pipelined; None is one epoch.
        recover_steps: train the pruned model further.
        estimate_examples: examples that one round of an estimated method looks at; None is all.
        save_steps: a checkpoint every so many steps.
        logging_steps: a log entry, with the hard subset of the moment, every so many steps.
        eval_steps: evaluate the hard subset every so many steps, for the run's history; None waits for the end.
        constraints: what else the selection must satisfy: fields of `Constraints`.
        unit: what counts as a head where query heads share keys and values.
    """

    model: str
    k: int | None = None
    method: str = "dsp"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    pipelined: bool = False
    task: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    max_train: int | None = None
    max_eval: int | None = None
    max_length: int = 128
    epochs: float | None = None
    max_steps: int = -1
    batch_size: int = 32
    accumulate: int = 1
    lr: float | None = None
    lr_schedule: str | None = None
    warmup_steps: int | None = None
    bf16: bool = False
    gradient_checkpointing: bool = False
    report_to: str = "none"
    seed: int = 0
    trained: bool = False
    gate_steps: int | None = None
    recover_steps: int = 0
    estimate_examples: int | None = None
    save_steps: int = 200
    logging_steps: int = 50
    eval_steps: int | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "group"

    def chosen(self) -> Method | None:
        """The method with its options; None for the unpruned baseline."""
        if self.method == "none":
            return None
        if self.method not in METHODS:
            raise ValueError(f"`--method` must be one of {', '.join([*METHODS, 'none'])}; got {self.method!r}.")
        if self.k is None:
            raise ValueError(f"`--method {self.method}` needs -k, the number of heads to keep.")
        options = {**TASK_METHODS.get(self.task or "", {}).get(self.method, {}), **self.method_options}
        if self.method == "dsp":
            return DSP.preset(options.pop("preset", DSP.usual_preset(self.pipelined)), **options)
        return METHODS[self.method](**options)

    def on_trained(self, model: str) -> Job:
        """The same job on a model that is trained already, without what only a new model needs."""
        data = {name: value for name, value in self.data.items() if name != "vocab_size"}
        return dataclasses.replace(self, model=model, trained=True, data=data)

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data, for its record."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Prepared:
    """A task and a model that fit each other: what `prune` needs of both.

    Attributes:
        model: the model to train and prune.
        processor: what turns raw inputs into model inputs; saved beside the model.
        train: training data.
        evals: evaluation sets by name.
        metric: the headline metric; higher is better unless `lower_is_better`.
        trainer_options: passed to the trainer: data_collator, compute_metrics, ...
        arguments: TrainingArguments that are the task's and not the user's.
        arguments_class: the class of the training arguments; None for the trainer's plain one.
        trainer_class: `GatedTrainer` or a subclass.
        notes: what was done to the data, in sentences for the user.
        lower_is_better: whether a smaller metric is a better one.
        score: evaluates a model by other means than one forward pass per batch, such as beam search; its metrics by
            evaluation set are added to those of the trainer.
    """

    model: PreTrainedModel
    processor: Any
    train: Any
    evals: Mapping[str, Any]
    metric: str
    trainer_options: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    arguments_class: type | None = None
    trainer_class: type = GatedTrainer
    notes: tuple[str, ...] = ()
    lower_is_better: bool = False
    score: Callable[[PreTrainedModel], dict[str, dict[str, Any]]] | None = None
