"""A job: everything a user asks for in one run. The command line, sweeps and `--config` all end as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from kheads.blocks.constraints import Constraints
from kheads.blocks.fields import Count, OneOf, Positive, Range, Seed, Text, Whole, check_fields
from kheads.lab.jobs.catalogue import task_of
from kheads.lab.options import build
from kheads.methods.phases import Estimate, LearnGates, Phase, Train
from kheads.methods.registry import DEFAULT, UNPRUNED, find

if TYPE_CHECKING:
    from kheads.methods.base import Method

# The schedules of transformers that need no settings of their own and let the gates have another one.
SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
)


@dataclass(frozen=True)
class Job:
    """One run of `prune` on a task.

    Attributes:
        model: A folder, a hub name, minilm (embedded), or a size of new translator: tiny, small, iwslt.
        k: Keep this many heads, by default all.
        method: How to choose the heads: one of `kheads methods`, none, or yours as module:Class.
        method_options: Fields of the method that differ from its defaults.
        pipelined: Learn the gates with the model frozen; it is trained first.
        task: clm, image, translation, made-nli or one of GLUE; labelled files if not given; `kheads tasks` lists
            them.
        data: What the task reads; `kheads tasks NAME` lists it.
        max_train: Use at most this many training rows.
        max_eval: Use at most this many evaluation rows; of each set.
        max_length: Cut texts to this many tokens; for clm, the tokens in a block.
        epochs: Passes over the training data, by default 3; 60 for a new translator.
        max_steps: Optimizer steps, instead of epochs; -1 goes by the epochs.
        batch_size: Examples per optimizer step.
        accumulate: Split each batch into this many parts, to save memory.
        lr: Learning rate, by default the task's; for texts with labels one that suits the model's width.
        lr_schedule: How that rate goes, in transformers' words; by default the task's.
        warmup_steps: Steps in which that rate rises; by default the task's.
        bf16: Train in bfloat16.
        gradient_checkpointing: Trade time for memory.
        report_to: A tracker, such as tensorboard or wandb.
        seed: Seed of everything random.
        trained: The model is trained already; it is not trained before heads are chosen.
        baseline: Also train and report the unpruned model; for as many steps.
        gate_steps: Steps of the gates with pipelined; by default one epoch.
        recover_steps: Train the pruned model this much further; optimizer steps.
        estimate_examples: Examples that one round of scoring looks at; by default all.
        save_steps: Write a checkpoint every this many steps.
        logging_steps: Log loss and chosen heads every this many steps.
        eval_steps: Evaluate the chosen heads every this many steps; by default only at the end.
        constraints: What else the selection must satisfy: min_per_site, uniform, protected, quotas.
        unit: A head is a group or a query; matters where query heads share keys and values.
    """

    model: Text
    k: Count | None = None
    method: Text = DEFAULT
    method_options: Mapping[str, Any] = field(default_factory=dict)
    pipelined: bool = False
    task: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    max_train: Count | None = None
    max_eval: Count | None = None
    max_length: Count = 128
    epochs: Positive | None = None
    max_steps: Annotated[int, Range(least=1, also=-1)] = -1
    batch_size: Count = 32
    accumulate: Count = 1
    lr: Positive | None = None
    lr_schedule: Annotated[str, OneOf(SCHEDULES)] | None = None
    warmup_steps: Whole | None = None
    bf16: bool = False
    gradient_checkpointing: bool = False
    report_to: Text = "none"
    seed: Seed = 0
    trained: bool = False
    baseline: bool = False
    gate_steps: Count | None = None
    recover_steps: Whole = 0
    estimate_examples: Count | None = None
    save_steps: Count = 200
    logging_steps: Count = 50
    eval_steps: Count | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    unit: Annotated[str, OneOf(("group", "query"))] = "group"

    def __post_init__(self) -> None:
        check_fields(self)
        build(Constraints, self.constraints, "constraints")
        counted = "batch_size" not in task_of(self.task).unused
        if counted and self.batch_size % self.accumulate:
            raise ValueError(
                f"`accumulate` must divide the batch of {self.batch_size} into equal parts; got {self.accumulate}."
            )

    def chosen(self) -> Method | None:
        """The method with its options; None for the unpruned baseline."""
        if self.method == UNPRUNED:
            return None
        cls = find(self.method)
        if self.k is None:
            raise ValueError(f"The method {self.method} needs `k`, the number of heads to keep.")
        return cls.configured(self.method_options, self.task, self.pipelined)

    def phases(self) -> tuple[Phase, ...]:
        """The parts of the run."""
        method = self.chosen()
        return (Train(),) if method is None else method.phases(self.pipelined)

    def on_trained(self, model: str) -> Job:
        """The same job on a model that is trained already, without what only a new model needs."""
        data = {name: value for name, value in self.data.items() if name != "vocab_size"}
        return dataclasses.replace(self, model=model, trained=True, data=data)

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data, for its record."""
        return dataclasses.asdict(self)


DEFAULTS: dict[str, Any] = {
    item.name: item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
    for item in dataclasses.fields(Job)
    if item.name != "model"
}
# Fields that change nothing where the model is trained with all heads.
ONLY_PRUNING = ("method_options", "gate_steps", "recover_steps", "estimate_examples", "constraints", "baseline")


def unread(job: Job) -> dict[str, str]:
    """The fields that this job never reads, with the reason in a few words."""
    if job.method == UNPRUNED:
        return dict.fromkeys(ONLY_PRUNING, "all heads stay")
    phases = job.phases()
    reasons: dict[str, str] = {}
    if not any(isinstance(phase, LearnGates) and phase.frozen for phase in phases):
        reasons["gate_steps"] = "no gates learn on a frozen model here"
    if not any(isinstance(phase, Estimate) for phase in phases):
        reasons["estimate_examples"] = f"{job.method} scores no examples"
    return reasons
