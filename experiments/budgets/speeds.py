"""What the models of results.jsonl.gz run at: all of a seed take turns with the whole model, at 8 x 128 and at 1 x 32.

python experiments/budgets/speeds.py WORK RESULTS SPEEDS.json [SEED]

WORK has the trained models. Needs a machine that does nothing else.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from layers import shortened
from transformers import AutoModelForSequenceClassification

from kheads import Kept
from kheads.lab.packing import load
from kheads.measuring.measurement import cut_copy, ready
from kheads.measuring.timing import interleaved, speedup
from kheads.storage.probe import probe_inputs
from kheads.training.recording import machine, versions

SHAPES, ROUNDS, LAYERS = ((8, 128), (1, 32)), 15, (4, 3, 2, 1)


def smaller(work: Path, results: Path, seed: str) -> dict[str, Any]:
    """The whole model, every model of the results, and what layers left out leave."""
    whole: Any = AutoModelForSequenceClassification.from_pretrained(work / f"made-{seed}").eval()
    found = {"whole": whole}
    for path, record in load(results).items():
        name = Path(path).stem
        if path.startswith("runs/made-") and name.endswith(f"-{seed}"):
            found[name] = cut_copy(whole, Kept.from_dict(record["kept"]))
    return found | {f"layers-{count}": shortened(whole, count) for count in LAYERS}


def main() -> None:
    """Measures and writes."""
    work, results, output = map(Path, sys.argv[1:4])
    models = smaller(work, results, sys.argv[4] if len(sys.argv) > 4 else "0")
    record: dict[str, Any] = {"threads": torch.get_num_threads(), "rounds": ROUNDS, "speeds": {}}
    for shape in SHAPES:
        inputs = probe_inputs(models["whole"], *shape)
        with ready(models.values(), torch.get_num_threads()), torch.inference_mode():
            calls = [partial(model, **inputs) for model in models.values()]
            seconds = dict(zip(models, interleaved(calls, ROUNDS, torch.device("cpu")), strict=True))
        for name, taken in seconds.items():
            ratio = speedup(seconds["whole"], taken)
            print(f"{shape[0]} x {shape[1]}  {name}: {ratio}")
            speeds = record["speeds"].setdefault(name, {})
            speeds[f"{shape[0]}x{shape[1]}"] = [ratio.ratio, ratio.low, ratio.high]
    record |= {"versions": versions(), "machine": machine()}
    output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
