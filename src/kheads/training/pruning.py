"""The whole flow on one page: train, learn or estimate scores, select K heads, remove the others, check, measure.

A method lists its phases, and `_Run` carries them out. Each phase that trains keeps its checkpoints in a folder of its
own, so a run that was cut off resumes where it was.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset
from transformers import PreTrainedModel, TrainerState, TrainingArguments

from kheads.anatomy import discover, unwrap
from kheads.blocks.constraints import Constraints
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site
from kheads.methods.base import Evidence, Goal, Learned, Method, as_steps
from kheads.methods.finite import check_told_apart, check_weights
from kheads.methods.phases import Cut, Estimate, LearnGates, Phase, Search, Train, starts_from_trained
from kheads.methods.registry import DEFAULT, as_method, key_of
from kheads.storage.fingerprints import of_model
from kheads.storage.model_folder import save
from kheads.surgery.gates import attach, detach, gated
from kheads.surgery.removal import ghosts, remove
from kheads.training.asked import CONTENT, deciding
from kheads.training.learned_gates import LearnedGates
from kheads.training.plan import Plan
from kheads.training.progress import progress
from kheads.training.recording import describe_method, describe_model
from kheads.training.result import PruneResult
from kheads.training.trainer import GatedTrainer, items_per_example

# Metrics of a model by evaluation set.
Score = Callable[[PreTrainedModel], dict[str, dict[str, Any]]]

UNNAMED = "trainer_output"  # what TrainingArguments calls its folder where the user does not
PLAN_FIELDS = {item.name for item in dataclasses.fields(Plan)}


def prune(
    model: PreTrainedModel,
    k: int | None,
    method: str | type[Method] | Method = DEFAULT,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    args: TrainingArguments | None = None,
    *,
    plan: Plan | None = None,
    constraints: Constraints | None = None,
    unit: str = "group",
    trainer_class: type[GatedTrainer] | Any = GatedTrainer,
    score: Score | None = None,
    **options: Any,
) -> PruneResult:
    """Trains a model, keeps exactly K of its heads and returns it, smaller, with what was measured.

    Args:
        model: a supported model; it is trained and pruned in place.
        k: how many heads to keep; None or all of them trains without gates (the unpruned baseline).
        method: how to choose: a key of `METHODS`, a class, or an instance with its hyperparameters. With `k` None it
            is not used.
        train_dataset: as for Trainer.
        eval_dataset: one data set, or several by name.
        args: TrainingArguments of the main training phase; its `output_dir` holds the checkpoints of all phases. A
            folder that is not named is temporary.
        plan: joint or pipelined, recovery, resuming; its fields may also be given as keyword arguments.
        constraints: further demands on the selection.
        unit: what counts as a head where query heads share keys and values.
        trainer_class: `GatedTrainer` or `GatedSeq2SeqTrainer`.
        score: further metrics of a model by evaluation set, such as BLEU of what it generates.
        **options: fields of `Plan`; anything else goes to the trainer: data_collator, compute_metrics,
            processing_class, callbacks, ...
    """
    plan = _planned(plan, {name: options.pop(name) for name in PLAN_FIELDS & options.keys()})
    _check_inputs(plan, constraints, train_dataset)
    with _in_folder(args) as named:
        check_weights(unwrap(model))
        run = _Run(unwrap(model), (train_dataset, eval_dataset), named, plan, trainer_class, score, options)
        sites = discover(run.model, unit)
        run.before = describe_model(run.model, sites)
        run.model_content = {"given": type(run.model).__name__, CONTENT: of_model(run.model)}
        if k is None and constraints is not None:
            raise ValueError("`constraints` are for a choice of heads; give `k` and a method, or leave them out.")
        if k is None:
            return run.unpruned(sites)
        goal = Goal(k, sites, constraints, unit)
        goal.kept(torch.zeros(goal.total))  # an impossible k or constraint is refused before hours of training
        if k == goal.total:
            return run.unpruned(sites)
        return run.pruned(as_method(method, frozen=plan.pipelined), goal)


def _planned(plan: Plan | None, fields: Mapping[str, Any]) -> Plan:
    if plan is not None and not isinstance(plan, Plan):
        raise TypeError(
            f"`plan` must be a kheads.Plan; got {type(plan).__name__}. Its fields can be given as they are: "
            "kheads.prune(..., trained=True)."
        )
    if plan is not None and fields:
        raise TypeError(f"`{min(fields)}` is a field of `plan`; give it there, or leave `plan` out.")
    return plan or Plan(**fields)


def _check_inputs(plan: Plan, constraints: Any, train_dataset: Any) -> None:
    if constraints is not None and not isinstance(constraints, Constraints):
        raise TypeError(f"`constraints` must be a kheads.Constraints; got {type(constraints).__name__}.")
    if train_dataset is None and not (plan.trained and plan.scores is not None):
        raise ValueError("`train_dataset` is missing; give the data to train on, or to score the heads with.")


@contextmanager
def _in_folder(args: TrainingArguments | None) -> Iterator[TrainingArguments]:
    """The training arguments, with a temporary folder where the user named none."""
    args = args or TrainingArguments(output_dir=UNNAMED, report_to="none", save_strategy="no")
    if args.output_dir not in (None, UNNAMED):
        yield args
        return
    with tempfile.TemporaryDirectory(prefix="kheads-", ignore_cleanup_errors=True) as folder:
        yield dataclasses.replace(args, output_dir=folder)


@dataclass
class _Run:
    """One run's state; each method named like a phase carries that phase out."""

    model: Any  # a PreTrainedModel
    data: tuple[Any, Any]
    args: TrainingArguments
    plan: Plan
    trainer_class: Any
    score: Score | None
    options: dict[str, Any]
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=lambda: {"seconds": {}, "remarks": []})
    before: dict[str, Any] = field(default_factory=dict)
    model_content: dict[str, str] = field(default_factory=dict)  # of the model that was given
    method: Any = None  # a Method; a search may put another one in its place
    goal: Any = None  # a Goal
    scores: Tensor = field(default_factory=lambda: torch.zeros(0))
    kept: Kept | None = None  # what stays, once the cut is made
    steps_done: int = 0  # of the training that the phases share

    def unpruned(self, sites: Sequence[Site]) -> PruneResult:
        """The baseline: train without gates, unless the model is trained already, and keep every head."""
        self.measure_first()
        if not self.plan.trained:
            self.train("train")
        self.metrics["pruned"] = self.evaluate()[0]
        return self.result(Kept.everything(sites))

    def pruned(self, method: Method, goal: Goal) -> PruneResult:
        """Carries out the phases of the method, and what the plan asks for beyond them."""
        if self.plan.pipelined and not method.pipelines:
            raise ValueError(
                f"`pipelined` is for methods that learn gates while the model is frozen; {key_of(method)} does not. "
                "Leave it out."
            )
        self.method, self.goal = method, goal
        phases = method.phases(self.plan.pipelined)
        self.report |= {"extra_gradients": 0.0, "trains_model": not starts_from_trained(phases)}
        self.measure_first()
        if self.plan.baseline and not starts_from_trained(phases):
            self.train_baseline()
        for phase in phases:
            self.carry_out(phase)
        if self.plan.recover_steps:
            self.train("recover", max_steps=self.plan.recover_steps)
            self.metrics["recovered"] = self.evaluate()[0]
        assert self.kept is not None, "a method has no Cut among its phases"
        return self.result(self.kept)

    def carry_out(self, phase: Phase) -> None:
        """Does one phase."""
        match phase:
            case Train():
                self.train_part(phase)
            case Search():
                self.search(phase)
            case LearnGates():
                self.learn_gates(phase)
            case Estimate():
                self.estimate()
            case Cut():
                self.cut()

    def measure_first(self) -> None:
        """The model as it was given, where it can do the task already.

        One that comes with its scores, because it learned along with them, is not the unpruned one.
        """
        learned_along = self.plan.scores is not None and self.report.get("trains_model", False)
        if (self.plan.measure_first or self.plan.trained) and not learned_along:
            self.metrics["unpruned"] = self.evaluate()[0]

    def train_baseline(self) -> None:
        """Trains a copy without gates for as many steps: what the pruned model is to be compared with."""
        original, self.model = self.model, copy.deepcopy(self.model)
        self.train("baseline")
        self.metrics["unpruned"] = self.evaluate()[0]
        self.model = original

    def train_part(self, phase: Train) -> None:
        """Trains the model with the heads it has; before the cut only if it was not trained before."""
        length = self._length(phase)
        if self.kept is None and self.plan.trained:
            self.metrics[phase.stage] = self.metrics.get("unpruned") or self.evaluate()[0]
            return
        self.train(phase.name, **length)
        if self.kept is not None:
            self.metrics["cut"] = self.metrics["pruned"]
        self.metrics[phase.stage] = self.evaluate()[0]

    def _length(self, phase: Train) -> dict[str, Any]:
        """How long a part of the training is, as training arguments have it; the last part takes what is left."""
        if phase.steps is None and not self.steps_done:
            return {}
        total_steps = self._total_steps()
        steps = total_steps - self.steps_done if phase.steps is None else max(1, as_steps(phase.steps, total_steps))
        self.steps_done += steps
        if phase.steps is not None and self.steps_done >= total_steps:
            raise ValueError(
                f"The training before the cut takes {self.steps_done} of {total_steps} steps and leaves none for after "
                f"it ({phase.steps} was asked for); make it shorter, or train longer."
            )
        when = "before" if self.kept is None else "after"
        self.report.setdefault("method", {})[f"steps_{when}_cut"] = steps
        return {"max_steps": steps}

    def learn_gates(self, phase: LearnGates) -> None:
        """Gates and model together, or the gates alone."""
        known = self.known_scores()
        if phase.frozen:
            self._count_gradients(None if known is not None else self._gate_steps() * self._batch())
        self.scores = self.train_gates(self.method, "gates") if known is None else known
        self.report["method"] = self.method.report(self.scores, self.goal)

    def estimate(self) -> None:
        """Scores the heads of the model as it is."""
        self._count_gradients(len(self._chosen()) * self.method.passes(self.goal.total, self.goal.k))
        known = self.known_scores()
        if known is not None:
            self.scores = known
            return
        begin = time.perf_counter()
        trainer = self.trainer("estimate")
        evidence = Evidence(lambda label: self.batches(trainer, label), _loss_of(trainer), self.args.seed)
        self.scores = self.method.estimate(self.model, self.goal, evidence)
        self.report["seconds"]["estimate"] = time.perf_counter() - begin

    def search(self, phase: Search) -> None:
        """Lets the method look for a setting by short runs on copies of the model."""
        original, steps = self.model, max(1, as_steps(phase.steps, self._gate_steps()))
        tried: list[Tensor] = []

        def attempt(variant: Learned) -> Tensor:
            self.model = copy.deepcopy(original)
            tried.append(self.train_gates(variant, f"search-{len(tried)}", max_steps=steps, eval_strategy="no"))
            return tried[-1]

        self.method, self.report["search"] = self.method.search_for(attempt, self.goal)
        self.model = original
        self._count_gradients(phase.runs * steps * self._batch())

    def cut(self) -> None:
        """Selects, removes, and checks that the removed model predicts what the masked model predicts."""
        check_weights(self.model)
        kept = self.goal.kept(self.scores)
        check_told_apart(self.scores)
        mask = kept.mask(self.goal.sites, device=self.model.device)
        with gated(self.model, mask, self.goal.unit):
            self.metrics["masked"], masked = self.evaluate()
        if self.plan.whole is not None and PartialState().is_main_process:
            save(self.model, self.plan.whole, tokenizer=self.options.get("processing_class"), overwrite=True)
        remove(self.model, kept, self.goal.unit)
        self.metrics["pruned"], pruned = self.evaluate()
        self.report["largest_difference"] = _check_equal(masked, pruned, self.model.dtype)
        self.report["ghosts"] = list(ghosts(self.model))
        self.kept = kept

    def known_scores(self) -> Tensor | None:
        """What was found before."""
        return None if self.plan.scores is None else torch.tensor(self.plan.scores, dtype=torch.float64)

    def result(self, kept: Kept) -> PruneResult:
        """Everything that was found out."""
        self.report["kept_by_kind"] = kept.by_kind(discover(self.model))
        return PruneResult(
            model=self.model.eval(),
            kept=kept,
            scores=self.scores,
            metrics=self.metrics,
            history=self.history,
            report=self.report,
            method=self.method,
            before=self.before,
            processor=self.options.get("processing_class"),
        )

    # ---------------------------------------------------------------------------------------------- trainer and data

    def trainer(self, phase: str, gates: LearnedGates | None = None, **changes: Any) -> Any:
        """A trainer for one phase, with its own folder."""
        folder = str(Path(str(self.args.output_dir)) / phase)
        args = dataclasses.replace(self.args, output_dir=folder, **changes)
        train, evaluation = self.data
        made = self.trainer_class(
            model=self.model,
            args=args,
            train_dataset=train,
            eval_dataset=evaluation,
            gates=gates,
            quiet=bool(changes),  # a part of a training may well be short
            **self.options,
        )
        made.asked = self.asked(args)
        return made

    def asked(self, args: TrainingArguments) -> dict[str, Any]:
        """What makes a training what it is; its checkpoints serve no other."""
        goal = None if self.goal is None else {name: getattr(self.goal, name) for name in ("k", "constraints", "unit")}
        return {
            **deciding(args),
            **(goal or {}),
            "method": describe_method(self.method),
            "model": self.model_content,
            "train_dataset": _size(self.data[0]),
        }

    def train(self, phase: str, gates: LearnedGates | None = None, **changes: Any) -> None:
        """One phase of training, from its newest checkpoint where the run goes on."""
        begin = time.perf_counter()
        trainer = self.trainer(phase, gates, **changes)
        trainer.train(resume_from_checkpoint=trainer.newest() if self.plan.resume else None)
        self.history[phase] = _entries(trainer.state)
        self.report["remarks"] += [] if trainer.quiet else trainer.remarks
        self.report["seconds"][phase] = time.perf_counter() - begin
        self.model = trainer.accelerator.unwrap_model(trainer.model)

    def train_gates(self, method: Learned, phase: str, **changes: Any) -> Tensor:
        """One phase with gates; returns their weights."""
        gates = LearnedGates(method, self.goal, self.args.seed)
        attach(self.model, gates, self.goal.unit)
        frozen = self._freeze() if self.plan.pipelined else []
        try:
            length = self._gate_phase_length() if self.plan.pipelined else {}
            self.train(phase, gates, **{**length, **changes})
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)
            detach(self.model)
        return gates.w.detach().cpu()

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
        self.report["remarks"] += [one for one in not_numbers(metrics) if one not in self.report["remarks"]]
        return metrics, {name: output.predictions for name, output in outputs.items()}

    def batches(self, trainer: Any, label: str) -> Iterator[dict[str, Any]]:
        """A pass over the examples to estimate from; the same on every process."""
        data, chosen = self.data[0], self._chosen()
        if "length" in getattr(data, "column_names", ()):  # similar lengths together: less padding, the same scores
            lengths = np.asarray(data["length"])
            chosen = chosen[np.argsort(lengths[chosen.numpy()], kind="stable")]
        data = trainer._remove_unused_columns(data, "estimation") if hasattr(data, "column_names") else data
        loader = DataLoader(
            Subset(data, chosen.tolist()),
            batch_size=trainer.args.per_device_train_batch_size,
            collate_fn=trainer.data_collator,
        )
        yield from progress(loader, label, quiet=trainer.args.disable_tqdm)

    def _chosen(self) -> Tensor:
        """The examples to estimate from."""
        size = len(self.data[0]) if self.data[0] is not None else 0
        count = min(self.plan.estimate_examples or size, size)
        return torch.randperm(size, generator=torch.Generator().manual_seed(self.args.seed))[:count]

    def _freeze(self) -> list[nn.Parameter]:
        own = {id(parameter) for name, parameter in self.model.named_parameters() if name.startswith("kheads_gates")}
        frozen = [p for p in self.model.parameters() if p.requires_grad and id(p) not in own]
        for parameter in frozen:
            parameter.requires_grad_(False)
        return frozen

    def _count_gradients(self, examples: float | None) -> None:
        """Adds examples whose gradient serves the choice alone; None where that is not known."""
        before = self.report["extra_gradients"]
        self.report["extra_gradients"] = None if before is None or examples is None else before + examples

    def _batch(self) -> int:
        return int(self.args.train_batch_size * self.args.gradient_accumulation_steps)

    def _gate_steps(self) -> int:
        """How long the gates learn: with the model, or on the frozen one for one epoch or the steps given."""
        if not self.plan.pipelined:
            return self._total_steps()
        return self.plan.gate_steps or len(self.data[0]) // self._batch()

    def _gate_phase_length(self) -> dict[str, Any]:
        if self.plan.gate_steps is not None:
            return {"max_steps": self.plan.gate_steps}
        return {"max_steps": -1, "num_train_epochs": 1}

    def _total_steps(self) -> int:
        if self.args.max_steps > 0:
            return int(self.args.max_steps)
        batches = len(self.trainer("length").get_train_dataloader())
        per_epoch = math.ceil(batches / self.args.gradient_accumulation_steps)
        return max(1, math.ceil(per_epoch * self.args.num_train_epochs))


def _size(data: Any) -> str | None:
    """How many examples there are, if they can be counted."""
    return f"{len(data)} examples" if hasattr(data, "__len__") else None


def _entries(state: TrainerState) -> list[dict[str, Any]]:
    """The log of a training, and where it ended.

    Trainer's own last entry is left out: how long it took, and a mean loss that counts only the last attempt.
    """
    log: list[dict[str, Any]] = [entry for entry in state.log_history if "train_runtime" not in entry]
    return [*log, {"step": state.global_step}]


def _loss_of(trainer: Any) -> Any:
    def loss(model: nn.Module, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        inputs = trainer._prepare_inputs(dict(batch))
        counts = items_per_example(inputs, trainer._shifts_labels)
        return trainer.compute_loss(model, inputs), counts

    return loss


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


def _check_equal(masked: Mapping[str, Any], pruned: Mapping[str, Any], dtype: torch.dtype) -> float:
    """The largest difference of predictions before and after removal; raises where it is more than rounding."""
    largest = 0.0
    tolerance = 1e-3 if dtype in (torch.float32, torch.float64) else 0.1
    for name, before in masked.items():
        for a, b in zip(_arrays(before), _arrays(pruned[name]), strict=True):
            difference = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0))
            largest = max(largest, difference)
            if difference > tolerance * max(1.0, float(np.abs(a).max(initial=0))):
                raise RuntimeError(
                    f"The pruned model's predictions on {name} differ from the masked model's by {difference:.1e}; "
                    "this is a bug in kheads or a model that computes differently at every call. Nothing was saved."
                )
    return largest


def _arrays(predictions: Any) -> Iterable[np.ndarray[Any, Any]]:
    if isinstance(predictions, (tuple, list)):
        return [array for part in predictions for array in _arrays(part)]
    return [np.asarray(predictions)]
