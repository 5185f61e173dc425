"""Translation: how much of token batches is padding, and tokens per second of training and of beam search.

    python benchmarks/bench_translation.py [--train-source F --train-target F] [--size small]

Without files the embedded number task is measured. Prints a table and, last, one JSON line. Tokens of
training are those of the target side, padding not counted; the loss has label smoothing, as in training.
"""

import argparse
import copy
import json
import time
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorForSeq2Seq
from transformers.trainer_pt_utils import LabelSmoother

from kheads import discover, remove, select
from kheads.measuring.timing import interleaved, speedup
from kheads.storage import sizes
from kheads.tasks.bpe import train_bpe
from kheads.tasks.parallel import Cleaning
from kheads.tasks.translating import translate
from kheads.tasks.translation import TranslationTask, from_parallel, numbers
from kheads.training.batching import TokenBatches, padding_share, token_batches
from kheads.training.recording import machine, versions


def load(given: argparse.Namespace) -> TranslationTask:
    if given.train_source is None:
        return numbers()
    files = (given.train_source, given.train_target)
    return from_parallel(files, {"same": files}).cleaned(Cleaning())


def padding(lengths: list[tuple[int, int]], budgets: list[int]) -> list[dict[str, Any]]:
    """The share of padding in token batches, and in batches of 32 by chance."""
    parts = np.array_split(np.random.default_rng(0).permutation(len(lengths)), len(lengths) // 32)
    by_chance = [part.tolist() for part in parts]
    rows: list[dict[str, Any]] = [{"batches": "32 by chance", "padding": padding_share(lengths, by_chance)}]
    for budget in budgets:
        batches = token_batches(lengths, budget, 0)
        rows.append({"batches": f"{budget} tokens", "padding": padding_share(lengths, batches), "count": len(batches)})
    return rows


def training(model: Any, batches: list[dict[str, torch.Tensor]]) -> float:
    """Target tokens per second of whole optimizer steps; the first step warms up."""
    smoother, optimizer = LabelSmoother(epsilon=0.1), torch.optim.AdamW(model.parameters(), 1e-4)
    model.train()
    tokens, begin = 0, 0.0
    for number, batch in enumerate(batches):
        if number == 1:
            begin = time.perf_counter()
        labels = batch.pop("labels")
        smoother(model(**batch), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        tokens += int((labels != -100).sum()) if number else 0
    return tokens / (time.perf_counter() - begin)


def beam_search(model: Any, words: Any, texts: list[str], repeats: int) -> dict[str, Any]:
    """Source tokens per second with all heads and with 12 at random, taking turns; and the ratio of their times.

    An untrained model never stops by itself, so this is the slowest case.
    """
    sites = discover(model.eval())
    few = remove(copy.deepcopy(model), select(torch.rand(sum(site.count for site in sites)), 12, sites))
    calls = [lambda model=one: translate(model, words, texts, 5) for one in (model, few)]
    times = interleaved(calls, repeats, model.device, warmup=1)
    whole, pruned = (sum(map(len, words(texts).input_ids)) / float(seconds.median()) for seconds in times)
    return {"beam 5": whole, "beam 5, 12 heads": pruned, "speedup": str(speedup(times[0], times[1]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-source")
    parser.add_argument("--train-target")
    parser.add_argument("--size", default="small", choices=sizes.SIZES)
    parser.add_argument("--vocab-size", type=int, default=6000)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lines", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    torch.manual_seed(0)
    task = load(given)
    words = train_bpe(task.texts(), given.vocab_size)
    train = task.tokenize(words)[0].train
    lengths = list(zip(map(len, train["input_ids"]), map(len, train["labels"]), strict=True))
    found: dict[str, Any] = {"padding": padding(lengths, [1024, 2048, 4096])}
    print("| batches | padding |\n|---|---|")
    for row in found["padding"]:
        print(f"| {row['batches']} | {100 * row['padding']:.1f} % |", flush=True)

    model = sizes.build(given.size, words)
    collate = DataCollatorForSeq2Seq(words, model=model)
    chosen = list(TokenBatches(lengths, given.batch_tokens, 0))[: given.steps + 1]
    columns = ("input_ids", "attention_mask", "labels")
    batches = [collate([{name: train[i][name] for name in columns} for i in batch]) for batch in chosen]
    found["training"] = training(model, batches)
    pairs = next(iter(task.evals.values()))
    texts = pairs.sources[: given.lines]
    found |= beam_search(model, words, texts, given.repeats)
    print(f"\n| {given.size} | tokens per second |\n|---|---|")
    for name in ("training", "beam 5", "beam 5, 12 heads"):
        print(f"| {name} | {found[name]:,.0f} |")
    print(f"\n12 heads are {found['speedup']} as fast in beam search.")
    settings = {"size": given.size, "batch_tokens": given.batch_tokens, "pairs": len(lengths), "steps": given.steps}
    print(json.dumps({"benchmark": "translation", **found, **settings, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
