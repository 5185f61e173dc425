"""What gates cost: a training step of joint DSP against plain fine-tuning of the same model, interleaved and paired.

    python benchmarks/bench_training.py

Prints a table of median paired ratios with 95 % bootstrap intervals and, last, one JSON line.
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


def paired(plain: Step, joint: Step, repeats: int) -> list[float]:
    """Ratios of neighbouring steps; which one goes first alternates."""
    for step in (plain, joint):
        step()
    ratios = []
    for number in range(repeats):
        if number % 2:
            b, a = joint(), plain()
        else:
            a, b = plain(), joint()
        ratios.append(b / a)
    return ratios


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
    print("| model | batch | K | step with gates / plain step | 95 % interval |\n|---|---|---|---|---|")
    for name, sizes, batch, length, k in CASES:
        model = BertForSequenceClassification(BertConfig(**sizes, num_labels=3))
        inputs = {"input_ids": torch.randint(1000, 20000, (batch, length)), "labels": torch.randint(3, (batch,))}
        steps = Step(copy.deepcopy(model), None, inputs), Step(model, k, inputs)
        repeats = given.repeats * (1 if name == "BERT-base" else 4)
        median, low, high = interval(paired(*steps, repeats))
        total = sizes["num_hidden_layers"] * sizes["num_attention_heads"]
        print(f"| {name} | {batch} x {length} | {k} of {total} | {median:.3f} | {low:.3f} to {high:.3f} |", flush=True)
        results.append({"model": name, "batch": [batch, length], "k": k, "ratio": median, "interval": [low, high]})
    print(json.dumps({"benchmark": "training", "results": results, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
