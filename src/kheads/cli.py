"""The command line: kheads heads | prune | eval | export | demo."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
import typer
from rich.console import Group
from transformers import DataCollatorWithPadding, TrainingArguments
from transformers.utils import logging

from kheads import recording, sources, tasks, terminal
from kheads.anatomy import discover
from kheads.checkpoint import check_free, load, save
from kheads.demo import run_demo
from kheads.exporting import TARGETS, ExportError
from kheads.exporting import export as export_folder
from kheads.heads import HeadSet
from kheads.methods import DSP, METHODS, Method
from kheads.pruning import Plan
from kheads.pruning import prune as prune_model
from kheads.training import HeadTrainer, TrainingStoppedError

UsageError: Any = typer.BadParameter.__base__  # typer carries click's class, but does not export it

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Keep exactly K attention heads of a Transformer.",
    rich_markup_mode="markdown",
)

INTERRUPTED = 130
EXPECTED = (ValueError, TypeError, FileExistsError, FileNotFoundError, ExportError, TrainingStoppedError)

DSP_PANEL, VOITA_PANEL, MICHEL_PANEL = "Hyperparameters of dsp", "Hyperparameters of voita", "Hyperparameters of michel"
DATA_PANEL, TRAINING_PANEL, RUN_PANEL = "Data", "Training", "Run"

ModelArgument = Annotated[str, typer.Argument(help="A folder, a hub name, or minilm (the embedded model).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]


def main() -> None:
    """Runs the command; bad input ends in one sentence and exit code 2, Ctrl-C in how to go on."""
    logging.set_verbosity_error()
    try:
        code = app(standalone_mode=False)
    except EXPECTED as error:
        _fail(str(error))
    except UsageError as error:
        _fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        _fail("Interrupted. Run the same command with --resume to go on from the last checkpoint.", code)
    sys.exit(code or 0)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    print(f"kheads: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)


@app.command()
def heads(
    model: ModelArgument,
    unit: Annotated[
        str, typer.Option(help="What counts as a head under shared keys and values: group or query.")
    ] = "group",
    as_json: JsonOption = False,
) -> None:
    """Show the map of a model's attention heads.

    Example: `kheads heads bert-base-uncased`
    """
    built = sources.skeleton(model)
    sites = discover(built, unit)
    record = getattr(built.config, "kheads", None)
    if as_json:
        print(json.dumps([site.__dict__ for site in sites]))
        return
    terminal.console().print(_map(sites, record))


def _map(sites: Any, record: dict[str, Any] | None) -> Any:
    if record is None or any(site.unit != "head" for site in sites):
        return terminal.head_map(sites)
    kept = {name: [] if state["ghost"] else state["query"] for name, state in record["sites"].items()}
    totals = {name: state["of"] for name, state in record["sites"].items()}
    return terminal.head_map(sites, HeadSet.from_dict(kept), totals)


@app.command()
def prune(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pruned model and result.json.")],
    k: Annotated[int | None, typer.Option("-k", help="How many heads to keep; all of them if not given.")] = None,
    method: Annotated[str, typer.Option(help=f"{', '.join(METHODS)}, or none (train and keep every head).")] = "dsp",
    pipelined: Annotated[
        bool, typer.Option(help="Train the model first, then learn the gates of the frozen model.")
    ] = False,
    task: Annotated[
        str | None, typer.Option(help="A GLUE task by name, from the hub.", rich_help_panel=DATA_PANEL)
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="Training file: jsonl, csv, tsv, parquet.", rich_help_panel=DATA_PANEL)
    ] = None,
    evaluate: Annotated[
        list[str] | None,
        typer.Option(
            "--eval", help="Evaluation file, or NAME=FILE; may be given several times.", rich_help_panel=DATA_PANEL
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Name a column: text=A, text_pair=B or label=C.", rich_help_panel=DATA_PANEL),
    ] = None,
    max_train: Annotated[
        int | None, typer.Option(help="Use so many training rows.", rich_help_panel=DATA_PANEL)
    ] = None,
    max_eval: Annotated[
        int | None, typer.Option(help="Use so many rows of each evaluation set.", rich_help_panel=DATA_PANEL)
    ] = None,
    max_length: Annotated[int, typer.Option(help="Cut texts to so many tokens.", rich_help_panel=DATA_PANEL)] = 128,
    epochs: Annotated[float, typer.Option(help="Passes over the data.", rich_help_panel=TRAINING_PANEL)] = 3.0,
    max_steps: Annotated[
        int, typer.Option(help="Optimizer steps; overrides --epochs.", rich_help_panel=TRAINING_PANEL)
    ] = -1,
    batch_size: Annotated[int, typer.Option(help="Examples per step.", rich_help_panel=TRAINING_PANEL)] = 32,
    accumulate: Annotated[
        int, typer.Option(help="Split each batch into so many parts.", rich_help_panel=TRAINING_PANEL)
    ] = 1,
    lr: Annotated[float, typer.Option(help="Learning rate of the model.", rich_help_panel=TRAINING_PANEL)] = 2e-5,
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
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.", rich_help_panel=RUN_PANEL)] = False,
    overwrite: Annotated[
        bool, typer.Option(help="Replace what is in the output folder.", rich_help_panel=RUN_PANEL)
    ] = False,
    as_json: JsonOption = False,
    gate_lr: Annotated[float | None, typer.Option(help="Learning rate of the gates (dsp, ste, voita).")] = None,
    preset: Annotated[
        str, typer.Option(help="paper, or short for hundreds of steps.", rich_help_panel=DSP_PANEL)
    ] = "paper",
    relaxation: Annotated[str | None, typer.Option(help="successive or threshold.", rich_help_panel=DSP_PANEL)] = None,
    tau_start: Annotated[float | None, typer.Option(help="First temperature.", rich_help_panel=DSP_PANEL)] = None,
    tau_end: Annotated[float | None, typer.Option(help="Last temperature.", rich_help_panel=DSP_PANEL)] = None,
    cooldown: Annotated[
        str | None, typer.Option(help="Length of the cooldown: 0.68 or 25000.", rich_help_panel=DSP_PANEL)
    ] = None,
    anneal: Annotated[bool, typer.Option(help="Let the temperature fall.", rich_help_panel=DSP_PANEL)] = True,
    noise: Annotated[float | None, typer.Option(help="Scale of the Gumbel noise.", rich_help_panel=DSP_PANEL)] = None,
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
        int | None, typer.Option(help="Heads removed in a round.", rich_help_panel=MICHEL_PANEL)
    ] = None,
    normalised: Annotated[bool, typer.Option(help="Normalise scores per site.", rich_help_panel=MICHEL_PANEL)] = False,
    estimate_examples: Annotated[
        int | None, typer.Option(help="Examples a round looks at.", rich_help_panel=MICHEL_PANEL)
    ] = None,
) -> None:
    """Train a model on a task and keep exactly K of its heads.

    Example: `kheads prune bert-base-uncased -k 12 --train train.jsonl --eval matched=dev.jsonl -o pruned`
    """
    settings = {name: value for name, value in locals().items() if not name.startswith("_")}
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    chosen = _method(method, settings)
    check_free(output, overwrite)
    data = _task(task, train, evaluate, column).sample(max_train, max_eval, seed)
    built = sources.classifier(model, **data.model_kwargs)
    words = sources.tokenizer(model)
    encoded = data.tokenize(words, max_length)
    work = output.with_name(f"{output.name}.run")
    if work.exists() and not resume:
        shutil.rmtree(work)
    sites = discover(built)
    before = {"heads": sum(site.num_heads for site in sites), **recording.size_of(built)}
    result = prune_model(
        built,
        None if chosen is None else k,
        chosen,
        encoded.train,
        encoded.evals,
        _arguments(work, settings),
        plan=Plan(pipelined, trained, gate_steps, recover_steps, estimate_examples, resume),
        data_collator=DataCollatorWithPadding(words),
        compute_metrics=data.compute_metrics,
        processing_class=words,
    )
    record = recording.describe(result, chosen, settings, before)
    save(result.model, output, tokenizer=words, overwrite=overwrite)
    recording.write(record, output)
    shutil.rmtree(work, ignore_errors=True)
    if as_json:
        print(json.dumps({key: record[key] for key in ("method", "metrics", "kept", "before", "after", "report")}))
        return
    _tell(record, sites, result.kept, data, output)


@app.command(name="eval")
def evaluate_folder(
    folder: Annotated[Path, typer.Argument(help="A folder that kheads saved.")],
    evaluate: Annotated[list[str] | None, typer.Option("--eval", help="Evaluation file, or NAME=FILE.")] = None,
    task: Annotated[str | None, typer.Option(help="A GLUE task by name, from the hub.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Name a column: text=A, text_pair=B or label=C.")] = None,
    max_eval: Annotated[int | None, typer.Option(help="Use so many rows of each evaluation set.")] = None,
    max_length: Annotated[int, typer.Option(help="Cut texts to so many tokens.")] = 128,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 64,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a pruned model.

    Example: `kheads eval pruned --eval mismatched=dev_mm.jsonl`
    """
    built: Any = load(folder)
    names = [built.config.id2label[index] for index in range(built.config.num_labels)]
    data = _task(task, None, evaluate, column, labels=names).sample(None, max_eval)
    words = sources.tokenizer(folder)
    args = TrainingArguments(
        "unused",
        per_device_eval_batch_size=batch_size,
        report_to="none",
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=as_json,
    )
    trainer = HeadTrainer(
        model=built,
        args=args,
        data_collator=DataCollatorWithPadding(words),
        compute_metrics=data.compute_metrics,
        processing_class=words,
    )
    metrics = {}
    for name, encoded in data.tokenize(words, max_length).evals.items():
        found = trainer.predict(encoded, metric_key_prefix="eval").metrics or {}
        metrics[name] = {metric: found[f"eval_{metric}"] for metric in tasks.METRICS[data.metric]}
    if as_json:
        print(json.dumps(metrics))
        return
    rows = [(name, key, terminal.percent(value)) for name, found in metrics.items() for key, value in found.items()]
    terminal.console().print(terminal.rows_table(str(folder), ("set", "metric", "value"), rows))


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A folder that kheads saved.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    to: Annotated[str, typer.Option(help=f"Flavour: {', '.join(TARGETS)}.")] = "hub",
    overwrite: Annotated[bool, typer.Option(help="Replace what is in the output folder.")] = False,
) -> None:
    """Turn a pruned model into a folder that loads without kheads.

    Example: `kheads export pruned --to hub -o for-the-hub`
    """
    out = export_folder(folder, output, to, overwrite)
    terminal.console().print(f"{out} loads without kheads; its outputs were compared in a new process.")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pruned model.")] = Path("kheads-demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Tell the whole story in minutes, with the embedded model and a task of our own; nothing is downloaded.

    Example: `kheads demo`
    """
    run_demo(output, seed)


# ---------------------------------------------------------------------------------------------- from options to objects


def _method(name: str, given: dict[str, Any]) -> Method | None:
    """Builds the method from the options that were given; an option of another method is refused."""
    if name == "none":
        return None
    if name not in METHODS:
        raise ValueError(f"`--method` must be one of {', '.join([*METHODS, 'none'])}; got {name!r}.")
    if given["k"] is None:
        raise ValueError(f"`--method {name}` needs -k, the number of heads to keep.")
    fields = {field: given[option] for option, field in OPTIONS[name].items() if given[option] is not None}
    _refuse_foreign(name, given)
    for field in ("cooldown", "warmup", "budget_cooldown"):
        if field in fields:
            fields[field] = _steps(field, fields[field])
    if name == "dsp":
        return DSP.preset(given["preset"], annealed=given["anneal"], **fields)
    if name == "michel":
        fields["normalised"] = given["normalised"]
    return METHODS[name](**fields)


OPTIONS: dict[str, dict[str, str]] = {
    "dsp": {
        "gate_lr": "lr",
        "relaxation": "relaxation",
        "tau_start": "start",
        "tau_end": "end",
        "cooldown": "cooldown",
        "noise": "noise",
        "warmup": "warmup",
        "budget_cooldown": "budget_cooldown",
    },
    "ste": {"gate_lr": "lr"},
    "voita": {"gate_lr": "lr", "lambda_": "weight", "search": "search", "gate_start": "start"},
    "michel": {"per_round": "per_round"},
    "random": {},
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


def _task(
    task: str | None, train: Path | None, evaluate: list[str] | None, column: list[str] | None, labels: Any = None
) -> tasks.ClassificationTask:
    if task is not None:
        if train is not None or evaluate:
            raise ValueError("Give --task, or files with --train and --eval, not both.")
        return tasks.glue(task, labels=labels)
    if not evaluate:
        raise ValueError("Give data: --task NAME, or --train FILE and --eval FILE.")
    pairs = [text.partition("=") if "=" in text else ("eval", "=", text) for text in evaluate]
    columns = dict(text.partition("=")[::2] for text in column) if column else None
    return tasks.from_files(train, {name: path for name, _, path in pairs}, columns, labels=labels)


def _arguments(folder: Path, given: dict[str, Any]) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=given["epochs"],
        max_steps=given["max_steps"],
        per_device_train_batch_size=max(1, given["batch_size"] // given["accumulate"]),
        per_device_eval_batch_size=max(64, given["batch_size"]),
        gradient_accumulation_steps=given["accumulate"],
        learning_rate=given["lr"],
        lr_scheduler_type="linear",
        bf16=given["bf16"],
        gradient_checkpointing=given["gradient_checkpointing"],
        report_to=given["report_to"],
        seed=given["seed"],
        save_strategy="steps",
        save_steps=given["save_steps"],
        save_total_limit=1,
        logging_steps=50,
        train_sampling_strategy="group_by_length",
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=given["as_json"],
    )


def _tell(record: dict[str, Any], sites: Any, kept: HeadSet, data: tasks.ClassificationTask, output: Path) -> None:
    """The map of kept heads and a table of before and after."""
    before, after = record["before"], record["after"]
    rows = [
        ("heads", before["heads"], after["heads"]),
        ("parameters", f"{before['parameters']:,}", f"{after['parameters']:,}"),
        ("weights", f"{before['bytes'] / 1e6:.1f} MB", f"{after['bytes'] / 1e6:.1f} MB"),
    ]
    metrics = record["metrics"]
    for name in data.evals:
        for stage in ("pruned", "recovered"):
            if name in metrics.get(stage, {}):
                unpruned = metrics.get("unpruned", {}).get(name, {}).get(data.metric)
                value = metrics[stage][name][data.metric]
                label = f"{data.metric}, {name}" + (" (recovered)" if stage == "recovered" else "")
                rows.append((label, "-" if unpruned is None else terminal.percent(unpruned), terminal.percent(value)))
    table = terminal.rows_table("before and after", ("", "before", "after"), rows)
    notes = [*data.notes, f"Saved in {output}. Next: kheads eval {output} ..., kheads export {output} -o FOLDER"]
    terminal.console().print(Group(terminal.head_map(sites, kept), table, *notes))
