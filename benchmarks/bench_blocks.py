"""How discovery, selection, masks and removal grow with the number of blocks: ten times as many, one thread.

    python benchmarks/bench_blocks.py

Tiny widths, many heads: a decoder in which every head has its own keys and values, the same with two query heads to a
key-value head and single query heads removed, an encoder-decoder with three kinds of attention, and a decoder with ten
times as many layers of a tenth of the heads. Both sizes of a model take turns. Times are of the processor, which other
jobs on the machine disturb less than the clock; the JSON line, printed last, has the clock's too. What is linear takes
ten times as long for ten times the blocks.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import MistralConfig, MistralModel, T5Config, T5Model

import kheads
from kheads import Constraints, Kept
from kheads.training.recording import machine, versions

SMALL, LARGE, HEADS = 12, 120, 840  # attentions of the smaller and the larger model, and heads in each
WHOLE = ("discover", "select", "mask", "remove")  # what one pruning does
TARGET = 1.0  # seconds, of all of these together

Times = dict[str, tuple[float, float]]  # processor and clock


@dataclass(frozen=True)
class Case:
    """A model to be made with so many attentions, and what counts as one of its heads."""

    build: Callable[[int], Any]
    unit: str = "group"


def decoder(attentions: int, shared: int = 1, deeper: int = 1) -> Any:
    heads, layers = HEADS // deeper, attentions * deeper
    sizes = {"hidden_size": 4, "head_dim": 2, "intermediate_size": 4, "vocab_size": 8, "num_hidden_layers": layers}
    return MistralModel(MistralConfig(**sizes, num_attention_heads=heads, num_key_value_heads=heads // shared))


def encoder_decoder(attentions: int) -> Any:
    layers = attentions // 3
    sizes = {"d_model": 4, "d_kv": 2, "d_ff": 4, "vocab_size": 8, "num_layers": layers, "num_decoder_layers": layers}
    return T5Model(T5Config(**sizes, num_heads=HEADS))


CASES = {
    "decoder": Case(decoder),
    "query heads in pairs": Case(lambda attentions: decoder(attentions, shared=2), "query"),
    "encoder-decoder": Case(encoder_decoder),
    "deep decoder": Case(lambda attentions: decoder(attentions, deeper=10)),
}


def constraints(sites: tuple[kheads.Site, ...], k: int) -> dict[str, Constraints]:
    """One of every sort, as demanding as `k` allows."""
    kinds = sorted({site.kind for site in sites})
    protected = {site.name: range(0, site.count, 4) for site in sites}
    return {
        "min_per_site": Constraints(min_per_site=k // len(sites) // 2),
        "uniform": Constraints(uniform=True),
        "protected": Constraints(protected=protected),
        "quotas": Constraints(quotas={kind: k // len(kinds) // 2 for kind in kinds[1:]}),
        "all but uniform": Constraints(k // len(sites) // 4, False, protected, {kinds[0]: k // len(kinds)}),
    }


def run(model: Any, unit: str) -> Times:
    """The time of each operation, once; the model is left as it was."""
    times: Times = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        begin = time.process_time(), time.perf_counter()
        result = call()
        times[name] = time.process_time() - begin[0], time.perf_counter() - begin[1]
        return result

    sites = timed("discover", lambda: kheads.discover(model, unit))
    k = sum(site.count for site in sites) // 2
    scores = torch.randn(2 * k, generator=torch.Generator().manual_seed(0))
    kept = timed("select", lambda: kheads.select(scores, k, sites))
    for name, asked in constraints(sites, k).items():
        timed(f"select, {name}", lambda asked=asked: kheads.select(scores, k, sites, asked))
    mask = timed("mask", lambda: kept.mask(sites))
    timed("from_mask", lambda: Kept.from_mask(mask, sites))
    twin = copy.deepcopy(model)
    timed("remove", lambda: kheads.remove(twin, kept, unit))
    times["together"] = sum(times[name][0] for name in WHOLE), sum(times[name][1] for name in WHOLE)
    return times


def compare(case: Case, repeats: int) -> list[dict[str, Any]]:
    """Median seconds of every operation for both sizes, which take turns."""
    models = [case.build(attentions) for attentions in (SMALL, LARGE)]
    rounds = [[run(model, case.unit) for model in models] for _ in range(repeats + 1)][1:]  # the first warms up
    return [_row(name, [[times[name] for times in both] for both in rounds]) for name in rounds[0][0]]


def _row(name: str, rounds: list[list[tuple[float, float]]]) -> dict[str, Any]:
    small, large = (median(both[which][0] for both in rounds) for which in (0, 1))
    growth = median(both[1][0] / both[0][0] for both in rounds)
    clock = [median(both[which][1] for both in rounds) for which in (0, 1)]
    return {"operation": name, "small": small, "large": large, "growth": growth, "clock": clock}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    results = {}
    for name, case in CASES.items():
        results[name] = compare(case, repeats)
        print(f"\n| {name} | {SMALL * HEADS:,} blocks, ms | {LARGE * HEADS:,} blocks, ms | growth |\n|---|---|---|---|")
        for row in results[name]:
            cells = f"{1e3 * row['small']:.1f} | {1e3 * row['large']:.1f} | {row['growth']:.1f}x"
            print(f"| {row['operation']} | {cells} |", flush=True)
    together = ", ".join(f"{name} {rows[-1]['large']:.2f} s" for name, rows in results.items())
    print(f"\n{' + '.join(WHOLE)} of {LARGE * HEADS:,} blocks: {together}. The target is {TARGET:g} s.")
    print(json.dumps({"benchmark": "blocks", "results": results, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
