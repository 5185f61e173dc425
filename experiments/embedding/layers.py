"""Layers left out of an encoder, which then learns the whole one's embeddings by their squared distance.

python experiments/embedding/layers.py MODEL LAYERS STEPS TRAIN EVAL RESULT.json [SEED]

It is the usual recipe for smaller sentence encoders, and what a user would do without kheads. Layers are taken evenly,
the first among them; data, steps, batches, rate and dropout (none) are those of `kheads prune --task embed`.
"""

import copy
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kheads.blocks.budget import AT
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.running import arguments, evaluate, prepare
from kheads.measuring.measurement import measure, size
from kheads.storage.probe import probe_inputs
from kheads.training.recording import machine, versions


def shortened(model: Any, count: int) -> Any:
    """A copy of a bare BERT with so many of its layers."""
    small: Any = copy.deepcopy(model)
    layers = list(small.encoder.layer)
    small.encoder.layer = nn.ModuleList([layers[number * len(layers) // count] for number in range(count)])
    small.config.num_hidden_layers = count
    return small


def main() -> None:
    """Leaves layers out, trains on, measures, and writes the record."""
    source, count, steps, train, evaluation, result = sys.argv[1:7]
    seed = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    data = {"train": train, "eval": {"sts": evaluation}, "distance": "mse"}
    job = Job(source, method="none", task="embed", data=data, max_steps=int(steps), seed=seed, trained=True)
    prepared = prepare(job)
    small = shortened(prepared.model, int(count))
    ready = replace(prepared, model=small)
    cut = evaluate(ready, quiet=True)
    with tempfile.TemporaryDirectory() as place:
        prepared.trainer_class(
            model=small,
            args=arguments(Path(place), job, prepared, quiet=True),
            train_dataset=prepared.train,
            processing_class=prepared.processor,
            quiet=True,
            **prepared.trainer_options,
        ).train()
    metrics = {"unpruned": evaluate(prepared, quiet=True), "cut": cut, "pruned": evaluate(ready, quiet=True)}
    found = measure(small.eval(), probe_inputs(small, *AT), prepared.model, repeats=10).model.grid[0].speedup
    record = {
        "layers": int(count),
        "steps": int(steps),
        "seed": seed,
        "threads": torch.get_num_threads(),
        "metrics": metrics,
        "parameters": size(small)["parameters"],
        "speedup": None if found is None else vars(found),
        "versions": versions(),
        "machine": machine(),
    }
    Path(result).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
