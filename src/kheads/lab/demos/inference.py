"""The story in minutes: fine-tune a small BERT and keep 12 of its 72 heads, with training, with little, and with none.

Everything comes with the package or from PyPI: the embedded model, and a task of made-up sentence pairs in which word
order decides. `compare` is also what `benchmarks/bench_demo.py` runs over several seeds.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import DataCollatorWithPadding, TrainingArguments, set_seed

from kheads.anatomy import discover
from kheads.blocks.budget import AT, Budget
from kheads.blocks.site import total
from kheads.lab import terminal
from kheads.lab.jobs import made_nli
from kheads.measuring.timing import interleaved, speedup
from kheads.methods.registry import DEFAULT, METHODS, default
from kheads.storage import processors, sources
from kheads.storage.model_folder import load
from kheads.storage.new_folder import alone, check_free
from kheads.storage.probe import probe_inputs
from kheads.tasks import ClassificationTask
from kheads.training.plan import Plan
from kheads.training.pruning import prune
from kheads.training.recording import UNPRUNED_LOOK, size_of
from kheads.training.result import PruneResult

UNPRUNED_LABEL = UNPRUNED_LOOK.label
HALF = Budget(flops=0.5)
ROUNDS = 8  # in which the models take turns


@dataclass(frozen=True)
class Recipe:
    """How long and on how much the demo trains."""

    k: int = 12
    steps: int = 280
    batch_size: int = 32
    lr: float = 2e-4
    train_rows: int = 8000
    eval_rows: int = 1000
    budget: Budget = HALF
    further_steps: int = 140
    further_lr: float = 1e-4  # halved by the method after its repair


@dataclass(frozen=True)
class Chapter:
    """One line of the story.

    Attributes:
        label: what was done.
        result: what came of it.
        stage: which of its metrics counts.
        seconds: how long it took, evaluations left out.
    """

    label: str
    result: PruneResult
    stage: str
    seconds: float

    def accuracy(self) -> float:
        """The share of right answers on unseen words."""
        return float(self.result.metrics[self.stage][made_nli.EVALUATION]["accuracy"])


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
    chapters = compare(task, recipe, seed, say=console.print)
    chosen = chapters[-2].result
    chosen.save(output)
    reloaded = size_of(load(output))
    console.print(_table(chapters))
    console.print("\nThe heads that stay, where the trained model was cut, repaired and trained on:")
    console.print(terminal.head_map(discover(sources.skeleton(sources.EMBEDDED)), _renamed(chosen)))
    console.print(
        f"\nSaved in {output} and loaded again: {reloaded['parameters']:,} parameters. "
        f"All of it took {(time.perf_counter() - begin) / 60:.1f} minutes.\n"
        "Next, on a model and data of your own:\n"
        "  kheads preview my-model --train train.jsonl --eval dev.jsonl\n"
        "  kheads prune my-model --speedup 2 --train train.jsonl --eval dev.jsonl -o small"
    )


def made_task(recipe: Recipe, seed: int) -> ClassificationTask:
    """The embedded task, in the size of the recipe."""
    return made_nli.made_task(recipe.train_rows, recipe.eval_rows, seed)


def compare(task: ClassificationTask, recipe: Recipe, seed: int, say: Any = print) -> list[Chapter]:
    """The unpruned model; heads learned along with the task; the trained model cut, repaired, trained on; a budget."""
    joint, afterwards = (METHODS[default(trained)].look.label for trained in (False, True))
    say(f"\n1. Fine-tune the whole model: {recipe.steps} steps.")
    unpruned = _run(task, recipe, seed, None, Plan())
    say(f"2. {joint}: fine-tune anew in as many steps, and learn along the way which heads stay.")
    learned = _run(task, recipe, seed, DEFAULT, Plan())
    say(f"3. {afterwards}: take the trained model, cut it, repair it, and train on for {recipe.further_steps} steps.")
    further = replace(recipe, steps=recipe.further_steps, lr=recipe.further_lr)
    cut = _run(task, further, seed, None, Plan(trained=True), copy.deepcopy(unpruned.model))
    untrained = _seconds(cut, "estimate", "repair")
    say(f"4. Heads and neurons: keep {recipe.budget} of the trained model, cut and repaired, without any training.")
    plan = Plan(trained=True, training=False)
    within = _run(task, further, seed, None, plan, copy.deepcopy(unpruned.model), recipe.budget)
    return [
        Chapter(UNPRUNED_LABEL, unpruned, "pruned", _seconds(unpruned, "train")),
        Chapter(joint, learned, "pruned", _seconds(learned, "gates")),
        Chapter(f"{afterwards}, cut only", cut, "cut", _seconds(cut, "estimate")),
        Chapter(f"{afterwards}, repaired, no training", cut, "repaired", untrained),
        Chapter(f"{afterwards}, and {recipe.further_steps} steps", cut, "pruned", untrained + _seconds(cut, "adapt")),
        Chapter(
            f"{afterwards}, {recipe.budget}, no training", within, "repaired", _seconds(within, "estimate", "repair")
        ),
    ]


def _seconds(result: PruneResult, *parts: str) -> float:
    return float(sum(result.report["seconds"][part] for part in parts))


def _run(
    task: ClassificationTask,
    recipe: Recipe,
    seed: int,
    method: str | None,
    plan: Plan,
    model: Any = None,
    budget: Budget | None = None,
) -> PruneResult:
    """One training: of all heads, where no method is named for a model that is not trained."""
    set_seed(seed)  # the classifier on top of the pretrained model starts at random
    if model is None:
        model, _ = sources.classifier(sources.EMBEDDED, **task.model_kwargs, **made_nli.NO_DROPOUT)
    words = processors.tokenizer(sources.EMBEDDED)
    encoded = task.tokenize(words)
    return prune(
        model,
        recipe.k if (method or plan.trained) and budget is None else None,
        method,
        encoded.train,
        encoded.evals,
        _arguments(recipe, seed),
        budget=budget,
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


def _table(chapters: list[Chapter]) -> Any:
    whole, accuracy = size_of(chapters[0].result.model)["parameters"], chapters[0].accuracy()
    found = speeds([chapter.result.model for chapter in chapters])
    rows = [
        (
            chapter.label,
            *(f"{total(site for site in discover(chapter.result.model, parts=p)):,}" for p in ("heads", "ffn")),
            terminal.percent(chapter.accuracy()),
            f"{100 * (chapter.accuracy() - accuracy):+.1f}" if number else "",
            f"{chapter.seconds:.0f}",
            terminal.percent(1 - size_of(chapter.result.model)["parameters"] / whole),
            f"{found[number]:.2f}x" if number else "",
        )
        for number, chapter in enumerate(chapters)
    ]
    names = ("", "heads", "neurons", "accuracy on unseen words", "points", "seconds", "parameters saved", "speed")
    return terminal.rows_table("", names, rows)


def speeds(models: list[Any]) -> list[float]:
    """How many times as fast as the first each model is, all of them taking turns on one batch."""
    inputs = probe_inputs(models[0], *AT)
    different = {id(model): model.eval() for model in models}
    with torch.inference_mode():
        calls = [lambda model=model: model(**inputs) for model in different.values()]
        seconds = dict(zip(different, interleaved(calls, ROUNDS, models[0].device), strict=True))
    return [speedup(seconds[id(models[0])], seconds[id(model)]).ratio for model in models]


def _renamed(result: PruneResult) -> Any:
    """The kept heads under the names of the bare model, which the map shows."""
    prefix = f"{result.model.base_model_prefix}."
    return type(result.kept).from_dict(
        {name.removeprefix(prefix): heads for name, heads in result.kept.to_dict().items()}
    )
