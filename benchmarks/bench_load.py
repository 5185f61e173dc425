"""What the checksum costs when a model of 1 GB is loaded.

    python benchmarks/bench_load.py

A model is only mapped when it is loaded; its weights come into memory when they are first used. So two things are
timed: `load` alone, and `load` with one pass over the weights, which is the least that anybody does with them. With and
without verification they take turns, and a ratio is the median over the rounds, with a 95 % bootstrap interval. The
files are in the system's cache; from a disk the difference is smaller. Prints a table and, last, one JSON line.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

import kheads
from kheads.measuring.timing import interleaved, speedup
from kheads.training.recording import machine, versions

TARGET = 1.10


def saved(folder: Path, layers: int) -> float:
    """Saves a pruned BERT of width 1,024 and returns its size in GB."""
    config = BertConfig(hidden_size=1024, num_hidden_layers=layers, num_attention_heads=16, intermediate_size=4096)
    model = BertModel(config)
    sites = kheads.discover(model)
    total = sum(site.count for site in sites)
    kheads.remove(model, kheads.select(torch.arange(total).double() % 7, total // 2, sites))
    kheads.save(model, folder)
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e9


def loading(folder: Path, verify: bool, read: bool) -> Callable[[], None]:
    def call() -> None:
        model = kheads.load(folder, verify=verify)
        if read:
            for parameter in model.parameters():
                parameter.sum()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=21)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        folder = Path(scratch) / "model"
        size = saved(folder, given.layers)
        calls = [loading(folder, verify, read) for read in (False, True) for verify in (False, True)]
        times = interleaved(calls, given.repeats, torch.device("cpu"), warmup=1)
    rows = {}
    for name, plain, verified in (("load", *times[:2]), ("load and read", *times[2:])):
        ratio = speedup(verified, plain)  # how many times as long it takes with verification
        seconds = [float(part.quantile(0.5)) for part in (plain, verified)]
        rows[name] = {"plain": seconds[0], "verified": seconds[1], "ratio": [ratio.ratio, ratio.low, ratio.high]}
        print(f"{name}, {size:.2f} GB: {seconds[0]:.3f} s, verified {seconds[1]:.3f} s: {ratio} (target {TARGET})")
    print(json.dumps({"benchmark": "load", "gb": size, "rows": rows, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
