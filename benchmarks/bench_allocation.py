"""What a training step on a CPU loses because glibc hands freed memory back to the system, and what keeping it gains.

    python benchmarks/bench_allocation.py

Steps of AdamW on a BERT of MiniLM's size, one thread, with batches of long and of short sentences, and with batches
padded to their longest sentence, each of another length. `mallopt` cannot be undone, so each setting is a process of
its own; the two of a pair run one after the other, in an order that alternates. A gain is the median over the pairs of
their ratios, with a 95 % bootstrap interval: of the clock, and of the processor's time, user and system together, which
other jobs on the machine disturb less. Prints a table and, last, one JSON line.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from kheads.cli.allocation import keep_freed_memory
from kheads.measuring.timing import Ratio, speedup
from kheads.training.recording import machine, versions

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
CASES = {"32 x 64": (64, 64), "32 x 16": (16, 16), "32 x 16 to 64": (16, 64)}  # shortest and longest batch
BATCH = 32
SETTINGS = ("as it is", "kept")
WARMUP = 3  # steps; the optimizer's state is made in the first
WORTH = 1.05  # from this gain on, the command line keeps freed memory

Pair = dict[str, dict[str, float]]


def train(shortest: int, longest: int, steps: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Seconds of the clock, user and system time, and page faults of each step; and the most memory taken."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = BertForSequenceClassification(BertConfig(**sizes, num_labels=3)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    lengths = random.Random(0)
    rows = []
    for _ in range(WARMUP + steps):
        ids = torch.randint(1000, 20000, (BATCH, lengths.randint(shortest, longest)))
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        model(input_ids=ids, labels=torch.randint(3, (BATCH,))).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, after.ru_minflt - before.ru_minflt
        rows.append((clock, *used))
    columns = zip(("clock", "user", "system", "faults"), zip(*rows[WARMUP:], strict=True), strict=True)
    return {**dict(columns), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def child(setting: str, case: str, steps: int) -> None:
    if setting == "kept" and not keep_freed_memory():
        raise SystemExit("This needs Linux and glibc, and none of its settings in the environment.")
    print(json.dumps(train(*CASES[case], steps, MINILM)))


def measure(setting: str, case: str, steps: int) -> dict[str, float]:
    """Means over the steps of one process: those of other lengths differ, and both settings see the same ones."""
    command = [sys.executable, __file__, "--child", setting, "--case", case, "--steps", str(steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    means = {name: value if name == "peak" else sum(value) / steps for name, value in found.items()}
    return {**means, "processor": means["user"] + means["system"]}


def column(pairs: list[Pair], setting: str, name: str) -> Tensor:
    return torch.tensor([pair[setting][name] for pair in pairs], dtype=torch.float64)


def gain(pairs: list[Pair], name: str) -> Ratio:
    """How many times as fast steps are where freed memory is kept."""
    before, after = (column(pairs, setting, name) for setting in SETTINGS)
    return speedup(before, after)


def row(case: str, pairs: list[Pair]) -> dict[str, Any]:
    found: dict[str, Any] = {"case": case, "pairs": pairs}
    for name in ("clock", "processor"):
        ratio = gain(pairs, name)
        found[name] = [ratio.ratio, ratio.low, ratio.high]
    for setting in SETTINGS:
        found[setting] = {name: median(column(pairs, setting, name).tolist()) for name in pairs[0][setting]}
        shares = column(pairs, setting, "system") / column(pairs, setting, "processor")
        found[setting]["share"] = median(shares.tolist())
    return found


def show(found: dict[str, Any]) -> str:
    before, after = (found[setting] for setting in SETTINGS)
    cells = [found["case"], f"{before['processor']:.2f}"]
    cells += [f"{100 * before['share']:.1f} % to {100 * after['share']:.1f} %"]
    cells += [f"{before['faults']:,.0f} to {after['faults']:,.0f}"]
    cells += ["{:.3f} ({:.3f} to {:.3f})".format(*found[name]) for name in ("processor", "clock")]
    return f"| {' | '.join(cells)} | {after['peak'] / before['peak']:.2f}x |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8, help="of each process, after the warm-up (default: 8)")
    parser.add_argument("--child", choices=SETTINGS, help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.case, given.steps)
        return
    pairs: dict[str, list[Pair]] = {case: [] for case in CASES}
    for number in range(given.pairs):
        for case, found in pairs.items():
            order = SETTINGS if number % 2 else SETTINGS[::-1]
            found.append({setting: measure(setting, case, given.steps) for setting in order})
        print(f"pair {number + 1} of {given.pairs}", file=sys.stderr, flush=True)
    rows = [row(case, found) for case, found in pairs.items()]
    print("| batch | processor, s | in the system | page faults | gain, processor | gain, clock | memory |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(show(found) for found in rows))
    print(f"\nThe command line keeps freed memory if that gains {100 * (WORTH - 1):.0f} % or more.")
    settings = {"steps": given.steps, "versions": versions(), "machine": machine()}
    print(json.dumps({"benchmark": "allocation", "rows": rows, **settings}))


if __name__ == "__main__":
    main()
