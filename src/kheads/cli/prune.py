"""kheads prune: train a model on a task and keep exactly K of its heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from accelerate import PartialState
from rich.console import Group

from kheads.cli.app import JsonOption, ModelArgument, TaskOption, UnitOption, pairs, refuse_foreign_data
from kheads.cli.constraints import MinPerSiteOption, ProtectOption, QuotaOption, UniformOption, as_constraints
from kheads.cli.translation import (
    BatchTokens,
    Beams,
    Clean,
    DatasetName,
    EvalSource,
    EvalTarget,
    LabelSmoothing,
    SourceLang,
    TargetLang,
    Tokenized,
    TrainSource,
    TrainTarget,
    VocabSize,
    refuse_translation,
    translation_data,
)
from kheads.lab import jobs, terminal
from kheads.lab.jobs import Job, Outcome
from kheads.methods import METHODS

DSP_PANEL, VOITA_PANEL = "Hyperparameters of dsp", "Hyperparameters of voita"
MICHEL_PANEL = "Hyperparameters of michel and retrain"
DATA_PANEL, TRAINING_PANEL, RUN_PANEL = "Data", "Training", "Run"


def prune(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pruned model and result.json.")],
    k: Annotated[int | None, typer.Option("-k", help="How many heads to keep; all of them if not given.")] = None,
    method: Annotated[str, typer.Option(help=f"{', '.join(METHODS)}, or none (train and keep every head).")] = "dsp",
    pipelined: Annotated[
        bool, typer.Option(help="Train the model first, then learn the gates of the frozen model.")
    ] = False,
    unit: UnitOption = "group",
    min_per_site: MinPerSiteOption = None,
    uniform: UniformOption = False,
    protect: ProtectOption = None,
    quota: QuotaOption = None,
    task: TaskOption = None,
    train: Annotated[
        Path | None,
        typer.Option(
            help="Training file: jsonl, csv, tsv, parquet; text for clm; a folder for image.",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    evaluate: Annotated[
        list[str] | None,
        typer.Option(
            "--eval",
            help="Evaluation file (for image a folder), or NAME=FILE; may be given several times.",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Name a column: text=A, text_pair=B, label=C; of translations source=A, target=B.",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    max_train: Annotated[
        int | None, typer.Option(help="Use so many training rows.", rich_help_panel=DATA_PANEL)
    ] = None,
    max_eval: Annotated[
        int | None, typer.Option(help="Use so many rows of each evaluation set.", rich_help_panel=DATA_PANEL)
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Cut texts to so many tokens; for clm the length of a block; longer pairs of translations are left "
            "out. 128 if not given.",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(help="Passes over the data: 3, or 60 for a new translator.", rich_help_panel=TRAINING_PANEL),
    ] = None,
    max_steps: Annotated[
        int, typer.Option(help="Optimizer steps; overrides --epochs.", rich_help_panel=TRAINING_PANEL)
    ] = -1,
    batch_size: Annotated[
        int | None, typer.Option(help="Examples per step; 32.", rich_help_panel=TRAINING_PANEL)
    ] = None,
    accumulate: Annotated[
        int, typer.Option(help="Split each batch into so many parts.", rich_help_panel=TRAINING_PANEL)
    ] = 1,
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate of the model; the task's if not given.", rich_help_panel=TRAINING_PANEL),
    ] = None,
    lr_schedule: Annotated[
        str | None,
        typer.Option(help="How that rate goes: linear, cosine, inverse_sqrt, ...", rich_help_panel=TRAINING_PANEL),
    ] = None,
    warmup_steps: Annotated[
        int | None, typer.Option(help="Steps in which that rate rises.", rich_help_panel=TRAINING_PANEL)
    ] = None,
    bf16: Annotated[bool, typer.Option(help="Train in bfloat16.", rich_help_panel=TRAINING_PANEL)] = False,
    gradient_checkpointing: Annotated[
        bool, typer.Option(help="Trade time for memory.", rich_help_panel=TRAINING_PANEL)
    ] = False,
    report_to: Annotated[
        str, typer.Option(help="Tracker: none, tensorboard, wandb, ...", rich_help_panel=TRAINING_PANEL)
    ] = "none",
    seed: Annotated[int, typer.Option(help="Seed of everything random.", rich_help_panel=RUN_PANEL)] = 0,
    trained: Annotated[bool, typer.Option(help="The model is trained already.", rich_help_panel=RUN_PANEL)] = False,
    gate_steps: Annotated[
        int | None,
        typer.Option(help="Steps of the gates with --pipelined; one epoch if not given.", rich_help_panel=RUN_PANEL),
    ] = None,
    recover_steps: Annotated[int, typer.Option(help="Train the pruned model further.", rich_help_panel=RUN_PANEL)] = 0,
    save_steps: Annotated[int, typer.Option(help="Checkpoint every so many steps.", rich_help_panel=RUN_PANEL)] = 200,
    eval_steps: Annotated[
        int | None,
        typer.Option(help="Evaluate every so many steps; if not given, at the end.", rich_help_panel=RUN_PANEL),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.", rich_help_panel=RUN_PANEL)] = False,
    overwrite: Annotated[
        bool, typer.Option(help="Replace what is in the output folder.", rich_help_panel=RUN_PANEL)
    ] = False,
    as_json: JsonOption = False,
    gate_lr: Annotated[float | None, typer.Option(help="Learning rate of the gates (dsp, ste, voita).")] = None,
    gate_lr_schedule: Annotated[str | None, typer.Option(help="linear or constant (dsp, ste, voita).")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="short; frozen, for --pipelined; paper, for tens of thousands of steps; translation.",
            rich_help_panel=DSP_PANEL,
        ),
    ] = None,
    relaxation: Annotated[str | None, typer.Option(help="successive or threshold.", rich_help_panel=DSP_PANEL)] = None,
    tau_start: Annotated[float | None, typer.Option(help="First temperature.", rich_help_panel=DSP_PANEL)] = None,
    tau_end: Annotated[float | None, typer.Option(help="Last temperature.", rich_help_panel=DSP_PANEL)] = None,
    cooldown: Annotated[
        str | None, typer.Option(help="Length of the cooldown: 0.68 or 25000.", rich_help_panel=DSP_PANEL)
    ] = None,
    anneal: Annotated[
        bool | None, typer.Option("--anneal/--no-anneal", help="Let the temperature fall.", rich_help_panel=DSP_PANEL)
    ] = None,
    noise: Annotated[float | None, typer.Option(help="Scale of the Gumbel noise.", rich_help_panel=DSP_PANEL)] = None,
    noise_cooldown: Annotated[
        str | None, typer.Option(help="Length of the way of the noise to 0.", rich_help_panel=DSP_PANEL)
    ] = None,
    warmup: Annotated[str | None, typer.Option(help="All heads open for so long.", rich_help_panel=DSP_PANEL)] = None,
    budget_cooldown: Annotated[
        str | None, typer.Option(help="Length of the way from H to K.", rich_help_panel=DSP_PANEL)
    ] = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="Weight of the penalty.", rich_help_panel=VOITA_PANEL)
    ] = None,
    search: Annotated[
        int | None, typer.Option(help="Short runs that look for lambda.", rich_help_panel=VOITA_PANEL)
    ] = None,
    gate_start: Annotated[
        float | None, typer.Option(help="First value of every gate.", rich_help_panel=VOITA_PANEL)
    ] = None,
    per_round: Annotated[
        int | None, typer.Option(help="Heads removed in a round (michel).", rich_help_panel=MICHEL_PANEL)
    ] = None,
    normalised: Annotated[
        bool | None, typer.Option(help="Normalise scores per site.", rich_help_panel=MICHEL_PANEL)
    ] = None,
    before_cut: Annotated[
        str | None,
        typer.Option(
            help="Length of the training before the cut (retrain): 0.33 or 500.", rich_help_panel=MICHEL_PANEL
        ),
    ] = None,
    estimate_examples: Annotated[
        int | None, typer.Option(help="Examples a round looks at.", rich_help_panel=MICHEL_PANEL)
    ] = None,
    train_source: TrainSource = None,
    train_target: TrainTarget = None,
    eval_source: EvalSource = None,
    eval_target: EvalTarget = None,
    dataset: DatasetName = None,
    clean: Clean = None,
    tokenized: Tokenized = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    vocab_size: VocabSize = None,
    batch_tokens: BatchTokens = None,
    label_smoothing: LabelSmoothing = None,
    beams: Beams = None,
) -> None:
    """Train a model on a task and keep exactly K of its heads.

    Example: `kheads prune bert-base-uncased -k 12 --train train.jsonl --eval matched=dev.jsonl -o pruned`
    """
    given = dict(locals())
    refuse_foreign_data(task, given)
    job = Job(
        model=model,
        k=k,
        method=method,
        method_options=_method_options(method, given),
        pipelined=pipelined,
        constraints=as_constraints(min_per_site, uniform, protect, quota),
        unit=unit,
        task=task,
        data={
            "train": str(train) if train else None,
            "eval": pairs(evaluate, "eval"),
            "columns": pairs(column, "text"),
            **_task_data(task, given),
        },
        **{name: given[name] for name in SAME_NAME if given[name] is not None},
    )
    outcome = jobs.run(job, output, resume, overwrite, quiet=as_json)
    if PartialState().is_main_process:
        _tell(outcome, output, as_json)


# Options that are fields of the job as they stand.
SAME_NAME = (
    "max_train",
    "max_eval",
    "max_length",
    "epochs",
    "max_steps",
    "batch_size",
    "accumulate",
    "lr",
    "lr_schedule",
    "warmup_steps",
    "bf16",
    "gradient_checkpointing",
    "report_to",
    "seed",
    "trained",
    "gate_steps",
    "recover_steps",
    "estimate_examples",
    "save_steps",
    "eval_steps",
)


def _task_data(task: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """The data options of the task alone; one of another task is refused."""
    if task == "translation":
        return translation_data(given)
    refuse_translation(given, task)
    return {}


def _method_options(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of the method that were given; an option of another method is refused."""
    if name not in OPTIONS:
        raise ValueError(f"`--method` must be one of {', '.join([*METHODS, 'none'])}; got {name!r}.")
    _refuse_foreign(name, given)
    fields = {field: given[option] for option, field in OPTIONS[name].items() if given[option] is not None}
    for field in ("cooldown", "noise_cooldown", "warmup", "budget_cooldown", "before_cut"):
        if field in fields:
            fields[field] = _steps(field, fields[field])
    return fields


# Options of each method, and the fields they set.
OPTIONS: dict[str, dict[str, str]] = {
    "dsp": {
        "gate_lr": "lr",
        "gate_lr_schedule": "lr_schedule",
        "preset": "preset",
        "anneal": "annealed",
        "relaxation": "relaxation",
        "tau_start": "start",
        "tau_end": "end",
        "cooldown": "cooldown",
        "noise": "noise",
        "noise_cooldown": "noise_cooldown",
        "warmup": "warmup",
        "budget_cooldown": "budget_cooldown",
    },
    "ste": {"gate_lr": "lr", "gate_lr_schedule": "lr_schedule"},
    "voita": {
        "gate_lr": "lr",
        "gate_lr_schedule": "lr_schedule",
        "lambda_": "weight",
        "search": "search",
        "gate_start": "start",
    },
    "michel": {"per_round": "per_round", "normalised": "normalised"},
    "retrain": {"before_cut": "before_cut", "normalised": "normalised"},
    "random": {},
    "none": {},
}


def _refuse_foreign(name: str, given: dict[str, Any]) -> None:
    every = {option for options in OPTIONS.values() for option in options}
    foreign = sorted(option for option in every - OPTIONS[name].keys() if given[option] is not None)
    if foreign:
        owners = [key for key, options in OPTIONS.items() if foreign[0] in options]
        flag = f"--{foreign[0].strip('_').replace('_', '-')}"
        raise ValueError(f"`{flag}` belongs to --method {' or '.join(owners)}, not to {name}.")


def _steps(name: str, text: str) -> int | float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        flag = f"--{name.replace('_', '-')}"
        raise ValueError(f"`{flag}` must be a fraction such as 0.68 or a number of steps; got {text!r}.") from None


def _tell(outcome: Outcome, output: Path, as_json: bool) -> None:
    """The map of kept heads and a table of before and after."""
    record, metric = outcome.record, outcome.prepared.metric
    if as_json:
        print(json.dumps({key: record[key] for key in ("method", "metrics", "kept", "before", "after", "report")}))
        return
    before, after, metrics = record["before"], record["after"], record["metrics"]
    rows = [
        ("heads", before["heads"], after["heads"]),
        ("parameters", f"{before['parameters']:,}", f"{after['parameters']:,}"),
        ("weights", f"{before['bytes'] / 1e6:.1f} MB", f"{after['bytes'] / 1e6:.1f} MB"),
    ]
    for name in outcome.prepared.evals:
        unpruned = metrics.get("unpruned", {}).get(name, {}).get(metric)
        for stage, remark in (("pruned", ""), ("recovered", " (recovered)")):
            if name in metrics.get(stage, {}):
                value = metrics[stage][name][metric]
                old = "-" if unpruned is None else terminal.metric(metric, unpruned)
                rows.append((f"{metric}, {name}{remark}", old, terminal.metric(metric, value)))
    table = terminal.rows_table("before and after", ("", "before", "after"), rows)
    use = f"kheads translate {output}" if record["settings"]["task"] == "translation" else f"kheads eval {output} ..."
    next_steps = f"Saved in {output}. Next: {use}, kheads export {output} -o FOLDER"
    shown = Group(terminal.head_map(outcome.sites, outcome.kept), table, *outcome.prepared.notes, next_steps)
    terminal.console().print(shown)
