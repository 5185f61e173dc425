"""What gates cost: a training step of joint DSP against plain fine-tuning of the same model, interleaved and paired.

    python benchmarks/bench_training.py

Prints a table of median paired ratios with 95 % bootstrap intervals and, last, one JSON line. Whole steps vary by more
than gates cost, so the gates' own work (the draw, and the products at every site, forward and backward) is also timed
by itself and given as a share of a plain step.
"""

import argparse
import copy
import json
import time
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


class Step:
    """One optimizer step of a model, with gates or without."""

    def __init__(self, model: Any, k: int | None, batch: dict[str, torch.Tensor]):
        self.model, self.batch, self.gates, self.number = model.train(), batch, None, STEPS // 4
        groups: list[dict[str, Any]] = [{"params": list(model.parameters()), "lr": 2e-5}]
        if k is not None:
            self.gates = TrainedGates(kheads.DSP(), Goal(k, kheads.discover(model)), 0)
            kheads.attach(model, self.gates)
            groups.append({"params": [self.gates.w], "lr": 0.5})
        self.weights = groups[0]["params"]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)

    def __call__(self) -> float:
        begin = time.perf_counter()
        if self.gates is not None:
            self.number += 1
            self.gates.set_moment(self.number, STEPS)
        self.model(**self.batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        if self.gates is not None:
            torch.nn.utils.clip_grad_norm_([self.gates.w], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begin


def own_work(step: Step, batch: int, length: int, width: int, repeats: int = 15) -> float:
    """Seconds of what gates add to a step: the draw and, at every site, the products; forward and backward."""
    assert step.gates is not None
    sites = step.gates.sites
    given = [torch.randn(batch, length, width, requires_grad=True) for _ in sites]
    back = [torch.randn(batch, length, width) for _ in sites]
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        step.gates.redraw()
        parts = step.gates.values().split([site.num_heads for site in sites])
        pairs = zip(given, parts, sites, strict=True)
        outputs = [
            (hidden.unflatten(-1, (site.num_heads, -1)) * values.to(hidden.dtype).unsqueeze(-1)).flatten(-2)
            for hidden, values, site in pairs
        ]
        torch.autograd.backward(outputs, back)
        torch.nn.utils.clip_grad_norm_([step.gates.w], 1.0)
        seconds.append(time.perf_counter() - begin)
        for tensor in (*given, step.gates.w):
            tensor.grad = None
    return float(torch.tensor(seconds).median())


def paired(plain: Step, joint: Step, repeats: int) -> tuple[list[float], float]:
    """Ratios of neighbouring steps, of which either may go first, and the median seconds of a plain one."""
    for step in (plain, joint):
        step()
    ratios, seconds = [], []
    for number in range(repeats):
        if number % 2:
            b, a = joint(), plain()
        else:
            a, b = plain(), joint()
        ratios.append(b / a)
        seconds.append(a)
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
        steps = Step(copy.deepcopy(model), None, inputs), Step(model, k, inputs)
        repeats = given.repeats * (1 if name == "BERT-base" else 4)
        ratios, plain = paired(*steps, repeats)
        median, low, high = interval(ratios)
        own = own_work(steps[1], batch, length, sizes["hidden_size"]) / plain
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
