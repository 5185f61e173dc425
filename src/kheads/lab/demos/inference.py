"""The story in minutes: fine-tune a small BERT, keep 12 of its 72 heads, and compare the methods.

Everything comes with the package or from PyPI: the embedded model, and a task of made-up sentence pairs in which word
order decides. `compare` is also what `benchmarks/bench_demo.py` runs over several seeds.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import DataCollatorWithPadding, TrainingArguments, set_seed

from kheads.anatomy import discover
from kheads.lab import terminal
from kheads.lab.jobs import made_nli
from kheads.methods.base import Method
from kheads.methods.phases import starts_from_trained
from kheads.methods.registry import BASELINES, DEFAULT, METHODS
from kheads.storage import sources
from kheads.storage.model_folder import load
from kheads.storage.new_folder import alone, check_free
from kheads.tasks import ClassificationTask
from kheads.training.plan import Plan
from kheads.training.pruning import prune
from kheads.training.recording import UNPRUNED_LOOK, size_of
from kheads.training.result import PruneResult

UNPRUNED_LABEL = UNPRUNED_LOOK.label


@dataclass(frozen=True)
class Recipe:
    """How long and on how much the demo trains."""

    k: int = 12
    steps: int = 280
    batch_size: int = 32
    lr: float = 2e-4
    train_rows: int = 8000
    eval_rows: int = 1000
    estimate_examples: int = 512


def run_demo(output: Path, seed: int = 0, recipe: Recipe | None = None) -> None:
    """Runs the comparison, tells it, and leaves the pruned model in `output`."""
    with alone(check_free(output)):  # a place that cannot be written is refused before anything is trained
        _tell(output, seed, recipe or Recipe())


def _tell(output: Path, seed: int, recipe: Recipe) -> None:
    console = terminal.console()
    sources.resolve(sources.EMBEDDED)  # says how to install the model before anything else happens
    console.print(
        f"[bold]kheads demo[/bold]: keep {recipe.k} of the 72 attention heads of MiniLM (6 layers x 12 heads)."
    )
    task = made_task(recipe, seed)
    example = task.evals["unseen words"][0]
    console.print(
        f"The task: does the second sentence follow? For example: {example['text']!r} / {example['text_pair']!r}"
    )
    begin = time.perf_counter()
    results = compare(task, recipe, seed, say=console.print)
    label = METHODS[DEFAULT].look.label
    chosen = results[label]
    chosen.save(output)
    reloaded = size_of(load(output))
    console.print(_table(results, task))
    console.print(f"\nThe heads that {label} kept:")
    console.print(terminal.head_map(discover(sources.skeleton(sources.EMBEDDED)), _renamed(chosen)))
    console.print(
        f"\nSaved in {output} and loaded again: {reloaded['parameters']:,} parameters. "
        f"All of it took {(time.perf_counter() - begin) / 60:.1f} minutes.\n"
        "Next, on your own data:\n"
        "  kheads prune bert-base-uncased -k 12 --train train.jsonl --eval dev.jsonl -o pruned"
    )


def made_task(recipe: Recipe, seed: int) -> ClassificationTask:
    """The embedded task, in the size of the recipe."""
    return made_nli.made_task(recipe.train_rows, recipe.eval_rows, seed)


def compare(task: ClassificationTask, recipe: Recipe, seed: int, say: Any = print) -> dict[str, PruneResult]:
    """The unpruned model, the default method and the baselines, each in as many steps or on the unpruned model."""
    say(f"\n1. Fine-tune the whole model: {recipe.steps} steps.")
    unpruned = _run(task, recipe, seed, None, Plan())
    results = {UNPRUNED_LABEL: unpruned}
    for number, method in enumerate(story(), 2):
        trained = starts_from_trained(method.phases(frozen=False))
        say(told(number, method, trained, recipe.steps))
        plan = Plan(estimate_examples=recipe.estimate_examples, trained=trained)
        model = copy.deepcopy(unpruned.model) if trained else None
        results[method.look.label] = _run(task, recipe, seed, method, plan, model)
    return results


def story() -> list[Method]:
    """The methods that the demo shows, the default first."""
    return [METHODS[key].configured() for key in (DEFAULT, *BASELINES)]


def told(number: int, method: Method, trained: bool, steps: int) -> str:
    """What a step of the story is about."""
    where = "on the trained model" if trained else f"in the same {steps} steps"
    return f"{number}. {method.look.label}, {where}: {method.idea}."


def _run(
    task: ClassificationTask, recipe: Recipe, seed: int, method: Method | None, plan: Plan, model: Any = None
) -> PruneResult:
    set_seed(seed)  # the classifier on top of the pretrained model starts at random
    if model is None:
        model, _ = sources.classifier(sources.EMBEDDED, **task.model_kwargs, **made_nli.NO_DROPOUT)
    words = sources.tokenizer(sources.EMBEDDED)
    encoded = task.tokenize(words)
    return prune(
        model,
        None if method is None else recipe.k,
        method or DEFAULT,
        encoded.train,
        encoded.evals,
        _arguments(recipe, seed),
        plan=plan,
        data_collator=DataCollatorWithPadding(words),
        compute_metrics=task.compute_metrics,
        processing_class=words,
    )


def _arguments(recipe: Recipe, seed: int) -> TrainingArguments:
    return TrainingArguments(
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch_size,
        per_device_eval_batch_size=100,
        learning_rate=recipe.lr,
        warmup_steps=recipe.steps // 10,
        seed=seed,
        report_to="none",
        save_strategy="no",
        logging_steps=recipe.steps,
        disable_tqdm=False,
        train_sampling_strategy="group_by_length",
        dataloader_pin_memory=torch.cuda.is_available(),
    )


def _table(results: dict[str, PruneResult], task: ClassificationTask) -> Any:
    rows = []
    whole = size_of(results[UNPRUNED_LABEL].model)
    for name, result in results.items():
        size = size_of(result.model)
        accuracy = result.metrics["pruned"]["unseen words"][task.metric]
        saved = 1 - size["parameters"] / whole["parameters"]
        rows.append(
            (name, len(result.kept), terminal.percent(accuracy), f"{size['parameters']:,}", terminal.percent(saved))
        )
    return terminal.rows_table("", ("method", "heads", "accuracy on unseen words", "parameters", "saved"), rows)


def _renamed(result: PruneResult) -> Any:
    """The kept heads under the names of the bare model, which the map shows."""
    prefix = f"{result.model.base_model_prefix}."
    return type(result.kept).from_dict(
        {name.removeprefix(prefix): heads for name, heads in result.kept.to_dict().items()}
    )
