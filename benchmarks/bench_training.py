"""What gates cost: a training step of joint DSP against plain fine-tuning of the same model, interleaved and paired.

    python benchmarks/bench_training.py

Prints a table of median paired ratios with 95 % bootstrap intervals and, last, one JSON line. Whole steps vary by more
than gates cost, so the gates' own work (the draw, and the products at every site, forward and backward) is also timed
by itself and given as a share of a plain step.
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

import kheads
from kheads.methods import Goal
from kheads.recording import machine, versions
from kheads.training import TrainedGates

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
CASES = [("BERT-base", BASE, 8, 128, 12), ("BERT-base", BASE, 8, 128, 132), ("MiniLM", MINILM, 32, 32, 12)]
STEPS = 1000  # what the schedule believes; timing starts in its middle, where the recursion is at work


class Steps:
    """Optimizer steps of one model, with gates or without: the same weights and the same memory for both."""

    def __init__(self, model: Any, k: int, batch: dict[str, torch.Tensor]):
        self.model, self.batch, self.number = model.train(), batch, STEPS // 4
        self.weights = list(model.parameters())
        self.gates = TrainedGates(kheads.DSP(), Goal(k, kheads.discover(model)), 0)
        groups = [{"params": self.weights, "lr": 2e-5}, {"params": [self.gates.w], "lr": 0.5}]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)

    def plain(self) -> float:
        """Seconds of a step without gates; their weights have no gradient, so the optimizer passes them over."""
        begin = time.perf_counter()
        self._step()
        return time.perf_counter() - begin

    def joint(self) -> float:
        """Seconds of a step with gates; attaching them is done once in a training and is not counted."""
        kheads.attach(self.model, self.gates)
        begin = time.perf_counter()
        self.number += 1
        self.gates.set_moment(self.number, STEPS)
        self._step([self.gates.w])
        seconds = time.perf_counter() - begin
        kheads.detach(self.model)
        return seconds

    def _step(self, gates: Sequence[torch.nn.Parameter] = ()) -> None:
        self.model(**self.batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        if gates:
            torch.nn.utils.clip_grad_norm_(gates, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def own_work(gates: kheads.Gates, batch: int, length: int, width: int, repeats: int = 15) -> float:
    """Seconds of what gates add to a step: the draw and, at every site, the products; forward and backward."""
    sites = gates.sites
    given = [torch.randn(batch, length, width, requires_grad=True) for _ in sites]
    back = [torch.randn(batch, length, width) for _ in sites]
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        gates.redraw()
        parts = gates.values().split([site.num_heads for site in sites])
        pairs = zip(given, parts, sites, strict=True)
        outputs = [
            (hidden.unflatten(-1, (site.num_heads, -1)) * values.to(hidden.dtype).unsqueeze(-1)).flatten(-2)
            for hidden, values, site in pairs
        ]
        torch.autograd.backward(outputs, back)
        torch.nn.utils.clip_grad_norm_([gates.w], 1.0)
        seconds.append(time.perf_counter() - begin)
        for tensor in (*given, gates.w):
            tensor.grad = None
    return float(torch.tensor(seconds).median())


def paired(steps: Steps, repeats: int) -> tuple[list[float], float]:
    """Ratios of neighbouring steps, of which either may go first, and the median seconds of a plain one."""
    steps.plain()  # warm-up, and the memory that lasts
    steps.joint()
    ratios, seconds = [], []
    for number in range(repeats):
        if number % 2:
            joint, plain = steps.joint(), steps.plain()
        else:
            plain, joint = steps.plain(), steps.joint()
        ratios.append(joint / plain)
        seconds.append(plain)
    return ratios, float(torch.tensor(seconds).median())


def interval(ratios: list[float]) -> tuple[float, float, float]:
    sample = torch.tensor(ratios, dtype=torch.float64)
    draws = sample[torch.randint(len(sample), (5000, len(sample)), generator=torch.Generator().manual_seed(0))]
    low, high = torch.quantile(draws.median(1).values, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(sample.median()), low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    torch.manual_seed(0)
    results = []
    print("| model | batch | K | step with gates / plain step | 95 % interval | gates' own work |")
    print("|---|---|---|---|---|---|")
    for name, sizes, batch, length, k in CASES:
        model = BertForSequenceClassification(BertConfig(**sizes, num_labels=3))
        inputs = {"input_ids": torch.randint(1000, 20000, (batch, length)), "labels": torch.randint(3, (batch,))}
        steps = Steps(model, k, inputs)
        repeats = given.repeats * (1 if name == "BERT-base" else 4)
        ratios, plain = paired(steps, repeats)
        median, low, high = interval(ratios)
        own = own_work(steps.gates, batch, length, sizes["hidden_size"]) / plain
        total = sizes["num_hidden_layers"] * sizes["num_attention_heads"]
        cells = [
            name,
            f"{batch} x {length}",
            f"{k} of {total}",
            f"{median:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{own:.1%}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
        figures = {"ratio": median, "interval": [low, high], "own_work": own, "plain_seconds": plain}
        results.append({"model": name, "batch": [batch, length], "k": k, **figures})
    print(json.dumps({"benchmark": "training", "results": results, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
