"""A step of training in bfloat16 on the CPU: the fused attention beside plain products, by the length of the texts.

    python benchmarks/bench_short_attention.py

A BERT of four layers of 12 heads of 32, without dropout, forward and backward through 2,048 tokens. Both take turns
in every round; a ratio is the median over the rounds, with a 95 % bootstrap interval. Prints a line a length and, last,
one JSON line.
"""

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext

import torch
from transformers import BertConfig, BertForSequenceClassification

from kheads.measuring.timing import interleaved, speedup
from kheads.training.recording import machine, versions
from kheads.training.short_attention import SHORT, short_attention

TOKENS = 2048  # of a batch
CONFIG = BertConfig(
    hidden_size=384,
    num_hidden_layers=4,
    num_attention_heads=12,
    intermediate_size=1536,
    vocab_size=1000,
    attention_probs_dropout_prob=0.0,
    hidden_dropout_prob=0.0,
)


def step(model: torch.nn.Module, length: int, plain: bool) -> Callable[[], None]:
    inputs = {"input_ids": torch.randint(1000, (TOKENS // length, length))}

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16), short_attention(inputs) if plain else nullcontext():
            loss = model(**inputs).logits.float().square().mean()
        loss.backward()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.manual_seed(0)
    model = BertForSequenceClassification(CONFIG).train()
    rows = []
    for length in (16, 32, 64, SHORT):
        seconds = interleaved(
            [step(model, length, plain) for plain in (False, True)], given.rounds, torch.device("cpu")
        )
        ratio = speedup(*seconds)
        rows.append({"tokens": length, "times_as_fast": ratio.ratio, "low": ratio.low, "high": ratio.high})
        print(f"{length:4} tokens: plain products are {ratio}")
    print(json.dumps({"benchmark": "short_attention", "rows": rows, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
