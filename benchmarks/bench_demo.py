"""How far from the unpruned model are 12 heads, learned along, repaired, or trained on? The demo over several seeds.

    python benchmarks/bench_demo.py --seeds 3

Prints a table and, last, one JSON line with settings, versions and the machine.
"""

import argparse
import json
from dataclasses import asdict

import torch

from kheads.lab.demos.inference import Recipe, compare, made_task
from kheads.training.recording import machine, versions


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and a 95 % bootstrap interval of the mean."""
    sample = torch.tensor(values, dtype=torch.float64)
    draws = sample[torch.randint(len(sample), (10_000, len(sample)), generator=torch.Generator().manual_seed(0))].mean(
        1
    )
    low, high = torch.quantile(draws, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(sample.mean()), low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    given = parser.parse_args()
    recipe = Recipe(steps=given.steps)
    accuracy: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(given.seeds):
        task = made_task(recipe, seed)
        for chapter in compare(task, recipe, seed):
            accuracy.setdefault(chapter.label, []).append(chapter.accuracy())
            seconds.setdefault(chapter.label, []).append(round(chapter.seconds, 1))
        print(f"seed {seed}: " + ", ".join(f"{name} {values[-1]:.3f}" for name, values in accuracy.items()), flush=True)
    first = next(iter(accuracy))
    gaps = {
        f"{other} - {first}": [a - b for a, b in zip(accuracy[other], accuracy[first], strict=True)]
        for other in accuracy
        if other != first
    }
    print("\n| | mean | 95 % interval |\n|---|---|---|")
    for name, values in {**accuracy, **gaps}.items():
        mean, low, high = interval(values)
        print(f"| {name} | {mean:.3f} | {low:.3f} to {high:.3f} |")
    record = {"benchmark": "demo", "recipe": asdict(recipe), "seeds": given.seeds, "accuracy": accuracy, "gaps": gaps}
    record["seconds"] = seconds
    print(json.dumps({**record, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
