"""Keep every second layer, or fewer, and train on with the whole model as teacher: what a user would do without kheads.

python experiments/budgets/layers.py FOLDER LAYERS STEPS TRAIN EVAL RESULT.json [SEED]

Layers are taken evenly, the first among them.
"""

import copy
import json
import sys
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
    folder, count, steps, train, evaluation, result = sys.argv[1:7]
    seed = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    job = Job(
        folder,
        method="none",
        data={"train": train, "eval": {"report": evaluation}},
        max_steps=int(steps),
        max_eval=1000,
        max_length=96,
        batch_size=16,
        seed=seed,
        trained=True,
    )
    prepared = prepare(job)
    whole: Any = prepared.model
    small = shortened(whole, int(count))
    teacher = Teacher(whole, Distillation())
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
        "layers": int(count),
        "steps": int(steps),
        "seed": seed,
        "metrics": {"unpruned": evaluate(prepared, quiet=True), "cut": cut, "pruned": evaluate(ready, quiet=True)},
        "parameters": size(small)["parameters"],
        "versions": versions(),
        "machine": machine(),
    }
    Path(result).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
