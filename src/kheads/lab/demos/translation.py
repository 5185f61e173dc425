"""The translation story in minutes: train a tiny encoder-decoder, keep a third of its heads, and let it translate.

The task is the embedded one, German numbers, times and dates; the numbers it is asked for never occur in training.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kheads.lab import terminal
from kheads.lab.demos.inference import UNPRUNED_LABEL
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.running import Outcome, run
from kheads.methods.phases import Outline
from kheads.methods.registry import DEFAULT, DEFAULT_TRAINED, METHODS, UNPRUNED
from kheads.storage import processors, sources
from kheads.storage.new_folder import alone, check_free
from kheads.tasks.translating import translate
from kheads.tasks.translation import NUMBERS, numbers


@dataclass(frozen=True)
class Recipe:
    """How long and on how much the demo trains."""

    k: int = 8
    steps: int = 1200
    warmup_steps: int = 100
    lr: float = 5e-3
    batch_tokens: int = 2048
    eval_pairs: int = 200
    further_steps: int = 300
    further_lr: float = 1e-3


def run_demo(output: Path, seed: int = 0, recipe: Recipe | None = None) -> None:
    """Runs the comparison, tells it, and leaves the pruned model in `output`."""
    with alone(check_free(output)):  # a place that cannot be written is refused before anything is trained
        _tell(output, seed, recipe or Recipe())


def _tell(output: Path, seed: int, recipe: Recipe) -> None:
    console = terminal.console()
    examples = numbers(seed).evals["unseen"]
    console.print(
        f"[bold]kheads demo[/bold]: keep {recipe.k} of the 24 heads of an encoder-decoder (2+2 layers, three kinds of "
        f"attention, 4 heads each).\nThe task: German to English. For example: {examples.sources[0]!r} -> "
        f"{examples.targets[0]!r}"
    )
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = compare(Path(folder), output, recipe, seed, say=console.print)
    label = METHODS[DEFAULT].look.label
    chosen = outcomes[label]
    console.print(_table(outcomes))
    console.print(f"\nThe heads that {label} kept:")
    console.print(terminal.head_map(chosen.sites, chosen.kept))
    console.print("\nWhat they say of numbers they have never seen:")
    for line in _translated(output, examples.sources[:4]):
        console.print(line, soft_wrap=True)
    console.print(
        f"\nAll of it took {(time.perf_counter() - begin) / 60:.1f} minutes. Next, in {output} and on your own data:\n"
        f"  echo 'wir haben um halb vier fünfhundertsechs Bücher gekauft' | kheads translate {output}\n"
        "  kheads prune small -k 12 --task translation --set train_source=train.de --set train_target=train.en "
        "--set eval_source=dev.de --set eval_target=dev.en -o pruned",
        soft_wrap=True,
    )


def compare(folder: Path, output: Path, recipe: Recipe, seed: int, say: Any = print) -> dict[str, Outcome]:
    """The unpruned model; heads learned along with it, saved in `output`; the trained one cut, repaired, trained on."""
    whole = folder / UNPRUNED
    joint, afterwards = (METHODS[key].look.label for key in (DEFAULT, DEFAULT_TRAINED))
    further = replace(recipe, steps=recipe.further_steps, lr=recipe.further_lr, warmup_steps=0)
    say(f"\n1. Train the whole model: {recipe.steps} steps.")
    outcomes = {UNPRUNED_LABEL: run(_job(recipe, seed, "tiny", UNPRUNED), whole)}
    say(f"2. {joint}: train anew in as many steps, and learn along the way which heads stay.")
    outcomes[joint] = run(_job(recipe, seed, "tiny", DEFAULT), output)
    say(f"3. {afterwards}: take the trained model, cut it, repair it, and train on for {recipe.further_steps} steps.")
    outcomes[afterwards] = run(_job(further, seed, str(whole), DEFAULT_TRAINED), folder / DEFAULT_TRAINED)
    return outcomes


def _job(recipe: Recipe, seed: int, model: str, method: str) -> Job:
    usual = None if method == UNPRUNED else METHODS[method].usual_preset(Outline())
    return Job(
        model,
        k=None if method == UNPRUNED else recipe.k,
        method=method,
        method_options={"preset": usual} if usual else {},  # the paper's presets for the task want longer training
        task="translation",
        data={"dataset": NUMBERS, "batch_tokens": recipe.batch_tokens},
        max_eval=recipe.eval_pairs,
        max_steps=recipe.steps,
        lr=recipe.lr,
        lr_schedule="linear",
        warmup_steps=recipe.warmup_steps,
        save_steps=recipe.steps,
        logging_steps=max(1, recipe.steps // 4),
        seed=seed,
    )


def _table(outcomes: dict[str, Outcome]) -> Any:
    rows = []
    for name, outcome in outcomes.items():
        metrics, after = outcome.record["metrics"], outcome.record["after"]
        for stage, remark in (("cut", ", cut only"), ("repaired", ", repaired, no training"), ("pruned", "")):
            if stage in metrics:
                scores = [terminal.metric(key, metrics[stage]["unseen"][key]) for key in ("bleu", "exact")]
                rows.append((f"{name}{remark}", after["heads"], *scores, f"{after['parameters']:,}"))
    return terminal.rows_table("", ("method", "heads", "BLEU on unseen numbers", "exact", "parameters"), rows)


def _translated(folder: Path, texts: list[str]) -> list[str]:
    model: Any = sources.encoder_decoder(folder)
    words = processors.tokenizer(folder)
    return [f"  {text} -> {said}" for text, said in zip(texts, translate(model.eval(), words, texts), strict=True)]
