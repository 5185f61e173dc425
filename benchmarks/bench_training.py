"""What gates cost: a training step of joint DSP against plain fine-tuning of the same model, interleaved and paired.

    python benchmarks/bench_training.py

Prints a table of ratios with 95 % bootstrap intervals and, last, one JSON line with every single time. On a shared
machine whole steps vary by more than gates cost. So there are two ratios, the median over pairs of neighbours and that
of the fastest steps of both, and the gates' own work (the draw, and the products at every site, forward and backward)
is also timed by itself and given as a share of a plain step.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import kheads
from kheads.methods.base import Goal
from kheads.training.learned_gates import LearnedGates
from kheads.training.recording import machine, versions

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
CASES = [("BERT-base", BASE, 8, 128, 12), ("BERT-base", BASE, 8, 128, 132), ("MiniLM", MINILM, 32, 32, 12)]
Statistic = Callable[[Tensor, Tensor], Tensor]
STEPS = 1000  # what the schedule believes; timing starts in its middle, where the recursion is at work


class Steps:
    """Optimizer steps of one model, with gates or without: the same weights and the same memory for both."""

    def __init__(self, model: Any, k: int, batch: dict[str, Tensor]):
        self.model, self.batch, self.number = model.train(), batch, STEPS // 4
        self.weights = list(model.parameters())
        self.gates = LearnedGates(kheads.DSP(), Goal(k, kheads.discover(model)), 0)
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
        parts = gates.values().split([site.count for site in sites])
        pairs = zip(given, parts, sites, strict=True)
        outputs = [
            (hidden.unflatten(-1, (site.count, -1)) * values.to(hidden.dtype).unsqueeze(-1)).flatten(-2)
            for hidden, values, site in pairs
        ]
        torch.autograd.backward(outputs, back)
        torch.nn.utils.clip_grad_norm_([gates.w], 1.0)
        seconds.append(time.perf_counter() - begin)
        for tensor in (*given, gates.w):
            tensor.grad = None
    return float(torch.tensor(seconds).median())


def taking_turns(steps: Steps, repeats: int) -> tuple[Tensor, Tensor]:
    """Seconds of plain and of joint steps, in pairs of neighbours of which either may go first."""
    steps.plain()  # warm-up, and the memory that lasts
    steps.joint()
    seconds = torch.empty(repeats, 2, dtype=torch.float64)
    for pair in range(repeats):
        for which in (0, 1) if pair % 2 else (1, 0):
            seconds[pair, which] = steps.joint() if which else steps.plain()
    return seconds[:, 0], seconds[:, 1]


def of_pairs(plain: Tensor, joint: Tensor) -> Tensor:
    """The median over the pairs of their ratios."""
    return (joint / plain).median(-1).values


def of_fastest(plain: Tensor, joint: Tensor) -> Tensor:
    """The ratio of the means of the fastest quarters: whatever disturbs a step makes it slower, never faster."""
    least = max(1, plain.shape[-1] // 4)
    plain, joint = (seconds.sort(-1).values[..., :least].mean(-1) for seconds in (plain, joint))
    return joint / plain


def interval(statistic: Statistic, plain: Tensor, joint: Tensor) -> tuple[float, float, float]:
    """The statistic and its 95 % bootstrap interval over pairs."""
    draws = torch.randint(len(plain), (5000, len(plain)), generator=torch.Generator().manual_seed(0))
    found = statistic(plain[draws], joint[draws])
    low, high = torch.quantile(found, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(statistic(plain, joint)), low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    torch.manual_seed(0)
    results = []
    print("| model | batch | K | median of pairs | fastest quarters | gates' own work |")
    print("|---|---|---|---|---|---|")
    for name, sizes, batch, length, k in CASES:
        model = BertForSequenceClassification(BertConfig(**sizes, num_labels=3))
        inputs = {"input_ids": torch.randint(1000, 20000, (batch, length)), "labels": torch.randint(3, (batch,))}
        steps = Steps(model, k, inputs)
        repeats = given.repeats * (1 if name == "BERT-base" else 4)
        plain, joint = taking_turns(steps, repeats)
        found = {"pairs": interval(of_pairs, plain, joint), "fastest": interval(of_fastest, plain, joint)}
        own = own_work(steps.gates, batch, length, sizes["hidden_size"]) / float(plain.median())
        total = sizes["num_hidden_layers"] * sizes["num_attention_heads"]
        ratios = [f"{ratio:.3f} ({low:.3f} to {high:.3f})" for ratio, low, high in found.values()]
        print(
            f"| {name} | {batch} x {length} | {k} of {total} | {' | '.join(ratios)} | {100 * own:.1f} % |", flush=True
        )
        seconds = {"plain_seconds": plain.tolist(), "joint_seconds": joint.tolist()}
        results.append({"model": name, "batch": [batch, length], "k": k, **found, "own_work": own, **seconds})
    print(json.dumps({"benchmark": "training", "results": results, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
