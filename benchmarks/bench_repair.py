"""What `kheads.repair` gives back after a cut without training, and how long it takes.

    python benchmarks/bench_repair.py
    python benchmarks/bench_repair.py --steps 280

Keeps some of the 72 heads of the embedded model and repairs it on 512 examples of the embedded task. Without `--steps`
heads go by the size of their output weights or at random, and the figure is the cosine between the embeddings (mean
over tokens) of the smaller model and those of the unpruned one, on sentences that were not used. With `--steps` the
model is trained on the task first, Michel's method chooses, and the figure is accuracy. Prints a table and, last, one
JSON line.
"""

import argparse
import copy
import json
import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import DataCollatorWithPadding, TrainingArguments, set_seed

import kheads
from kheads.lab.demos.inference import Recipe, made_task
from kheads.lab.jobs import made_nli
from kheads.storage import processors, sources
from kheads.training.recording import machine, versions

BATCH = 32
Batches = list[dict[str, Tensor]]
Row = dict[str, Any]


def batches(rows: Any, count: int) -> Batches:
    """Examples in batches of similar length."""
    collate = DataCollatorWithPadding(processors.tokenizer(sources.EMBEDDED))
    chosen = sorted((rows[number] for number in range(count)), key=lambda row: len(row["input_ids"]))
    return [dict(collate(chosen[start : start + BATCH])) for start in range(0, count, BATCH)]


@torch.no_grad()
def embeddings(model: Any, given: Batches) -> Tensor:
    """The mean of the last hidden states over the tokens of each example."""
    found = []
    for batch in given:
        hidden = model.base_model(**{name: value for name, value in batch.items() if name != "labels"})[0]
        mask = batch["attention_mask"].unsqueeze(-1)
        found.append((hidden * mask).sum(1) / mask.sum(1))
    return torch.cat(found)


@torch.no_grad()
def accuracy(model: Any, given: Batches) -> float:
    """The share of right answers."""
    right = [(model(**batch).logits.argmax(-1) == batch["labels"]).float() for batch in given]
    return float(torch.cat(right).mean())


def by_size(model: Any, k: int) -> kheads.Kept:
    """The heads with the largest output weights."""
    sites = kheads.discover(model)
    scores = torch.cat([site.weight(model).detach().norm(dim=(0, 2)) for site in sites])
    return kheads.select(scores, k, sites)


def at_random(model: Any, k: int) -> kheads.Kept:
    """Any heads."""
    sites = kheads.discover(model)
    return kheads.select(torch.rand(72, generator=torch.Generator().manual_seed(0)), k, sites)


def repaired(whole: Any, kept: kheads.Kept, given: Batches, figure: Any) -> Row:
    """The figure after the cut, after a repair of attentions alone, and after a whole one."""
    cut = kheads.remove(copy.deepcopy(whole), kept)
    row: Row = {"cut": figure(cut)}
    for parts in ("heads", "all"):
        model = copy.deepcopy(cut)
        begin, used = time.perf_counter(), time.process_time()
        record = kheads.repair(model, whole, given, parts)
        row[parts] = figure(model)
        row[f"{parts}_seconds"] = round(time.perf_counter() - begin, 1)
        row[f"{parts}_processor"] = round(time.process_time() - used, 1)
        row["tokens"], row["refitted"] = record.tokens, len(record.refitted)
    return row


def without_training(task: Any, ks: list[int]) -> list[Row]:
    """Cosine to the unpruned embeddings."""
    model, _ = sources.classifier(sources.EMBEDDED, **task.model_kwargs)
    model.eval()
    encoded = task.tokenize(processors.tokenizer(sources.EMBEDDED))
    given, held = batches(encoded.train, 512), batches(encoded.evals["unseen words"], 256)
    right = embeddings(model, held)

    def figure(pruned: Any) -> float:
        return float(cosine_similarity(embeddings(pruned, held), right).mean())

    choices = {"by size": by_size, "at random": at_random}
    return [
        {"k": k, "chosen": name, "whole": 1.0, **repaired(model, choose(model, k), given, figure)}
        for k in ks
        for name, choose in choices.items()
    ]


def with_training(task: Any, ks: list[int], steps: int) -> list[Row]:
    """Accuracy on unseen words, of a model that was trained for that many steps, with heads chosen by Michel."""
    recipe = replace(Recipe(), steps=steps)
    set_seed(0)
    model, _ = sources.classifier(sources.EMBEDDED, **task.model_kwargs, **made_nli.NO_DROPOUT)
    words = processors.tokenizer(sources.EMBEDDED)
    encoded = task.tokenize(words)
    options: dict[str, Any] = {"data_collator": DataCollatorWithPadding(words), "processing_class": words}
    arguments = TrainingArguments(
        max_steps=steps,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.lr,
        warmup_steps=steps // 10,
        report_to="none",
        save_strategy="no",
        train_sampling_strategy="group_by_length",
    )
    whole: Any = kheads.prune(model, None, train_dataset=encoded.train, args=arguments, **options).model.eval()
    given, held = batches(encoded.train, 512), batches(encoded.evals["unseen words"], recipe.eval_rows)
    rows = []
    for k in ks:
        chosen = kheads.prune(
            copy.deepcopy(whole),
            k,
            kheads.Michel(),
            encoded.train,
            args=arguments,
            plan=kheads.Plan(trained=True, repair=False, estimate_examples=512),
            **options,
        )
        found = repaired(whole, chosen.kept, given, lambda pruned: accuracy(pruned, held))
        rows.append({"k": k, "chosen": "Michel", "whole": accuracy(whole, held), **found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, nargs="+", default=[36, 24, 12])
    parser.add_argument("--steps", type=int, default=0)
    given = parser.parse_args()
    task = made_task(Recipe(), 0)
    rows = with_training(task, given.k, given.steps) if given.steps else without_training(task, given.k)
    titles = ("K", "heads chosen", "unpruned", "after the cut", "attentions repaired", "all repaired", "seconds")
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for row in rows:
        figures = " | ".join(f"{row[name]:.3f}" for name in ("whole", "cut", "heads", "all"))
        print(f"| {row['k']} | {row['chosen']} | {figures} | {row['all_seconds']} |")
    record = {"benchmark": "repair", "steps": given.steps, "rows": rows}
    print(json.dumps({**record, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
