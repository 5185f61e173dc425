"""Time the relaxed top-K of kheads beside the paper's recursion written as a plain loop of autograd operations.

And the relaxed knapsack, with costs over six orders of magnitude, beside the relaxed top-K it becomes with equal costs.

Every figure is the time of one forward and one backward pass. What is compared runs interleaved, round by round, and
a ratio is the median of the ratios of each round.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from kheads.subset import gumbel, soft_knapsack, soft_top_k

HEADS = 144
TEMPERATURES = (1.0, 0.01)
BUDGETS = (12, 72, 132)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)


def plain_loop(logits: Tensor, k: int, tau: float) -> Tensor:
    """Eqs. 14-19 as one would write them."""
    x, gates = logits / tau, torch.zeros_like(logits)
    for _ in range(k):
        p = torch.softmax(x, 0)
        gates = gates + p
        x = x + torch.log1p(-p) / tau
    return gates


def successive(logits: Tensor, k: int, tau: float) -> Tensor:
    return soft_top_k(logits, k, tau, "successive")


def threshold(logits: Tensor, k: int, tau: float) -> Tensor:
    return soft_top_k(logits, k, tau, "threshold")


def draw(size: int) -> tuple[Tensor, Tensor]:
    """Perturbed logits as at the start of training, and a gradient to send back."""
    generator = torch.Generator().manual_seed(0)
    w = torch.rand(size, dtype=torch.float64, generator=generator) - 0.5
    logits = (w + gumbel(size, generator)).requires_grad_()
    return logits, torch.randn(size, dtype=torch.float64, generator=generator)


def run(function: Callable[[Tensor, int, float], Tensor], logits: Tensor, grad: Tensor, k: int, tau: float) -> float:
    """Seconds of one forward and one backward pass."""
    begin = time.perf_counter()
    function(logits, k, tau).backward(grad)
    logits.grad = None
    return time.perf_counter() - begin


def compare(k: int, tau: float, repeats: int) -> dict[str, float]:
    """Median milliseconds of the three, and the median speed-up of two of them over the plain loop."""
    logits, grad = draw(HEADS)
    functions = (plain_loop, successive, threshold)
    rounds = [[run(function, logits, grad, k, tau) for function in functions] for _ in range(repeats + 3)][3:]
    plain_ms, successive_ms, threshold_ms = (1e3 * median(times) for times in zip(*rounds, strict=True))
    return {
        "k": k,
        "tau": tau,
        "plain_ms": plain_ms,
        "successive_ms": successive_ms,
        "threshold_ms": threshold_ms,
        "successive_speedup": median(plain / ours for plain, ours, _ in rounds),
        "threshold_speedup": median(plain / ours for plain, _, ours in rounds),
    }


def growth(repeats: int) -> list[dict[str, float]]:
    """Times of threshold and knapsack with a growing number of logits, half of them or of their cost kept."""
    rows = []
    for size in SIZES:
        logits, grad = draw(size)
        costs = 10 ** (6 * torch.rand(size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
        budget = costs.sum().item() / 2
        functions = (threshold, lambda r, _, tau, costs=costs, budget=budget: soft_knapsack(r, costs, budget, tau))
        rounds = [[run(function, logits, grad, size // 2, 0.1) for function in functions] for _ in range(repeats + 3)]
        threshold_s, knapsack_s = (median(times) for times in zip(*rounds[3:], strict=True))
        rows.append(
            {
                "size": size,
                "threshold_ms": 1e3 * threshold_s,
                "knapsack_ms": 1e3 * knapsack_s,
                "knapsack_ns_per_logit": 1e9 * knapsack_s / size,
                "ratio": median(knapsack / threshold for threshold, knapsack in rounds[3:]),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeats", type=int, default=100, help="rounds for each row of the first table (default: 100)"
    )
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)

    print(f"{HEADS} logits, forward and backward, milliseconds and speed-up over the plain loop")
    print(f"{'tau':>6} {'k':>5} {'plain':>8} {'successive':>11} {'threshold':>10} {'successive':>11} {'threshold':>10}")
    comparisons = []
    for tau in TEMPERATURES:
        for k in BUDGETS:
            row = compare(k, tau, repeats)
            comparisons.append(row)
            print(
                f"{tau:>6} {k:>5} {row['plain_ms']:>8.2f} {row['successive_ms']:>11.2f} {row['threshold_ms']:>10.2f}"
                f" {row['successive_speedup']:>10.1f}x {row['threshold_speedup']:>9.1f}x"
            )

    print("\nthreshold and knapsack, half of the logits or of their cost, tau = 0.1: milliseconds, and their ratio")
    print(f"{'logits':>9} {'threshold':>10} {'knapsack':>9} {'ns per logit':>13} {'ratio':>6}")
    sizes = growth(max(3, repeats // 10))
    for row in sizes:
        print(
            f"{row['size']:>9} {row['threshold_ms']:>10.2f} {row['knapsack_ms']:>9.2f}"
            f" {row['knapsack_ns_per_logit']:>13.1f} {row['ratio']:>6.2f}"
        )

    environment = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "repeats": repeats,
    }
    print(json.dumps({"benchmark": "subset", "comparisons": comparisons, "sizes": sizes, "environment": environment}))


if __name__ == "__main__":
    main()
