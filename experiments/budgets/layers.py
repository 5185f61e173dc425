"""Keep every second layer, or fewer, and train on with the whole model as teacher: what a user would do without kheads.

python experiments/budgets/layers.py FOLDER LAYERS STEPS TRAIN EVAL RESULT.json [--seed 0] [--rows 1000] [--bf16]

Layers are taken evenly, the first among them.
"""

import argparse
import copy
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from kheads.lab.jobs.job import Job
from kheads.lab.jobs.running import arguments, evaluate, prepare
from kheads.measuring.measurement import shared_copy, size
from kheads.training.distillation import Distillation, Teacher
from kheads.training.recording import machine, versions


def shortened(model: Any, count: int) -> Any:
    """A copy of a BERT with so many of its layers."""
    small: Any = shared_copy(model)
    layers = list(small.bert.encoder.layer)
    small.bert.encoder.layer = nn.ModuleList([layers[number * len(layers) // count] for number in range(count)])
    small.config.num_hidden_layers = count
    return small


def main() -> None:
    """Leaves layers out, trains on, measures, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "layers", "steps", "train", "eval", "result"):
        parser.add_argument(name, type=int if name in ("layers", "steps") else str)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--bf16", action="store_true")
    given = parser.parse_args()
    job = Job(
        given.folder,
        method="none",
        data={"train": given.train, "eval": {"report": given.eval}},
        max_steps=given.steps,
        max_eval=given.rows,
        max_length=96,
        batch_size=16,
        seed=given.seed,
        bf16=given.bf16,
        trained=True,
    )
    prepared = prepare(job)
    whole: Any = prepared.model
    small = shortened(whole, given.layers)
    teacher = Teacher(whole, Distillation(stream=0))  # its hidden states are of more layers than the student has
    small = copy.deepcopy(small)  # it shared its weights with the whole model
    ready = replace(prepared, model=small)
    cut = evaluate(ready, quiet=True)
    with tempfile.TemporaryDirectory() as place:
        trainer = prepared.trainer_class(
            model=small,
            args=arguments(Path(place), job, prepared, quiet=True),
            train_dataset=prepared.train,
            teacher=teacher,
            processing_class=prepared.processor,
            **prepared.trainer_options,
        )
        trainer.train()
    record = {
        "layers": given.layers,
        "steps": given.steps,
        "seed": given.seed,
        "bf16": given.bf16,
        "metrics": {"unpruned": evaluate(prepared, quiet=True), "cut": cut, "pruned": evaluate(ready, quiet=True)},
        "parameters": size(small)["parameters"],
        "versions": versions(),
        "machine": machine(),
    }
    Path(given.result).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
