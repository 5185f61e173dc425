"""Which distance to train by: a cut and repaired encoder, trained on from the same weights with each of them.

python experiments/embedding/losses.py MODEL SHARE STEPS TRAIN EVAL RESULT.json [SEED]

SHARE of the FLOPs at 8 x 128 stays. EVAL has scored pairs that nothing is reported on. Each variant is a distance, a
learning rate (before it is halved, as after every repair) and whether dropout stays.
"""

import copy
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from kheads.blocks.budget import Budget
from kheads.lab.jobs.job import Job
from kheads.lab.jobs.prepared import Prepared
from kheads.lab.jobs.running import arguments, evaluate, prepare
from kheads.methods.phases import GENTLE
from kheads.training.plan import Plan
from kheads.training.pruning import prune
from kheads.training.recording import machine, versions

DROPOUT = 0.1  # BERT's
VARIANTS: tuple[tuple[str, float, bool], ...] = (
    ("cosine", 1e-4, True),
    ("similarity", 1e-4, True),
    ("both", 1e-4, True),
    ("cosine", 1e-4, False),
    ("cosine", 4e-4, False),
    ("similarity", 4e-4, False),
    ("both", 4e-4, False),
    ("cosine", 1e-3, False),
    ("both", 1e-3, False),
)


def repaired(job: Job, prepared: Prepared, share: float, place: str) -> Any:
    """The model with this share of its FLOPs, cut and repaired."""
    result = prune(
        prepared.model,
        None,
        None,
        prepared.train,
        None,
        arguments(Path(place), job, prepared, quiet=True),
        budget=Budget(flops=share),
        plan=Plan(trained=True, training=False),
        trainer_class=prepared.trainer_class,
        processing_class=prepared.processor,
        **prepared.trainer_options,
    )
    return result.model


def trained(job: Job, ready: Prepared, variant: tuple[str, float, bool], place: str) -> dict[str, Any]:
    """The metrics of a copy that was trained by one variant."""
    distance, rate, dropout = variant
    model: Any = copy.deepcopy(ready.model)
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = DROPOUT if dropout else 0.0
    options = {**ready.trainer_options, "distance": distance}
    now = replace(ready, model=model, trainer_options=options)
    ready.trainer_class(
        model=model,
        args=arguments(Path(place), replace(job, lr=rate * GENTLE), ready, quiet=True),
        train_dataset=ready.train,
        processing_class=ready.processor,
        quiet=True,
        **options,
    ).train()
    return {"distance": distance, "rate": rate, "dropout": dropout, "metrics": evaluate(now, quiet=True)}


def main() -> None:
    """Cuts and repairs once, trains by each variant, and writes the record."""
    model, share, steps, train, evaluation, result = sys.argv[1:7]
    seed = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    data = {"train": train, "eval": {"held": evaluation}}
    job = Job(model, flops=float(share), task="embed", data=data, max_steps=int(steps), seed=seed, trained=True)
    prepared = prepare(job)
    before = evaluate(prepared, quiet=True)
    with tempfile.TemporaryDirectory() as place:
        ready = replace(prepared, model=repaired(job, prepared, float(share), place))
        found = {"unpruned": before, "repaired": evaluate(ready, quiet=True)}
        print(json.dumps(found), flush=True)
        tried = []
        for variant in VARIANTS:
            tried.append(trained(job, ready, variant, place))
            print(json.dumps(tried[-1]), flush=True)
    record = {"share": float(share), "steps": int(steps), "seed": seed, "metrics": found, "tried": tried}
    record |= {"versions": versions(), "machine": machine()}
    Path(result).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
