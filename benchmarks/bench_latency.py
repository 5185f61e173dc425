"""Whether a model that is chosen by latency tables is as fast as they predict.

    python benchmarks/bench_latency.py --fresh

Prices the heads and neurons of the embedded model in milliseconds, at 8 x 128 and at 1 x 32, chooses blocks within
several budgets (at random; single neurons, and multiples of 16), and removes the others. All models of a size take
turns with the whole one in one interleaved run. Compared are the speed-up that the tables predict and the median ratio
of neighbours, by the clock and, for one thread, by the processor's time, to which other jobs add little. FLOPs show
what counting alone would have predicted. With `--fresh` tables are measured anew, in a folder that is thrown away.
Prints a table and, last, one JSON line.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

import kheads
from kheads.blocks.budget import Budget
from kheads.blocks.site import total
from kheads.measuring.measurement import cut_copy, flops
from kheads.measuring.pricing import inputs_for, price
from kheads.measuring.timing import WARMUP, interleaved, speedup
from kheads.storage import sources
from kheads.training.recording import machine, versions

Row = dict[str, Any]
MULTIPLES = (1, 16)


class Watched:
    """A call that notes the processor time it takes."""

    def __init__(self, model: Any, inputs: dict[str, Tensor]) -> None:
        self.model, self.inputs, self.seconds = model, inputs, list[float]()

    def __call__(self) -> None:
        begin = time.process_time()
        self.model(**self.inputs)
        self.seconds.append(time.process_time() - begin)


def rows_at(model: Any, at: tuple[int, int], given: argparse.Namespace) -> list[Row]:
    """One row for each budget and multiple, from one interleaved run."""
    sites = kheads.discover(model, parts="all")
    scores = torch.rand(total(sites), generator=torch.Generator().manual_seed(0))
    begin = time.perf_counter()
    costs = price(model, Budget(speedup=2, at=at, threads=given.threads), sites)
    seconds = time.perf_counter() - begin
    chosen = {}
    for asked in given.speedup:
        for multiple in MULTIPLES:
            budget = Budget(speedup=asked, at=at, threads=given.threads)
            constraints = kheads.Constraints(multiple_of=multiple)
            chosen[asked, multiple] = kheads.select(scores, budget, sites, constraints, costs=costs)
    inputs = inputs_for(model, Budget(speedup=2, at=at))
    calls = [Watched(one, inputs) for one in (model, *(cut_copy(model, kept) for kept in chosen.values()))]
    with torch.inference_mode():
        times = interleaved(calls, given.repeats, torch.device("cpu"))
    used = torch.tensor([call.seconds[WARMUP:] for call in calls], dtype=torch.float64)
    whole, found = flops(model, inputs), []
    for number, ((asked, multiple), kept) in enumerate(chosen.items(), start=1):
        row = {"at": list(at), "asked": asked, "multiple_of": multiple, "blocks": len(kept), "price_seconds": seconds}
        row["predicted"] = costs.whole / costs.of(kept, sites)
        row["flops"] = whole / flops(calls[number].model, inputs)
        row["clock"] = asdict(speedup(times[0], times[number]))
        row["processor"] = asdict(speedup(used[0], used[number]))
        found.append(row)
    return found


def show(row: Row) -> str:
    """A line of the table."""
    ratios = ["{ratio:.2f} ({low:.2f} to {high:.2f})".format(**row[name]) for name in ("clock", "processor")]
    figures = [f"{row[name]:.2f}" for name in ("flops", "predicted")]
    cells = [" x ".join(map(str, row["at"])), f"{row['asked']:g}", str(row["multiple_of"]), *figures, *ratios]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=sources.EMBEDDED)
    parser.add_argument("--at", type=int, nargs=2, action="append", metavar=("BATCH", "LENGTH"))
    parser.add_argument("--speedup", type=float, nargs="+", default=[1.5, 2.0, 3.0, 5.0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = sources.model(given.model).eval()
    with tempfile.TemporaryDirectory() as folder:
        if given.fresh:
            os.environ["KHEADS_CACHE"] = folder
        rows = [row for at in given.at or [[8, 128], [1, 32]] for row in rows_at(model, (at[0], at[1]), given)]
    print("| batch | asked | multiple of | by FLOPs | predicted | by the clock | by the processor's time |")
    print("\n".join(["|---|---|---|---|---|---|---|", *map(show, rows)]))
    about = {"threads": given.threads, "repeats": given.repeats, "versions": versions(), "machine": machine()}
    print(json.dumps({"benchmark": "latency", **about, "rows": rows}))


if __name__ == "__main__":
    main()
