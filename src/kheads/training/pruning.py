"""The whole flow on one page: train, learn or estimate scores, select K heads, remove the others, check, measure.

Joint methods train the model and the gates together. With `freeze_model` the model is trained first (or was before),
then only the gates learn (the paper's pipelined pruning). Estimated methods score a trained model. Each phase keeps its
checkpoints in its own folder, so a run that was cut off resumes where it was.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset
from tqdm.auto import tqdm
from transformers import PreTrainedModel, TrainingArguments

from kheads.anatomy import discover, unwrap
from kheads.blocks.constraints import Constraints
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, total
from kheads.methods import DSP, Estimated, Goal, Learned, Method, Retrain, Voita, as_steps
from kheads.storage.model_folder import save
from kheads.surgery.gates import attach, detach, gated
from kheads.surgery.removal import ghosts, remove
from kheads.training.learned_gates import LearnedGates
from kheads.training.trainer import GatedTrainer, items_per_example, newest_checkpoint

# Metrics of a model by evaluation set.
Score = Callable[[PreTrainedModel], dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class PruneResult:
    """What `prune` returns.

    Attributes:
        model: the model with exactly K heads, in eval mode.
        kept: the heads that stay.
        scores: one per head, (H,); empty where nothing was chosen.
        metrics: by stage and evaluation set: `pruned`; `masked`, the same before removal; `unpruned`, the trained model
            before pruning (pipelined and estimated methods); `recovered`, after further training. Where the method
            itself trains on after its cut, `whole` and `cut` are right before and after that, and `pruned` is the end.
        history: the log of every phase, with the hard subset of every log step.
        report: what the method says of itself, ghosts, durations.
    """

    model: Any  # a PreTrainedModel, of the class that was given
    kept: Kept
    scores: Tensor
    metrics: dict[str, dict[str, Any]]
    history: dict[str, list[dict[str, Any]]]
    report: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How a run goes besides the method.

    Attributes:
        freeze_model: learn the gates of a trained model and leave its weights alone (pipelined).
        trained: the model is trained already; skip that phase.
        gate_steps: how long the gates of a frozen model learn; None is one epoch.
        recover_steps: train the pruned model further by that many steps.
        estimate_examples: how many training examples an estimated method looks at; None is all.
        resume: go on from the newest complete checkpoint of each phase.
        scores: what the method found before, one number per head, with the model that is given; None finds them.
        whole: a folder for the trained model as it is before heads are removed.
    """

    freeze_model: bool = False
    trained: bool = False
    gate_steps: int | None = None
    recover_steps: int = 0
    estimate_examples: int | None = None
    resume: bool = False
    scores: Sequence[float] | None = None
    whole: str | Path | None = None


def prune(
    model: PreTrainedModel,
    k: int | None,
    method: Method | None = None,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    args: TrainingArguments | None = None,
    *,
    plan: Plan | None = None,
    constraints: Constraints | None = None,
    unit: str = "group",
    trainer_class: type = GatedTrainer,
    score: Score | None = None,
    **trainer_options: Any,
) -> PruneResult:
    """Trains a model, keeps exactly K of its heads and returns it, smaller, with what was measured.

    Args:
        model: a supported model; it is trained and pruned in place.
        k: how many heads to keep; None or all of them trains without gates (the unpruned baseline).
        method: how to choose; DSP with its usual preset if not given. With `k` None it is not used.
        train_dataset: as for Trainer.
        eval_dataset: one data set, or several by name.
        args: TrainingArguments of the main training phase; its `output_dir` holds the checkpoints of all phases.
        plan: joint or pipelined, recovery, resuming.
        constraints: further demands on the selection.
        unit: what counts as a head where query heads share keys and values.
        trainer_class: `GatedTrainer` or `GatedSeq2SeqTrainer`.
        score: further metrics of a model by evaluation set, such as BLEU of what it generates.
        **trainer_options: passed to the trainer: data_collator, compute_metrics, processing_class, callbacks, ...
    """
    run = _Run(
        model=unwrap(model),
        data=(train_dataset, eval_dataset),
        args=args or TrainingArguments(output_dir="kheads-run"),
        plan=plan or Plan(),
        trainer_class=trainer_class,
        score=score,
        options=trainer_options,
    )
    sites = discover(run.model, unit)
    if k is None:
        if constraints is not None:
            raise ValueError("`constraints` are for a choice of heads; give `k` and a method, or leave them out.")
        return run.unpruned(sites)
    goal = Goal(k, sites, constraints, unit)
    goal.kept(torch.zeros(total(sites)))  # an impossible k or constraint is refused before hours of training
    if k == total(sites):
        return run.unpruned(sites)
    method = method or DSP.preset(DSP.usual_preset(run.plan.freeze_model))
    if isinstance(method, Retrain) and run.plan.freeze_model:
        raise ValueError(
            "`freeze_model` (--pipelined) leaves the weights alone, but `retrain` trains on after its cut; "
            "leave it out."
        )
    scores = run.learn(method, goal) if isinstance(method, Learned) else run.estimate(method, goal)
    return run.finish(scores, goal)


@dataclass
class _Run:
    """One run's state; each method is one phase."""

    model: PreTrainedModel
    data: tuple[Any, Any]
    args: TrainingArguments
    plan: Plan
    trainer_class: type
    score: Score | None
    options: dict[str, Any]
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=lambda: {"seconds": {}})
    retrain_steps: int = 0

    def unpruned(self, sites: Sequence[Site]) -> PruneResult:
        """The baseline: train without gates, unless the model is trained already, and keep every head."""
        if not self.plan.trained:
            self.train("train")
        self.metrics["pruned"] = self.evaluate()[0]
        return self.result(Kept.everything(sites), torch.zeros(0))

    def learn(self, method: Learned, goal: Goal) -> Tensor:
        """Joint: model and gates together. Pipelined: the model first, then the gates alone."""
        if self.plan.freeze_model:
            self.train_first()
        if isinstance(method, Voita) and method.search:
            method = self.search_weight(method, goal)
        scores = self.known_scores()
        if scores is None:
            scores = self.train_gates(method, goal, "gates")
        self.report |= {"method": method.report(scores, goal)}
        return scores

    def estimate(self, method: Method, goal: Goal) -> Tensor:
        """Scores the heads of the trained model."""
        if not isinstance(method, Estimated):
            raise TypeError(f"`method` must be a method of `kheads.METHODS`; got {type(method).__name__}.")
        if isinstance(method, Retrain):
            first, self.retrain_steps = method.parts(self._total_steps())
            self.report["method"] = {"steps_before_cut": first, "steps_after_cut": self.retrain_steps}
            self.train_first("whole", max_steps=first)
        else:
            self.train_first()
        scores = self.known_scores()
        if scores is not None:
            return scores
        begin = time.perf_counter()
        trainer = self.trainer("estimate")
        scores = method.estimate(self.model, goal, lambda: self.batches(trainer), _loss_of(trainer), self.args.seed)
        self.report["seconds"]["estimate"] = time.perf_counter() - begin
        return scores

    def known_scores(self) -> Tensor | None:
        """What was found before."""
        return None if self.plan.scores is None else torch.tensor(self.plan.scores, dtype=torch.float64)

    def train_first(self, stage: str = "unpruned", **changes: Any) -> None:
        """Trains the unpruned model unless it was trained before, and notes what it reaches."""
        if not self.plan.trained:
            self.train("train", **changes)
        self.metrics[stage] = self.evaluate()[0]

    def train(self, phase: str, **changes: Any) -> None:
        """One phase of plain training."""
        self._train(phase, self.trainer(phase, **changes))

    def train_gates(self, method: Learned, goal: Goal, phase: str, **changes: Any) -> Tensor:
        """One phase with gates; returns their weights."""
        gates = LearnedGates(method, goal, self.args.seed)
        attach(self.model, gates, goal.unit)
        frozen = self._freeze() if self.plan.freeze_model else []
        try:
            if self.plan.freeze_model:
                changes = self._gate_phase_length() | changes
            self._train(phase, self.trainer(phase, gates=gates, **changes))
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)
            detach(self.model)
        return gates.w.detach().cpu()

    def search_weight(self, method: Voita, goal: Goal) -> Voita:
        """Bisects lambda by short runs on copies, until its own number of heads comes nearest to K."""
        low, high, tried = method.weight / 30, method.weight * 30, []
        steps = max(1, as_steps(method.search_steps, self._gate_steps()))
        original = self.model
        for number in range(method.search):
            trial = dataclasses.replace(method, weight=(low * high) ** 0.5)
            self.model = copy.deepcopy(original)
            w = self.train_gates(trial, goal, f"search-{number}", max_steps=steps, eval_strategy="no")
            natural = trial.report(w, goal)["natural_heads"]
            tried.append({"lambda": trial.weight, "natural_heads": natural})
            low, high = (trial.weight, high) if natural > goal.k else (low, trial.weight)
        self.model = original
        best = min(tried, key=lambda entry: abs(entry["natural_heads"] - goal.k))
        self.report["lambda_search"] = tried
        return dataclasses.replace(method, weight=best["lambda"])

    def finish(self, scores: Tensor, goal: Goal) -> PruneResult:
        """Selects, removes, and checks that the removed model predicts what the masked model predicts."""
        kept = goal.kept(scores)
        mask = kept.mask(goal.sites, device=self.model.device)
        with gated(self.model, mask, goal.unit):
            self.metrics["masked"], masked = self.evaluate()
        if self.plan.whole is not None and PartialState().is_main_process:
            save(self.model, self.plan.whole, tokenizer=self.options.get("processing_class"), overwrite=True)
        remove(self.model, kept, goal.unit)
        self.metrics["pruned"], pruned = self.evaluate()
        self.report["largest_difference"] = _check_equal(masked, pruned, self.model.dtype)
        self.report["ghosts"] = list(ghosts(self.model))
        if self.retrain_steps:
            self.train("retrain", max_steps=self.retrain_steps)
            self.metrics["cut"], self.metrics["pruned"] = self.metrics["pruned"], self.evaluate()[0]
        if self.plan.recover_steps:
            self.train("recover", max_steps=self.plan.recover_steps)
            self.metrics["recovered"] = self.evaluate()[0]
        return self.result(kept, scores)

    def result(self, kept: Kept, scores: Tensor) -> PruneResult:
        """Everything that was found out."""
        self.report["kept_by_kind"] = kept.by_kind(discover(self.model))
        return PruneResult(self.model.eval(), kept, scores, self.metrics, self.history, self.report)

    # ---------------------------------------------------------------------------------------------- trainer and data

    def trainer(self, phase: str, gates: LearnedGates | None = None, **changes: Any) -> Any:
        """A trainer for one phase, with its own folder."""
        folder = str(Path(self.args.output_dir or "kheads-run") / phase)
        args = dataclasses.replace(self.args, output_dir=folder, **changes)
        train, evaluation = self.data
        return self.trainer_class(
            model=self.model, args=args, train_dataset=train, eval_dataset=evaluation, gates=gates, **self.options
        )

    def _train(self, phase: str, trainer: Any) -> None:
        begin = time.perf_counter()
        newest = newest_checkpoint(trainer.args.output_dir) if self.plan.resume else None
        trainer.train(resume_from_checkpoint=newest)
        self.history[phase] = trainer.state.log_history
        self.report["seconds"][phase] = time.perf_counter() - begin
        self.model = trainer.accelerator.unwrap_model(trainer.model)

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
        return metrics, {name: output.predictions for name, output in outputs.items()}

    def batches(self, trainer: Any) -> Iterator[dict[str, Any]]:
        """A pass over the examples to estimate from; the same on every process."""
        data = self.data[0]
        count = min(self.plan.estimate_examples or len(data), len(data))
        chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(self.args.seed))[:count]
        if "length" in getattr(data, "column_names", ()):  # similar lengths together: less padding, the same scores
            lengths = np.asarray(data["length"])
            chosen = chosen[np.argsort(lengths[chosen.numpy()], kind="stable")]
        data = trainer._remove_unused_columns(data, "estimation") if hasattr(data, "column_names") else data
        loader = DataLoader(
            Subset(data, chosen.tolist()),
            batch_size=trainer.args.per_device_train_batch_size,
            collate_fn=trainer.data_collator,
        )
        yield from tqdm(loader, desc="estimating", leave=False, disable=trainer.args.disable_tqdm)

    def _freeze(self) -> list[nn.Parameter]:
        own = {id(parameter) for name, parameter in self.model.named_parameters() if name.startswith("kheads_gates")}
        frozen = [p for p in self.model.parameters() if p.requires_grad and id(p) not in own]
        for parameter in frozen:
            parameter.requires_grad_(False)
        return frozen

    def _gate_steps(self) -> int:
        """How long the gates learn: with the model, or on the frozen one for one epoch or the steps given."""
        if not self.plan.freeze_model:
            return self._total_steps()
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return self.plan.gate_steps or len(self.data[0]) // batch

    def _gate_phase_length(self) -> dict[str, Any]:
        if self.plan.gate_steps is not None:
            return {"max_steps": self.plan.gate_steps}
        return {"max_steps": -1, "num_train_epochs": 1}

    def _total_steps(self) -> int:
        if self.args.max_steps > 0:
            return self.args.max_steps
        batches = len(self.trainer("length").get_train_dataloader())
        per_epoch = math.ceil(batches / self.args.gradient_accumulation_steps)
        return max(1, math.ceil(per_epoch * self.args.num_train_epochs))


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


def _arrays(predictions: Any) -> Iterable[np.ndarray]:
    if isinstance(predictions, (tuple, list)):
        return [array for part in predictions for array in _arrays(part)]
    return [np.asarray(predictions)]
