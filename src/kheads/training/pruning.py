"""`prune`: train, learn or estimate scores, select K heads, remove the others, check, repair, train on, measure.

A method lists its phases, and `Run` carries them out. Each phase that trains keeps its checkpoints in a folder of its
own, so a run that was cut off resumes where it was.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accelerate import PartialState
from transformers import PreTrainedModel, TrainingArguments

from kheads.anatomy import discover, unwrap
from kheads.blocks.budget import TIMES, Budget
from kheads.blocks.constraints import Constraints
from kheads.methods.base import Method
from kheads.methods.finite import check_weights
from kheads.methods.registry import as_method, default
from kheads.storage.fingerprints import of_model
from kheads.training.aim import aimed, check_asked
from kheads.training.asked import CONTENT
from kheads.training.bench import Bench, Score
from kheads.training.plan import Plan
from kheads.training.recording import describe_method, describe_model
from kheads.training.result import PruneResult
from kheads.training.run import Run
from kheads.training.trainer import GatedTrainer

UNNAMED = "trainer_output"  # what TrainingArguments calls its folder where the user does not
AS_IT_WAS = "All {} heads stay, so nothing was removed: the model, which is trained already, is as it was."
PLAN_FIELDS = {item.name for item in dataclasses.fields(Plan)}


def prune(
    model: PreTrainedModel,
    k: int | None = None,
    method: str | type[Method] | Method | None = None,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    args: TrainingArguments | None = None,
    *,
    budget: Budget | None = None,
    parts: str | None = None,
    plan: Plan | None = None,
    constraints: Constraints | None = None,
    unit: str = "group",
    trainer_class: type[GatedTrainer] | Any = GatedTrainer,
    score: Score | None = None,
    **options: Any,
) -> PruneResult:
    """Trains a model, keeps exactly K of its heads, or what fits into a budget, and returns it with what was measured.

    Args:
        model: a supported model; it is trained and pruned in place.
        k: how many heads to keep; None or all of them trains without gates (the unpruned baseline).
        method: how to choose: a key of `METHODS`, a class, or an instance with its hyperparameters; by default "dsp",
            and for a trained model what suits one best. With `k` None it is not used.
        train_dataset: as for Trainer.
        eval_dataset: one data set, or several by name.
        args: TrainingArguments of the main training phase; its `output_dir` holds the checkpoints of all phases. A
            folder that is not named is temporary.
        budget: how much may stay, instead of `k`: `Budget(params=0.7)`, `Budget(speedup=2)` and the like.
        parts: what may go: "heads", "ffn" (neurons of feed-forward layers) or "all"; by default heads for a number of
            heads, and all for any other budget.
        plan: trained or not, repair, recovery, distillation, resuming; its fields may also be given as keyword
            arguments.
        constraints: further demands on the selection.
        unit: what counts as a head where query heads share keys and values.
        trainer_class: `GatedTrainer` or `GatedSeq2SeqTrainer`.
        score: further metrics of a model by evaluation set, such as BLEU of what it generates.
        **options: fields of `Plan`; anything else goes to the trainer: data_collator, compute_metrics,
            processing_class, callbacks, ...
    """
    if k is not None and budget is not None:
        raise TypeError("`k` and `budget` both say how much may stay; give one of them.")
    check_asked(budget, parts if k is None else None)
    plan = _planned(plan, {name: options.pop(name) for name in PLAN_FIELDS & options.keys()})
    _check_inputs(plan, constraints, train_dataset)
    with _in_folder(args) as named, _caching_as_before(unwrap(model)):
        check_weights(unwrap(model))
        bench = Bench(unwrap(model), (train_dataset, eval_dataset), named, plan, trainer_class, score, options)
        content = {"given": type(bench.model).__name__, CONTENT: of_model(bench.model)}
        bench.asked = {"method": describe_method(None), "model": content}
        asked = k if budget is None else budget
        if asked is None:
            if constraints is not None:
                raise ValueError("`constraints` are for a choice of heads; give `k` and a method, or leave them out.")
            return _unpruned(bench, unit)
        _check_alone(asked)
        goal = aimed(bench.model, asked, parts, constraints, unit, bench.tell)
        if goal.limit >= goal.whole and goal.costs is None:
            bench.remarks += [AS_IT_WAS.format(goal.total)] if plan.trained else []
            return _unpruned(bench, unit)
        chosen = as_method(method or default(plan.trained and not plan.pipelined), outline=plan.outline)
        chosen.check(goal)
        return Run(bench, describe_model(bench.model, goal.sites)).pruned(chosen, goal)


def _unpruned(bench: Bench, unit: str) -> PruneResult:
    sites = discover(bench.model, unit)
    return Run(bench, describe_model(bench.model, sites)).unpruned(sites)


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


def _check_alone(asked: int | Budget) -> None:
    """Refuses times where several processes would each measure, and choose, by themselves."""
    if isinstance(asked, Budget) and asked.name in TIMES and PartialState().num_processes > 1:
        raise ValueError(
            f"`{asked.name}` is measured in one process; start it without torchrun, or give a number of parameters or "
            "FLOPs."
        )


@contextmanager
def _caching_as_before(model: Any) -> Iterator[None]:
    """Trainer tells every model that it is given to keep no keys and values, which is for training alone."""
    config = vars(model.config)
    before = {name: config[name] for name in ("use_cache",) if name in config}
    try:
        yield
    finally:
        config.pop("use_cache", None)
        config.update(before)


@contextmanager
def _in_folder(args: TrainingArguments | None) -> Iterator[TrainingArguments]:
    """The training arguments, with a temporary folder where the user named none."""
    args = args or TrainingArguments(output_dir=UNNAMED, report_to="none", save_strategy="no")
    if args.output_dir not in (None, UNNAMED):
        yield args
        return
    with tempfile.TemporaryDirectory(prefix="kheads-", ignore_cleanup_errors=True) as folder:
        yield dataclasses.replace(args, output_dir=folder)
