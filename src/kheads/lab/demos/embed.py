"""The story of embeddings in minutes: half of an encoder's work goes, and its embeddings stay where they were.

No labels are needed: the original is the teacher. Sentences and scored pairs come with the package.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kheads.lab import terminal
from kheads.lab.demos.inference import UNPRUNED_LABEL, speeds
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.running import Outcome, run
from kheads.storage import processors, sources
from kheads.storage.embedder import Embedder
from kheads.tasks import embedding
from kheads.training.recording import size_of

DATA = Path(__file__).parent / "data"
SENTENCES, PAIRS = DATA / "sentences.txt", DATA / "pairs.tsv"
EVALUATION = "pairs"
ASKED = ("A kingfisher was fishing in the pond.", "The court rejected the complaint.", "Dinner smelled wonderful.")


@dataclass(frozen=True)
class Recipe:
    """How much stays, and how long the smaller model trains."""

    flops: float = 0.5
    steps: int = 100
    batch_size: int = 32
    lr: float = 2e-4  # a few hundred sentences are soon known by heart


def run_demo(output: Path, seed: int = 0, recipe: Recipe | None = None) -> None:
    """Cuts, repairs and trains on; tells it, and leaves the smaller model in `output`."""
    recipe = recipe or Recipe()
    console = terminal.console()
    sources.resolve(sources.EMBEDDED)  # says how to install the model before anything else happens
    texts = embedding.from_files(SENTENCES, {}).train or []
    console.print(
        f"[bold]kheads demo[/bold]: keep {terminal.percent(recipe.flops)} of the work of MiniLM, a sentence encoder, "
        f"and its embeddings.\nIt learns from {len(texts)} sentences without labels, with the original as teacher. For "
        f"example: {texts[0]!r}"
    )
    begin = time.perf_counter()
    outcome = run(_job(recipe, seed), output)
    whole, small = sources.encoder(sources.EMBEDDED), sources.encoder(output)
    console.print(_table(outcome, recipe, speeds([whole, small])[1], size_of(whole)["parameters"]))
    console.print("\nWhat lies nearest to sentences that neither of them was shown:")
    console.print(_neighbours(whole, small, texts))
    console.print(
        f"\nSaved in {output}. All of it took {(time.perf_counter() - begin) / 60:.1f} minutes. Next:\n"
        f"  kheads export {output} --to hub -o for-the-hub   # for SentenceTransformer(..., trust_remote_code=True)\n"
        "  kheads prune my-encoder --task embed --train texts.txt --speedup 2 -o small",
        soft_wrap=True,
    )


def _job(recipe: Recipe, seed: int) -> Job:
    return Job(
        sources.EMBEDDED,
        flops=recipe.flops,
        task="embed",
        data={"train": str(SENTENCES), "eval": {EVALUATION: str(PAIRS)}},
        max_steps=recipe.steps,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        save_steps=recipe.steps,
        seed=seed,
    )


def _table(outcome: Outcome, recipe: Recipe, speed: float, parameters: int) -> Any:
    """One row for each stage; cut and repair leave a model of the same shape as the training does."""
    metrics, seconds = outcome.record["metrics"], outcome.record["report"]["seconds"]
    saved = terminal.percent(1 - outcome.record["after"]["parameters"] / parameters)
    untrained = seconds["estimate"] + seconds["repair"]
    stages = {
        "unpruned": (UNPRUNED_LABEL, "", "", ""),
        "cut": ("cut", f"{seconds['estimate']:.0f}", saved, f"{speed:.2f}x"),
        "repaired": ("repaired, no training", f"{untrained:.0f}", saved, f"{speed:.2f}x"),
        "pruned": (f"and {recipe.steps} steps", f"{untrained + seconds['adapt']:.0f}", saved, f"{speed:.2f}x"),
    }
    rows = [
        (label, *(f"{metrics[stage][EVALUATION][name]:.3f}" for name in (embedding.COSINE, embedding.SPEARMAN)), *rest)
        for stage, (label, *rest) in stages.items()
    ]
    names = ("", "cosine to the original", "Spearman on scored pairs", "seconds", "parameters saved", "speed")
    return terminal.rows_table("", names, rows)


def _neighbours(whole: Any, small: Any, texts: list[str]) -> Any:
    """The nearest sentence by the original's embeddings and by those of the smaller model."""
    found = sources.sentence_folder(sources.EMBEDDED)
    assert found is not None, "the embedded model is a sentence-transformers folder"
    words = processors.tokenizer(sources.EMBEDDED)
    nearest = [_nearest(model, found.embedder, words, texts) for model in (whole, small)]
    return terminal.rows_table("", ("sentence", "before", "after"), list(zip(ASKED, *nearest, strict=True)))


@torch.inference_mode()
def _nearest(model: Any, embedder: Embedder, words: Any, texts: list[str]) -> list[str]:
    def vectors(given: list[str]) -> Tensor:
        return embedder.of(model.eval(), embedder.tokens(words, given))

    chosen = (vectors(list(ASKED)) @ vectors(texts).T).argmax(1)
    return [texts[int(index)] for index in chosen]
