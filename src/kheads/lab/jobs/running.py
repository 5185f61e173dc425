"""Runs a job: loads what it names, prunes, saves the model and its record."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainingArguments, set_seed
from transformers.integrations import integration_utils

from kheads.anatomy import discover
from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, total
from kheads.lab.jobs.catalogue import task_of
from kheads.lab.jobs.job import Job, never_read, refuse_unread, unread
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.work_folder import WorkFolder, asked_of
from kheads.methods.phases import LearnGates, Train
from kheads.storage.disk import check_room
from kheads.storage.sources import refuse_onnx
from kheads.training import recording
from kheads.training.bench import named_metrics
from kheads.training.distillation import Distillation
from kheads.training.hooks import CHECKPOINTING
from kheads.training.plan import Plan
from kheads.training.progress import say
from kheads.training.pruning import prune

SAVED = 2  # checkpoints of a part that stay: where the newest is damaged, a run goes on from the other


@dataclass(frozen=True)
class Outcome:
    """What a job led to: its record, and what is needed to show it."""

    record: dict[str, Any]
    sites: tuple[Site, ...]
    kept: Kept
    prepared: Prepared


def prepare(job: Job) -> Prepared:
    """Loads the data and the model of a job."""
    refuse_onnx(job.model)
    found: Prepared = importlib.import_module(task_of(job.task).module).prepare(job)
    return found


def prepare_evaluation(job: Job) -> Prepared:
    """Loads the evaluation data of a job, and its model with the labels it has."""
    module = importlib.import_module(task_of(job.task).module)
    found: Prepared = getattr(module, "prepare_evaluation", module.prepare)(job)
    return found


def run(
    job: Job,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    scores: Sequence[float] | None = None,
    whole: Path | None = None,
    reads: Sequence[Path] = (),
) -> Outcome:
    """Runs a job and saves the model and `result.json` in `output`.

    Under torchrun every process takes part, and the first one writes.

    Args:
        job: what to do.
        output: the folder to make; checkpoints are kept beside it until the run is complete.
        resume: go on from the last checkpoint; a run that is complete stays as it is.
        overwrite: replace an output folder that kheads made, and checkpoints of a run that was cut off.
        quiet: no progress bars.
        scores: what the method has found before, with the job's model; None finds them.
        whole: a folder for the trained model as it is before heads are removed.
        reads: files that were read besides the job's, and must not be replaced, such as a config.
    """
    never_read(job)  # a method that cannot be made is refused first
    _check_tracker(job.report_to)
    everyone = PartialState(cpu=not torch.accelerator.is_available())
    work = WorkFolder(output, job, resume, overwrite, reads)
    with work.claimed() if everyone.is_main_process else nullcontext():
        everyone.wait_for_everyone()
        set_seed(job.seed)  # what a task adds to a pretrained model starts at random
        prepared = prepare(job)
        job = work.job.settled(prepared.able).counted(total(discover(prepared.model, work.job.unit)))
        refuse_unread(job, unread(job))
        work = dataclasses.replace(work, job=job)
        sites = discover(prepared.model, job.unit, job.choosing_from)
        asked = asked_of(job, prepared.model, everyone.num_processes, scores)
        record = work.finished(asked) if whole is None or whole.is_dir() else None
        everyone.wait_for_everyone()
        if record is not None:
            _tell_complete(output, quiet)
        else:
            plan = dataclasses.replace(_plan(job, prepared), resume=resume, scores=scores, whole=whole)
            record = _carry_out(work, prepared, asked, plan, quiet)
        if everyone.is_main_process:
            work.close()
        everyone.wait_for_everyone()
    return Outcome(record, sites, Kept.from_dict(record["kept"]), prepared)


def _carry_out(
    work: WorkFolder, prepared: Prepared, asked: Mapping[str, Any], plan: Plan, quiet: bool
) -> dict[str, Any]:
    """Prunes, and saves the model with its record, which it returns."""
    job, everyone = work.job, PartialState()
    if prepared.train is None or not len(prepared.train):
        raise ValueError("Training data is missing; give `train`.")
    check_room(work.path, _least_bytes(job, prepared.model))
    given = arguments(work.path, job, prepared, quiet)
    if everyone.is_main_process:
        work.open(asked)
    everyone.wait_for_everyone()
    method = job.chosen()
    asked_for = None if method is None else job.budget
    result = prune(
        prepared.model,
        None if isinstance(asked_for, Budget) else asked_for,
        method,
        prepared.train,
        prepared.evals,
        given,
        budget=asked_for if isinstance(asked_for, Budget) else None,
        parts=None if asked_for is None else job.parts,
        plan=plan,
        constraints=_constraints(job, discover(prepared.model, job.unit, job.choosing_from)),
        unit=job.unit,
        trainer_class=prepared.trainer_class,
        score=prepared.score,
        processing_class=prepared.processor,
        **prepared.trainer_options,
    )
    record = {**result.record(job.to_dict(), prepared.metric), **asked}
    if everyone.is_main_process:
        result.save_as(work.output, record, work.overwrite)
    return record


def _plan(job: Job, prepared: Prepared) -> Plan:
    return Plan(
        pipelined=job.pipelined,
        trained=job.trained,
        measure_first=prepared.able,
        baseline=job.baseline,
        training=not job.no_training,
        gate_steps=job.gate_steps,
        repair=job.repair,
        repair_examples=job.repair_examples,
        recover_steps=job.recover_steps,
        distil=Distillation(job.distil_weight, job.temperature, job.distil_stream) if job.distil else None,
        estimate_examples=job.estimate_examples,
    )


def _least_bytes(job: Job, model: torch.nn.Module) -> int:
    """What a run writes at the least: the model, and its checkpoints where it trains.

    A checkpoint of a model that is trained has two more numbers for each weight, those of the optimizer.
    """
    gates = [phase for phase in job.phases() if isinstance(phase, LearnGates)]
    after = any(isinstance(phase, Train) for phase in job.phases()[1:])  # behind the cut
    trains = not job.trained or job.recover_steps > 0 or any(not phase.frozen for phase in gates)
    trains = trains or (after and not job.no_training)
    one = 3 if trains else min(len(gates), 1)
    count = SAVED if job.max_steps > job.save_steps else 1
    return (1 + one * count) * recording.size_of(model)["bytes"]


def _tell_complete(output: Path, quiet: bool) -> None:
    if PartialState().is_main_process and not quiet:
        say(f"{output} is complete already; nothing was left to do.")


def evaluate(prepared: Prepared, batch_size: int | None = None, quiet: bool = False) -> dict[str, dict[str, float]]:
    """The metrics of a prepared model by evaluation set.

    Args:
        prepared: a model and evaluation data; training data is not looked at.
        batch_size: examples per step; the task's if not given.
        quiet: no progress bars.
    """
    defaults = {
        "output_dir": "unused",
        "per_device_eval_batch_size": 64,
        "report_to": "none",
        "use_cpu": not torch.accelerator.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": quiet,
    }
    given = {} if batch_size is None else {"per_device_eval_batch_size": batch_size}
    made = (prepared.arguments_class or TrainingArguments)(**{**defaults, **prepared.arguments, **given})
    trainer = prepared.trainer_class(
        model=prepared.model, args=made, processing_class=prepared.processor, **prepared.trainer_options
    )
    metrics = {name: named_metrics(trainer.predict(data).metrics, "test") for name, data in prepared.evals.items()}
    for name, further in (prepared.score(_evaluated(prepared.model)) if prepared.score else {}).items():
        metrics.setdefault(name, {}).update(further)
    return {name: {key: found[key] for key in found if key != "loss"} for name, found in metrics.items()}


def _check_tracker(name: str) -> None:
    """A tracker that is not installed is refused before training."""
    installed: Any = integration_utils.get_available_reporting_integrations
    known = ("none", "all", *installed())
    if name not in known:
        raise ValueError(f"`report_to` must be one of {', '.join(known)}, which are installed here; got {name!r}.")


def _evaluated(model: Any) -> Any:
    return model.eval()


def _constraints(job: Job, sites: Sequence[Site]) -> Constraints | None:
    if not job.constraints:
        return None
    protected = {_site(name, sites): blocks for name, blocks in job.constraints.get("protected", {}).items()}
    return Constraints(**{**job.constraints, "protected": protected})


def _site(name: str, sites: Sequence[Site]) -> str:
    """The full name of a site; a task may put its model inside another one, and so a word before the name."""
    longer = [site.name for site in sites if site.name.endswith(f".{name}")]
    return longer[0] if len(longer) == 1 and name not in {site.name for site in sites} else name


def arguments(folder: Path, job: Job, prepared: Prepared, quiet: bool) -> TrainingArguments:
    """What the job and its task say of training, as transformers takes it."""
    asked = {
        "learning_rate": job.lr,
        "lr_scheduler_type": job.lr_schedule,
        "warmup_steps": job.warmup_steps,
        "num_train_epochs": job.epochs,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "num_train_epochs": 1.0 if job.trained else 3.0,
        "max_steps": job.max_steps,
        "per_device_train_batch_size": max(1, job.batch_size // job.accumulate),
        "per_device_eval_batch_size": max(64, job.batch_size),
        "gradient_accumulation_steps": job.accumulate,
        "lr_scheduler_type": "linear",
        "bf16": job.bf16,
        CHECKPOINTING: job.gradient_checkpointing,
        "report_to": job.report_to,
        "seed": job.seed,
        "save_strategy": "steps",
        "save_steps": job.save_steps,
        "save_total_limit": SAVED,
        "logging_steps": job.logging_steps,
        "eval_strategy": "steps" if job.eval_steps else "no",
        "eval_steps": job.eval_steps,
        "train_sampling_strategy": "group_by_length",
        "use_cpu": not torch.accelerator.is_available(),  # else Trainer would not join processes without a GPU
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": quiet,
    }
    made: TrainingArguments = (prepared.arguments_class or TrainingArguments)(
        **{**defaults, **prepared.arguments, **given}
    )
    return made
