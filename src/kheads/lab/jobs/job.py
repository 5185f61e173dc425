"""A job: everything a user asks for in one run. The command line, sweeps and `--config` all end as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from kheads.blocks.budget import Budget, read_batch
from kheads.blocks.constraints import Constraints
from kheads.blocks.fields import Count, NotNegative, OneOf, Part, Positive, Range, Seed, Text, Whole, check_fields
from kheads.lab.jobs.catalogue import task_of
from kheads.lab.options import build
from kheads.methods.phases import Estimate, LearnGates, Outline, Phase, Repair, Train
from kheads.methods.registry import UNPRUNED, default, find

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
AMOUNTS = ("k", "speedup", "smaller", "flops", "max_ms")  # ways to say how much may stay
FOR_TIMES = ("at", "threads")  # what a budget of FLOPs or time refers to
OF_BUDGETS = ("parts", *FOR_TIMES)
# Fields of a job that cannot both be asked for.
OPPOSITES = (
    ("trained", "fresh"),
    *(("no_training", other) for other in ("fresh", "recover_steps", "distil", "baseline")),
)


@dataclass(frozen=True)
class Job:
    """One run of `prune` on a task.

    Attributes:
        model: A folder, a hub name, minilm (embedded), or a size of new translator: tiny, small, iwslt.
        k: Keep this many heads, or this share of them, by default all.
        speedup: Make it this many times as fast on this machine.
        smaller: Remove this share of the parameters.
        flops: Keep this share of the FLOPs of a batch, or this many.
        max_ms: Make a batch take at most this many milliseconds on this machine.
        at_most: Make it as small as it can be at most this many points worse; percent where lower is better.
        parts: What may go: heads, ffn (neurons) or all; by default heads with -k, and all with any other budget.
        at: The batch that speedup, flops and max_ms are about, as in 8x128, the default.
        threads: Threads of the CPU that speedup and max_ms are about; by default as many as torch uses.
        method: How to choose the heads: one of `kheads methods`, none, or yours as module:Class; by default dsp, and
            surgeon for a model that is trained already.
        method_options: Fields of the method that differ from its defaults.
        pipelined: Learn the gates with the model frozen; it is trained first.
        task: clm, mlm, embed, tags, qa, image, translation, made-nli or one of GLUE; labelled files if not given;
            `kheads tasks` lists them.
        data: What the task reads; `kheads tasks NAME` lists it.
        max_train: Use at most this many training rows.
        max_eval: Use at most this many evaluation rows; of each set.
        max_length: Cut texts to this many tokens; for clm and mlm, the tokens in a block, for qa, those in a window.
        epochs: Passes over the training data, by default 3; 1 for a trained model, 60 for a new translator.
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
        trained: The model is trained; found out from the checkpoint if not given.
        fresh: Train anew, even if the model can do the task.
        no_training: Choose, cut and repair; train nothing. The model must be trained; labels are not needed.
        baseline: Also train and report the unpruned model; for as many steps.
        gate_steps: Steps of the gates with pipelined; by default one epoch.
        repair: Refit what the cut has left, so that it follows the trained model; the paper does not.
        repair_examples: Training examples that the repair looks at, by default 512; or 32,768 tokens.
        recover_steps: Train on for this many steps; after methods that do not train after their cut.
        distil: Let the whole model teach the smaller; by default only where there are no labels.
        distil_weight: Share of the teacher in the loss.
        temperature: What teacher's and student's logits are divided by.
        distil_stream: What the hidden states after every layer weigh beside the teacher's answers; 0 leaves them alone.
        estimate_examples: Examples that one round of scoring looks at, by default 2,048; or 65,536 tokens; 0 is all.
        save_steps: Write a checkpoint every this many steps.
        logging_steps: Log loss and chosen heads every this many steps.
        eval_steps: Evaluate the chosen heads every this many steps; by default only at the end.
        constraints: What else the selection must satisfy: min_per_site, uniform, protected, quotas, multiple_of.
        unit: A head is a group or a query; matters where query heads share keys and values.
    """

    model: Text
    k: Count | Part | None = None
    method: Text | None = None
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
    fresh: bool = False
    no_training: bool = False
    baseline: bool = False
    gate_steps: Count | None = None
    repair: bool = True
    repair_examples: Count | None = None
    recover_steps: Whole = 0
    distil: bool = False
    distil_weight: Annotated[float, Range(above=0, most=1)] = 0.5
    temperature: Positive = 2.0
    distil_stream: NotNegative = 1.0
    estimate_examples: Whole | None = None
    save_steps: Count = 200
    logging_steps: Count = 50
    eval_steps: Count | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    unit: Annotated[str, OneOf(("group", "query"))] = "group"
    speedup: Annotated[float, Range(above=1)] | None = None
    smaller: Part | None = None
    flops: Count | Part | None = None
    max_ms: Positive | None = None
    at_most: NotNegative | None = None
    parts: Annotated[str, OneOf(("heads", "ffn", "all"))] | None = None
    at: Text | None = None
    threads: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        build(Constraints, self.constraints, "constraints")
        given = [name for name in (*AMOUNTS, "at_most") if getattr(self, name) is not None]
        if len(given) > 1:
            named = " and ".join(f"`{name}`" for name in given)
            raise ValueError(f"{named} each say how much may stay; give one of them.")
        if self.at_most is not None and self.threads is not None:
            raise ValueError("`threads` is for `speedup` and `max_ms`; leave it out.")
        for name in FOR_TIMES if self.k is not None else ():
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` is for budgets of FLOPs or time; `k` counts heads. Leave one of them out.")
        nothing = self.budget is None and self.at_most is None
        if nothing and (unused := [name for name in OF_BUDGETS if getattr(self, name) is not None]):
            raise ValueError(f"`{unused[0]}` belongs to a budget; give one, such as `speedup`, or leave it out.")
        if self.parts not in (None, "heads") and self.k is not None:
            raise ValueError("`k` counts heads and leaves neurons alone; leave out `parts`, or give another budget.")
        counted = "batch_size" not in task_of(self.task).unused
        if counted and self.batch_size % self.accumulate:
            raise ValueError(
                f"`accumulate` must divide the batch of {self.batch_size} into equal parts; got {self.accumulate}."
            )
        for one, other in OPPOSITES:
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"`{one}` and `{other}` contradict each other; give one of them.")

    @property
    def budget(self) -> int | Budget | None:
        """How much may stay: a number of heads, or a budget; None is everything."""
        batch = None if self.at is None else read_batch(self.at)
        if self.speedup is not None:
            return Budget(speedup=self.speedup, at=batch, threads=self.threads)
        if self.max_ms is not None:
            return Budget(ms=self.max_ms, at=batch, threads=self.threads)
        if self.flops is not None:
            return Budget(flops=self.flops, at=batch, threads=self.threads)
        if self.smaller is not None:
            return Budget(params=1 - self.smaller, at=batch, threads=self.threads)
        return Budget(heads=self.k, at=batch, threads=self.threads) if isinstance(self.k, float) else self.k

    @property
    def choosing_from(self) -> str:
        """Which parts of the model are chosen from: heads, ffn or all."""
        budget = self.budget
        return self.parts or ("all" if isinstance(budget, Budget) and budget.currency != "heads" else "heads")

    def counted(self, heads: int) -> Job:
        """The job once it is known how many heads there are: a share of them is a number then."""
        budget = self.budget
        if not isinstance(budget, Budget) or budget.currency != "heads":
            return self
        return replace(self, k=int(budget.limit(heads)))

    @property
    def method_name(self) -> str:
        """The method that was named, or the usual one for a model that is trained or not."""
        return self.method or default(self.trained and not self.pipelined)

    @property
    def outline(self) -> Outline:
        """What a method may know of the run."""
        return Outline(self.pipelined, self.trained, self.repair)

    def chosen(self) -> Method | None:
        """The method with its options; None for the unpruned baseline."""
        if self.method == UNPRUNED:
            return None
        cls = find(self.method_name)
        if self.budget is None:
            raise ValueError(
                f"The method {self.method_name} needs `k`, the number of heads to keep, or another budget, such as "
                "`speedup` or `smaller`."
            )
        return cls.configured(self.method_options, self.task, self.outline)

    def phases(self) -> tuple[Phase, ...]:
        """The parts of the run."""
        method = self.chosen()
        return (Train(),) if method is None else method.phases(self.outline)

    def settled(self, able: bool) -> Job:
        """The job once it is known whether its model can do the task: then it is taken as trained.

        Args:
            able: whether no part of the model is new, and its outputs are the task's.
        """
        if not able:
            wants = next((name for name in ("trained", "no_training") if getattr(self, name)), None)
            if wants is not None:
                raise ValueError(
                    f"`{wants}` needs a model that can do the task already; {self.model} has no trained head for it. "
                    f"Leave `{wants}` out, and it is trained."
                )
        trained = self.trained or (able and not self.fresh and self.method != UNPRUNED)
        found = replace(self, trained=trained, method=replace(self, trained=trained).method_name)
        if self.no_training and any(isinstance(phase, LearnGates) for phase in found.phases()):
            raise ValueError(f"`no_training` and {found.method} contradict each other: it learns by training.")
        return found

    def on_trained(self, model: str) -> Job:
        """The same job on a model that is trained already, without what only a new model needs."""
        data = {name: value for name, value in self.data.items() if name != "vocab_size"}
        return replace(self, model=model, trained=True, fresh=False, data=data)

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data, for its record."""
        return dataclasses.asdict(self)


DEFAULTS: dict[str, Any] = {
    item.name: item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
    for item in dataclasses.fields(Job)
    if item.name != "model"
}
# Fields that change nothing where the model is trained with all heads.
ONLY_PRUNING = (
    *("method_options", "constraints", "baseline", "gate_steps", "estimate_examples", "no_training"),
    *("repair", "repair_examples", "recover_steps", "distil", "distil_weight", "temperature", "distil_stream"),
)


def unread(job: Job) -> dict[str, str]:
    """The fields that this job never reads, with the reason in a few words."""
    method = job.chosen()
    if method is None:
        return dict.fromkeys(ONLY_PRUNING, "all heads stay")
    phases = job.phases()
    reasons: dict[str, str] = {}
    if not any(isinstance(phase, LearnGates) and phase.frozen for phase in phases):
        reasons["gate_steps"] = "no gates learn on a frozen model here"
    if not any(isinstance(phase, Estimate) for phase in phases):
        reasons["estimate_examples"] = f"{job.method_name} scores no examples"
    if not any(isinstance(phase, Repair) for phase in method.phases(replace(job.outline, repairs=True))):
        reasons["repair"] = f"{job.method_name} leaves nothing to repair when it trains the model itself"
    if "repair" in reasons or not job.repair:
        reasons["repair_examples"] = "nothing is repaired"
    if any(isinstance(phase, Train) for phase in phases[1:]):
        reasons["recover_steps"] = f"{job.method_name} trains after its cut itself, for `max_steps`"
    if not job.distil:
        reasons |= dict.fromkeys(("distil_weight", "temperature", "distil_stream"), "nobody teaches without `distil`")
    return reasons


def never_read(job: Job) -> dict[str, str]:
    """The same while it is not known whether the model is trained: what is read in neither case."""
    now = unread(job)
    if job.trained or job.fresh or job.method == UNPRUNED:
        return now
    either = unread(replace(job, trained=True))
    return {name: why for name, why in now.items() if name in either}


def refuse_unread(job: Job, reasons: Mapping[str, str]) -> None:
    """Raises, naming the first one, if a field was given that is never read."""
    for name, reason in reasons.items():
        if getattr(job, name) != DEFAULTS[name]:
            raise ValueError(f"`{name}` has no effect here: {reason}; leave it out.")
