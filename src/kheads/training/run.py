"""One run: the parts that a method lists, carried out one by one on the bench. Each part has a method of its name."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor, nn

from kheads.anatomy import discover
from kheads.blocks.budget import TIMES, Budget
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site
from kheads.measuring.meeting import meet
from kheads.methods.base import Evidence, Goal, Learned, Method, as_steps
from kheads.methods.finite import check_told_apart, check_weights
from kheads.methods.phases import (
    Cut,
    Estimate,
    LearnGates,
    Phase,
    Repair,
    Search,
    Train,
    starts_from_trained,
    trains_first,
)
from kheads.methods.registry import key_of
from kheads.storage.mapped import MappedCopy
from kheads.storage.model_folder import save
from kheads.surgery.gates import attach, detach, gated
from kheads.surgery.removal import ghosts, remove
from kheads.surgery.repair.refit import repair
from kheads.training import chosen
from kheads.training.bench import Bench
from kheads.training.distillation import Distillation, Teacher
from kheads.training.judged_repair import WORSE, Before
from kheads.training.learned_gates import LearnedGates
from kheads.training.memory import original_of, waiting
from kheads.training.progress import progress
from kheads.training.recording import FURTHER, describe_method
from kheads.training.result import PruneResult

# How many examples are looked at unless the user says so, and how many tokens these may have in all: texts of language
# models are long. Measured in experiments/LOG.md; all examples of a repair wait at every site at once.
ESTIMATE = (2048, 65_536)
REPAIR = (512, 32_768)


@dataclass
class Run:
    """What a run has found out so far; each method named like a phase carries that phase out."""

    bench: Bench
    before: dict[str, Any]  # of the model that was given
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=lambda: {"extra_gradients": 0.0})
    method: Any = None  # a Method; a search may put another one in its place
    goal: Any = None  # a Goal
    scores: Tensor = field(default_factory=lambda: torch.zeros(0))
    learned_along: bool = False  # the model has, with the gates
    kept: Kept | None = None  # what stays, once the cut is made
    original: Any = None  # the trained model with all blocks, which a repair follows and which teaches
    on_disk: MappedCopy | None = None  # where its weights lie, if they are many
    steps_done: int = 0  # of the training that the phases share

    def unpruned(self, sites: Sequence[Site]) -> PruneResult:
        """The baseline: train without gates, unless the model is trained already, and keep every block."""
        _check_labels(self.bench)
        self.measure_first()
        if not self.bench.plan.trained:
            self.bench.train("train")
        self.metrics["pruned"] = self.bench.evaluate()[0]
        return self.result(Kept.everything(sites))

    def pruned(self, method: Method, goal: Goal) -> PruneResult:
        """Carries out the phases of the method, and what the plan asks for beyond them."""
        plan = self.bench.plan
        phases = method.phases(plan.outline)
        _check_phases(phases, method, self.bench)
        self.method, self.goal = method, goal
        budget = goal.budget
        if isinstance(budget, int):
            self.bench.asked |= {"k": budget}
        else:
            self.bench.asked |= {"budget": asdict(budget), "parts": goal.parts}
        self.bench.asked |= {"constraints": goal.constraints, "unit": goal.unit}
        self.bench.asked |= {"method": describe_method(method), "repair": plan.repair, "distil": _told(plan.distil)}
        self.report["trains_model"] = not starts_from_trained(phases)
        self.measure_first()
        if plan.baseline and (plan.trained or not starts_from_trained(phases)):
            self.train_baseline()
        if plan.trained and plan.scores is None:
            self.remember_original(phases)
        for phase in phases:
            self.carry_out(phase)
        self.recover()
        assert self.kept is not None, "a method has no Cut among its phases"
        return self.result(self.kept)

    def carry_out(self, phase: Phase) -> None:
        """Does one phase."""
        match phase:
            case Train():
                self.train(phase)
            case Search():
                self.search(phase)
            case LearnGates():
                self.learn_gates(phase)
            case Estimate():
                self.estimate()
            case Cut():
                self.cut()
            case Repair():
                self.repair()

    def measure_first(self) -> None:
        """The model as it was given, where it can do the task already.

        One that comes with its scores, because it learned along with them, is not the unpruned one.
        """
        plan = self.bench.plan
        learned_along = plan.scores is not None and self.report.get("trains_model", False)
        if (plan.measure_first or plan.trained) and not learned_along:
            self.metrics["unpruned"] = self.bench.evaluate()[0]

    def remember_original(self, phases: Sequence[Phase]) -> None:
        """Keeps a copy of the trained model with all blocks, if a later part needs it; it teaches from now on."""
        if self.original is not None:
            return
        plan, distillation = self.bench.plan, self._distillation()
        if plan.training and distillation is not None:
            self.bench.teacher = Teacher(self.bench.model, distillation)
            self.original = self.bench.teacher.model
        elif plan.repair and any(isinstance(phase, Repair) for phase in phases):
            folder = Path(str(self.bench.args.output_dir))
            self.original, self.on_disk = original_of(self.bench.model, folder)

    def _distillation(self) -> Distillation | None:
        """Where there are no labels, the teacher says everything."""
        if self.bench.plan.distil is not None or self.bench.labelled:
            return self.bench.plan.distil
        return Distillation(weight=1.0)

    def train_baseline(self) -> None:
        """Trains a copy with all blocks for as many steps: what the pruned model is to be compared with."""
        original, self.bench.model = self.bench.model, copy.deepcopy(self.bench.model)
        further: dict[str, Any] = {"max_steps": self.bench.plan.recover_steps} if self.bench.plan.recover_steps else {}
        self.bench.train("baseline", **(further if self.bench.plan.trained else {}))
        self.metrics[FURTHER if self.bench.plan.trained else "unpruned"] = self.bench.evaluate()[0]
        self.bench.model = original

    def train(self, phase: Train) -> None:
        """Trains the model with the blocks it has; before the cut only if it was not trained before."""
        changes = {**self._length(phase.steps), **self._rate(phase.rate)}
        if self.kept is None and self.bench.plan.trained:
            self.metrics[phase.stage] = self.metrics.get("unpruned") or self.bench.evaluate()[0]
            return
        if not self.bench.plan.training:
            return
        self.bench.train(phase.name, **changes)
        if self.kept is not None:
            self.metrics.setdefault("cut", self.metrics["pruned"])
        self.metrics[phase.stage] = self.bench.evaluate()[0]

    def _rate(self, rate: float) -> dict[str, Any]:
        """A learning rate after a repair, which a usual one would undo."""
        gentle = rate != 1.0 and "repaired" in self.metrics
        return {"learning_rate": self.bench.args.learning_rate * rate} if gentle else {}

    def _length(self, steps: Any) -> dict[str, Any]:
        """How long a part of the training is, as training arguments have it; the last part takes what is left."""
        if steps is None and not self.steps_done:
            return {}
        total = self.bench.total_steps()
        length = total - self.steps_done if steps is None else max(1, as_steps(steps, total))
        self.steps_done += length
        if steps is not None and self.steps_done >= total:
            raise ValueError(
                f"The training before the cut takes {self.steps_done} of {total} steps and leaves none for after "
                f"it ({steps} was asked for); make it shorter, or train longer."
            )
        when = "before" if self.kept is None else "after"
        self.report.setdefault("method", {})[f"steps_{when}_cut"] = length
        return {"max_steps": length}

    def learn_gates(self, phase: LearnGates) -> None:
        """Gates and model together, or the gates alone."""
        known = self.known_scores()
        if phase.frozen:
            self._count_gradients(None if known is not None else self._gate_steps() * self.bench.batch_size)
        length = {} if phase.frozen else self._length(phase.steps)
        self.learned_along = not phase.frozen
        self.scores = self.train_gates(self.method, "gates", **length) if known is None else known
        self.report["method"] = {**self.report.get("method", {}), **self.method.report(self.scores, self.goal)}

    def train_gates(self, method: Learned, part: str, **changes: Any) -> Tensor:
        """One training with gates; returns their weights."""
        model, pipelined = self.bench.model, self.bench.plan.pipelined
        gates = LearnedGates(method, self.goal, self.bench.args.seed)
        attach(model, gates, self.goal.unit)
        frozen = _freeze(model) if pipelined else []
        try:
            length = self._gate_phase_length() if pipelined else {}
            self.bench.train(part, gates, **{**length, **changes})
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)
            detach(self.bench.model)
        return gates.w.detach().cpu()

    def estimate(self) -> None:
        """Scores the blocks of the model as it is."""
        examples = self._examples(self.bench.plan.estimate_examples, *ESTIMATE)
        self._count_gradients(len(examples) * self.method.passes(self.goal))
        known = self.known_scores()
        if known is not None:
            self.scores = known
            return
        with self.bench.timed("estimate"):
            trainer = self.bench.trainer("estimate")
            evidence = Evidence(
                lambda label: self.bench.batches(trainer, label, examples),
                self.bench.loss(trainer),
                self.bench.args.seed,
            )
            self.scores = self.method.estimate(self.bench.model, self.goal, evidence)

    def search(self, phase: Search) -> None:
        """Lets the method look for a setting by short runs on copies of the model."""
        original, steps = self.bench.model, max(1, as_steps(phase.steps, self._gate_steps()))
        tried: list[Tensor] = []

        def attempt(variant: Learned) -> Tensor:
            self.bench.model = copy.deepcopy(original)
            tried.append(self.train_gates(variant, f"search-{len(tried)}", max_steps=steps, eval_strategy="no"))
            return tried[-1]

        self.method, self.report["search"] = self.method.search_for(attempt, self.goal)
        self.bench.model = original
        self._count_gradients(phase.runs * steps * self.bench.batch_size)

    def cut(self) -> None:
        """Selects, removes, and checks that the removed model predicts what the masked model predicts."""
        model, plan = self.bench.model, self.bench.plan
        check_weights(model)
        check_told_apart(self.scores)
        kept = self.choose()
        phases = self.method.phases(plan.outline)
        if trains_first(phases):
            self.remember_original(phases)
        mask = kept.mask(self.goal.sites, device=model.device)
        with gated(model, mask, self.goal.unit, self.goal.parts):
            self.metrics["masked"], masked = self.bench.evaluate()
        if plan.whole is not None and PartialState().is_main_process:
            self.save_whole(plan.whole)
        remove(model, kept, self.goal.unit)
        self.metrics["pruned"], pruned = self.bench.evaluate()
        self.report["largest_difference"] = _check_equal(masked, pruned, self.bench.rounds)
        self.report["ghosts"] = list(ghosts(model))
        self.kept = kept

    def save_whole(self, folder: str | Path) -> None:
        """Saves the model as it is before blocks are removed."""
        words, embedder = (self.bench.options.get(name) for name in ("processing_class", "embedder"))
        save(self.bench.model, folder, tokenizer=words, overwrite=True, embedder=embedder)

    def choose(self) -> Kept:
        """The blocks that stay; a budget is measured on a model of that size, and notes what was reached.

        A time is measured once: a run that goes on from checkpoints has to have the blocks that these were made with.
        """
        goal: Goal = self.goal
        if goal.costs is None or not isinstance(goal.budget, Budget):
            return goal.kept(self.scores)

        def within(budget: Budget) -> Kept:
            return replace(goal, budget=budget).kept(self.scores)

        folder, measured = Path(str(self.bench.args.output_dir)), goal.budget.name in TIMES
        found = chosen.read(folder, self.bench.asked) if measured and self.bench.plan.resume else None
        if found is None:
            with self.bench.timed("meet"):
                met = meet(self.bench.model, within, goal.budget, goal.costs, tell=self.bench.tell)
            found = chosen.Chosen(met.kept, met.to_dict())
            if measured:
                found.write(folder, self.bench.asked)
        self.report["budget"] = dict(found.budget)
        return found.kept

    def repair(self) -> None:
        """Lets what is left make up for what is gone."""
        plan = self.bench.plan
        if not plan.repair or self.original is None:
            return
        with self.bench.timed("repair"):
            trainer = self.bench.trainer("repair")
            usual, tokens = REPAIR
            examples = self._examples(plan.repair_examples, usual, waiting(self.original, tokens))
            batches = [trainer._prepare_inputs(batch) for batch in self.bench.batches(trainer, "reading", examples)]
            quiet = trainer.args.disable_tqdm
            learned = self.learned_along and self.bench.labelled
            before = Before(self.bench.model, batches, self.bench.loss(trainer)) if learned else None
            done = repair(
                self.bench.model,
                self.original,
                batches,
                progress=lambda sites: self._forgetting(progress(sites, "repairing", total=len(sites), quiet=quiet)),
            )
            undone = before is not None and before.restored_if_better()
        self.bench.remarks += [WORSE] if undone else done.remarks
        self.report["repair"] = {
            "tokens": done.tokens,
            "undone": undone,
            "sites": [asdict(site) for site in done.sites],
        }
        if undone:
            return
        self.metrics["cut"] = self.metrics["pruned"]
        self.metrics["repaired"] = self.metrics["pruned"] = self.bench.evaluate()[0]

    def _forgetting(self, sites: Iterable[str]) -> Iterator[str]:
        """Goes through the sites of a repair; weights of an original on disk leave the memory behind each."""
        for site in sites:
            yield site
            if self.on_disk is not None:
                self.on_disk.forget()

    def recover(self) -> None:
        """Trains the pruned model further, where the plan says so; gently if it was repaired."""
        plan = self.bench.plan
        if plan.recover_steps:
            self.bench.train("recover", max_steps=plan.recover_steps, **self._rate(plan.recover_rate))
            self.metrics["recovered"] = self.bench.evaluate()[0]

    def known_scores(self) -> Tensor | None:
        """What was found before."""
        scores = self.bench.plan.scores
        return None if scores is None else torch.tensor(scores, dtype=torch.float64)

    def result(self, kept: Kept) -> PruneResult:
        """Everything that was found out."""
        model, bench = self.bench.model, self.bench
        own = {"seconds": bench.seconds, "remarks": bench.remarks, "kept_by_kind": _heads_by_kind(model, kept)}
        return PruneResult(
            model=model.eval(),
            kept=kept,
            scores=self.scores,
            metrics=self.metrics,
            history=bench.history,
            report={**self.report, **own},
            method=self.method,
            before=self.before,
            processor=bench.options.get("processing_class"),
            embedder=bench.options.get("embedder"),
        )

    def _examples(self, asked: int | None, usual: int, tokens: int) -> list[int]:
        """As many training examples as were asked for, 0 being all; or as many as usual, with so many tokens."""
        return self.bench.examples(usual, tokens) if asked is None else self.bench.examples(asked or None)

    def _count_gradients(self, examples: float | None) -> None:
        """Adds examples whose gradient serves the choice alone; None where that is not known."""
        before = self.report["extra_gradients"]
        self.report["extra_gradients"] = None if before is None or examples is None else before + examples

    def _gate_steps(self) -> int:
        """How long the gates learn: with the model, or on the frozen one for one epoch or the steps given."""
        if not self.bench.plan.pipelined:
            return self.bench.total_steps()
        return self.bench.plan.gate_steps or len(self.bench.data[0]) // self.bench.batch_size

    def _gate_phase_length(self) -> dict[str, Any]:
        if self.bench.plan.gate_steps is not None:
            return {"max_steps": self.bench.plan.gate_steps}
        return {"max_steps": -1, "num_train_epochs": 1}


def _heads_by_kind(model: nn.Module, kept: Kept) -> dict[str, list[list[int]]]:
    """The heads that stay, layer by layer; of attentions that nothing was chosen from, all."""
    heads, chosen = discover(model), kept.to_dict()
    staying = {site.name: chosen.get(site.name, range(site.count)) for site in heads}
    return Kept.from_dict(staying).by_kind(heads)


def _check_phases(phases: Sequence[Phase], method: Method, bench: Bench) -> None:
    """Refuses, before anything is trained, what the method cannot do with this plan and data."""
    plan, name = bench.plan, key_of(method)
    learns = any(isinstance(phase, LearnGates) for phase in phases)
    if plan.pipelined and not method.pipelines:
        raise ValueError(
            f"`pipelined` is for methods that learn gates while the model is frozen; {name} does not. Leave it out."
        )
    if learns and not plan.training:
        raise ValueError(f"{name} learns by training, and `training=False` says not to; take another method.")
    _check_labels(bench)
    if plan.repair and any(isinstance(phase, Repair) for phase in phases):
        _check_repair(bench)
    if plan.baseline and plan.trained and not (plan.recover_steps or _trains_on(phases)):
        raise ValueError("`baseline` trains for as long as the smaller model, which is not trained here; leave it out.")
    if plan.baseline and not bench.labelled:
        raise ValueError("`baseline` trains with labels, and the training data has none; leave it out.")
    if plan.distil is not None and not plan.trained and not trains_first(phases):
        raise ValueError(
            f"`distil` needs a teacher, and {name} trains the model that is given; give one that is trained already, "
            "or leave `distil` out."
        )


def _check_labels(bench: Bench) -> None:
    if not bench.labelled and not bench.plan.trained:
        raise ValueError("The training data has no labels, and the model has to be trained; give data with labels.")


def _check_repair(bench: Bench) -> None:
    """Refuses what there is nothing to fit to, or to check the fit with."""
    there, asked = bench.data[0], bench.plan.repair_examples
    few = hasattr(there, "__len__") and len(there) < 2
    if few or asked == 1:
        raise ValueError(
            "A repair needs two training examples at least, one of them to check the fit; "
            f"{'the training data has' if few else '`repair_examples` is'} {len(there) if few else asked}. Give more, "
            "or pass repair=False."
        )


def _trains_on(phases: Sequence[Phase]) -> bool:
    """Whether a model that is trained already is trained further: with its gates, or after its cut."""
    joint = any(isinstance(phase, LearnGates) and not phase.frozen for phase in phases)
    return joint or any(isinstance(phase, Train) for phase in phases[phases.index(Cut()) :])


def _told(distil: Distillation | None) -> dict[str, Any] | None:
    return None if distil is None else asdict(distil)


def _freeze(model: nn.Module) -> list[nn.Parameter]:
    own = {id(parameter) for name, parameter in model.named_parameters() if name.startswith("kheads_gates")}
    frozen = [p for p in model.parameters() if p.requires_grad and id(p) not in own]
    for parameter in frozen:
        parameter.requires_grad_(False)
    return frozen


def _check_equal(masked: Mapping[str, Any], pruned: Mapping[str, Any], rounds: bool) -> float:
    """The largest difference of predictions before and after removal; raises where it is more than rounding.

    Args:
        masked: predictions with closed gates, by evaluation set.
        pruned: those of the physically smaller model.
        rounds: whether numbers of 16 bits were multiplied.
    """
    largest = 0.0
    tolerance = 0.1 if rounds else 1e-3
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
