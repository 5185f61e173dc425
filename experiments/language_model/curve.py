"""SmolLM2-135M on WikiText-2 without training: key-value groups 90 -> 75, 60, 45, and heads and neurons together.

python experiments/language_model/curve.py MODEL DATA SEED FILE [CURVE...]

`smollm2.py` makes the model's folder; DATA has train.txt.gz and dev.txt.gz. Blocks are scored once for all amounts, as
`kheads preview` does it, then cut and repaired by what `kheads prune --no-training` uses. Embeddings are 21 % of the
parameters, so 92, 84 and 76 % of all are 90, 80 and 70 % of the layers'. The file grows with each model, and a second
call goes on. The training text is used without labels of any kind, in blocks of 256 tokens; models are evaluated in
bfloat16, which takes half as long. REPAIR is the number of blocks to repair with, 64 if it is not set.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from kheads import METHODS, Budget, discover
from kheads.lab.jobs.job import Job
from kheads.lab.preview.ready import ready
from kheads.lab.preview.trial import cut_and_repaired, opened, score
from kheads.measuring.measurement import size
from kheads.measuring.pricing import price
from kheads.methods.base import Goal
from kheads.training.recording import machine, versions, write_json

GROUPS, SHARES = (75, 60, 45), (0.92, 0.84, 0.76)
CURVES = {  # who chooses, its fields (michel removes all at once), and what may go
    "surgeon": ("surgeon", {}, "heads"),
    "random": ("random", {}, "heads"),
    "michel": ("michel", {"per_round": 90}, "heads"),
    "both": ("surgeon", {}, "all"),
}
SETTINGS = {
    "max_length": 256,
    "max_eval": 40,
    "batch_size": 4,
    "estimate_examples": 32,
    "repair_examples": int(os.environ.get("REPAIR", "64")),
    "bf16": True,
}


def goals(model, parts):
    """What to keep, from the most to the least, as a scoring needs it."""
    sites = discover(model, parts=parts)
    if parts == "heads":
        return {f"{k} groups": Goal(k, sites) for k in GROUPS}
    budgets = {f"{share:.0%} of the parameters": Budget(params=share) for share in SHARES}
    return {name: Goal(budget, sites, costs=price(model, budget, sites)) for name, budget in budgets.items()}


def looked_at(job, curve, found, keep):
    """Cuts and repairs for every amount that has no result yet."""
    method, own, parts = CURVES[curve]
    job, prepared = ready(job)
    with tempfile.TemporaryDirectory() as folder:
        run = opened(job, prepared, folder)
        run.method = METHODS[method](**own)  # here, because a preview knows none by chance
        if "unpruned" not in found:
            found["unpruned"] = run.bench.evaluate()[0]
            keep()
        asked = goals(run.original, parts)
        left = [name for name in asked if f"{method}, {name}" not in found["points"]]
        if not left:
            return
        begin = time.monotonic()
        score(run, list(asked.values())[-1])
        scoring = time.monotonic() - begin
        for name in left:
            run.goal, begin, point = asked[name], time.monotonic(), f"{method}, {name}"
            kept = run.goal.kept(run.scores)
            cut, repaired = cut_and_repaired(run, kept, lambda text, point=point: print(point, text, flush=True))
            found["points"][point] = {
                "cut": cut,
                "repaired": repaired,
                "parameters": size(run.bench.model)["parameters"],
                "kept": {site: len(blocks) for site, blocks in kept.to_dict().items()},
                "seconds": {"scoring": scoring, "cut, repair and evaluation": time.monotonic() - begin},
            }
            keep()


def main():
    """Every method and amount of one seed."""
    model, data, seed, file = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    about = {"model": "SmolLM2-135M-Instruct", "data": "WikiText-2", "seed": seed, **SETTINGS}
    found = {"settings": about, "versions": versions(), "machine": machine(), "points": {}}
    if file.exists():
        found = json.loads(file.read_text())
    files = {"train": str(data / "train.txt.gz"), "eval": {"eval": str(data / "dev.txt.gz")}}
    options = {"task": "clm", "data": files, "seed": seed, **SETTINGS}
    assert found["settings"] == about, "the file has other settings; name another one"
    for curve in sys.argv[5:] or CURVES:
        looked_at(Job(model, **options), curve, found, lambda: write_json(found, file))


if __name__ == "__main__":
    main()
