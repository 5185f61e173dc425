"""The paper's efficiency experiment (Fig. 4): speed-up and shrinkage against K, and whether placement matters.

    python benchmarks/bench_efficiency.py -o experiments/efficiency

BERT-base geometry with random weights, batch 8 x 128. Ten random orders of the heads, and orders that concentrate the
first ones in few layers or spread them over all; for each K the first K of an order are a mask, and every other head is
removed for real. The models of an order, the whole model and the model without attention take turns in one interleaved
run, so that what disturbs the machine disturbs every K alike; ratios are of times in the same round.

With S the speed-up of the model without attention in the same run, keeping K of H heads can give at most
1 / (1 - (1 - K/H)(1 - 1/S)): the time of attention, H heads' worth, shrinks to K/H of itself, and nothing else shrinks.

Writes `efficiency.json` after every order, whole or not at all; started again, it goes on with those that are missing.
Prints a table and, last, one JSON line. `--profile K` prints instead where the time goes.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertForSequenceClassification

import kheads
from kheads.lab.report.efficiency import ceiling
from kheads.measuring.measurement import shared_copy, size, without_heads
from kheads.measuring.timing import interleaved, speedup
from kheads.training.recording import machine, versions

NAME = "efficiency.json"
PLACEMENTS = {"random": 10, "concentrated": 3, "spread": 3}
TARGET = 0.95  # of the most that the share of removed heads can give


def scores(placement: str, sites: tuple[kheads.Site, ...], seed: int) -> Tensor:
    """Scores whose K highest are a mask of the placement, whatever K is."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(len(sites), sites[0].count, generator=generator)
    if placement == "concentrated":  # site after site
        noise = noise + torch.randperm(len(sites), generator=generator).unsqueeze(1)
    elif placement == "spread":  # one head of every site, then the next
        noise = noise + noise.argsort(1).argsort(1)
    return noise.flatten()


def pruned(model: Any, k: int, placement: str, seed: int) -> Any:
    sites = kheads.discover(model)
    return kheads.remove(shared_copy(model), kheads.select(scores(placement, sites, seed), k, sites))


def measure_order(
    model: Any, ks: list[int], placement: str, number: int, inputs: dict[str, Tensor], repeats: int
) -> list[dict[str, Any]]:
    """One row for each K, from one interleaved run."""
    models = [model, without_heads(model), *(pruned(model, k, placement, number) for k in ks)]
    calls = [lambda candidate=candidate: candidate(**inputs) for candidate in models]
    with torch.inference_mode():
        times = interleaved(calls, repeats, next(model.parameters()).device, warmup=1)
    whole, heads = size(model), sum(site.count for site in kheads.discover(model))
    none = speedup(times[0], times[1])
    rows = []
    for k, candidate, seconds in zip(ks, models[2:], times[2:], strict=True):
        found, left = speedup(times[0], seconds), size(candidate)
        rows.append(
            {
                "k": k,
                "mask": number,
                "placement": placement,
                "speedup": found.ratio,
                "low": found.low,
                "high": found.high,
                "ms": 1e3 * float(seconds.median()),
                **left,
                "shrinkage": 1 - left["parameters"] / whole["parameters"],
                "no_attention": none.ratio,
                "limit": ceiling(k, heads, none.ratio),
            }
        )
    return rows


def build(given: argparse.Namespace) -> Any:
    torch.manual_seed(0)
    layers, heads, width = given.geometry
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return BertForSequenceClassification(BertConfig(**sizes, intermediate_size=4 * width, num_labels=3)).eval()


def describe(model: Any, given: argparse.Namespace) -> dict[str, Any]:
    """What was measured; rows of another description are not mixed with these."""
    layers, heads, width = given.geometry
    name = f"BERT, {layers} layers x {heads} heads, width {width}, random weights"
    batch, length = given.batch, given.length
    about = {"model": name, "heads": layers * heads, "batch": batch, "length": length}
    return {**about, "ks": given.k, "repeats": given.repeats}


def summary(model: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The model without attention: the median over the runs of its speed-up, and the range."""
    values = sorted({(row["placement"], row["mask"]): row["no_attention"] for row in rows}.values())
    whole, left = size(model), size(without_heads(model))
    shrinkage = 1 - left["parameters"] / whole["parameters"]
    speed = {"speedup": statistics.median(values), "low": values[0], "high": values[-1]}
    return {**speed, **left, "shrinkage": shrinkage}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| K | shrinkage | random masks | concentrated | spread | limit | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for k in sorted({row["k"] for row in rows}, reverse=True):
        of_k = [row for row in rows if row["k"] == k]
        cells = []
        for placement in PLACEMENTS:
            found = [row["speedup"] for row in of_k if row["placement"] == placement]
            cells.append(f"{statistics.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})")
        most = statistics.mean(row["limit"] for row in of_k)
        reached = statistics.mean(row["speedup"] / row["limit"] for row in of_k)
        shrinkage = f"-{100 * of_k[0]['shrinkage']:.1f} %"
        verdict = f"{100 * reached:.1f} %{'' if reached >= TARGET else ' (below the target)'}"
        lines.append(f"| {k} | {shrinkage} | {' | '.join(cells)} | {most:.3f} | {verdict} |")
    return "\n".join(lines)


def show_profile(model: Any, k: int, inputs: dict[str, Tensor]) -> None:
    for name, candidate in (
        ("whole", model),
        (f"K = {k}", pruned(model, k, "random", 0)),
        ("none", without_heads(model)),
    ):
        with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as found:
            for _ in range(3):
                candidate(**inputs)
        shown = found.key_averages().table(sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=40)
        print(f"\n{name}\n{shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("experiments/efficiency"))
    parser.add_argument("-k", type=int, nargs="+", default=[132, 120, 96, 72, 48, 24, 12, 6, 1])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--geometry", type=int, nargs=3, default=[12, 12, 768], metavar=("LAYERS", "HEADS", "WIDTH"))
    parser.add_argument("--profile", type=int, metavar="K")
    given = parser.parse_args()
    model = build(given)
    inputs = {"input_ids": torch.randint(1000, 20000, (given.batch, given.length))}
    if given.profile is not None:
        show_profile(model, given.profile, inputs)
        return
    path, about = given.output / NAME, describe(model, given)
    old = json.loads(path.read_text()) if path.exists() else {"rows": [], **about}
    if any(old.get(key) != value for key, value in about.items()):
        parser.error(f"{path} was measured with other settings; give another folder with -o.")
    rows = old["rows"]
    done = {(row["placement"], row["mask"]) for row in rows}
    for placement, number in ((kind, number) for kind, count in PLACEMENTS.items() for number in range(count)):
        if (placement, number) in done:
            continue
        rows = [*rows, *measure_order(model, given.k, placement, number, inputs, given.repeats)]
        record = {**about, "rows": rows, "no_attention": summary(model, rows)}
        record |= {"versions": versions(), "machine": machine()}
        given.output.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1) + "\n")
        temporary.replace(path)
        speeds = ", ".join(f"{row['k']}: {row['speedup']:.3f}" for row in rows[-len(given.k) :])
        print(f"{placement} {number}: {speeds}; no attention {rows[-1]['no_attention']:.3f}", flush=True)
    print(f"\n{table(rows)}\n")
    print(json.dumps({"benchmark": "efficiency", **about, "no_attention": summary(model, rows)}))


if __name__ == "__main__":
    main()
