"""Where the ranking of heads settles: the K best by few examples beside those by 4,096.

python experiments/trained/settling.py MODEL TRAIN_FILE METHOD...

Scores the heads of a trained classifier with 128, 256, ... examples and prints how many of the best 24 and 12 are among
the best by all of them; two draws of the examples each. One JSON line a method at the end.
"""

import json
import sys
from typing import Any

import torch
from transformers import DataCollatorWithPadding

from kheads import METHODS, discover
from kheads.methods.base import Evidence, Goal
from kheads.storage import processors, sources
from kheads.tasks import from_files
from kheads.training.batching import small_batches

MOST, SIZES, DRAWS, KS = 4096, (128, 256, 512, 1024, 2048), 2, (24, 12)

folder, file, *methods = sys.argv[1:]
torch.set_num_threads(1)
model = sources.trained_classifier(folder).eval()
words = processors.tokenizer(folder)
task = from_files(file, {"eval": file}, labels=sources.labels_of(model.config)).sample(MOST, 10, 0)
rows = task.tokenize(words, 96).train
goal, collate = Goal(12, discover(model)), DataCollatorWithPadding(words)


def evidence(chosen: list[int]) -> Evidence:
    """Some of the rows, in batches of similar length."""
    lengths = [rows[index]["length"] for index in chosen]
    batches = small_batches(lengths, len(chosen), 32, 2048)
    fields = [name for name in rows.column_names if name != "length"]
    made = [collate([{name: rows[chosen[i]][name] for name in fields} for i in batch]) for batch in batches]
    return Evidence(lambda label: made, lambda built, batch: (built(**batch).loss, torch.ones(len(batch["labels"]))), 0)


def best(name: str, chosen: list[int]) -> dict[int, set[int]]:
    """The K heads of highest score, by K."""
    options = {"per_round": goal.total} if name == "michel" else {}  # one round
    method: Any = METHODS[name].configured(options)
    scores = method.estimate(model, goal, evidence(chosen))
    return {k: set(scores.topk(k).indices.tolist()) for k in KS}


for name in methods:
    all_of_them = best(name, list(range(len(rows))))
    found: dict[str, dict[int, list[int]]] = {f"of {k}": {} for k in KS}
    for size in SIZES:
        for draw in range(DRAWS):
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(draw)).tolist()
            chosen = best(name, order[:size])
            for k in KS:
                found[f"of {k}"].setdefault(size, []).append(len(chosen[k] & all_of_them[k]))
        print(name, size, {key: values[size] for key, values in found.items()}, flush=True)
    print(json.dumps({"method": name, "examples": len(rows), "the same": found}))
