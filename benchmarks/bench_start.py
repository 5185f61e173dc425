"""What starting costs: processor time of the command line and of `import kheads`, beside what they cannot do without.

    python benchmarks/bench_start.py

Every command is a process of its own. In a round each runs once, in an order that alternates; a ratio is the median
over the rounds of the ratios within a round, with a 95 % bootstrap interval. Processor time, user and system together,
because the clock also counts how long a process waits for others. Prints a table and, last, one JSON line.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kheads.measuring.timing import speedup
from kheads.training.recording import machine, versions


@dataclass(frozen=True)
class Start:
    """A command, the one it is compared with, and how many times as much it may cost."""

    command: tuple[str, ...]
    base: str | None = None
    target: float | None = None


def python(code: str, base: str | None = None, target: float | None = None) -> tuple[str, Start]:
    return f'python -c "{code}"', Start((sys.executable, "-c", code), base, target)


def kheads(arguments: str, base: str, target: float) -> tuple[str, Start]:
    """The installed command, or the module where the package is not installed."""
    script = Path(sys.executable).with_name("kheads")
    command = (str(script),) if script.exists() else (sys.executable, "-m", "kheads")
    return f"kheads {arguments}", Start((*command, *arguments.split()), base, target)


TERMINAL, TORCH = python("import typer, rich.table"), python("import torch")
STARTS = dict(
    [
        TERMINAL,
        kheads("--help", TERMINAL[0], 3),
        kheads("--version", TERMINAL[0], 3),
        kheads("prune --nonsense", TERMINAL[0], 3),
        TORCH,
        python("import kheads", TORCH[0], 1.15),
        python("import kheads; kheads.select", TORCH[0], 1.15),
    ]
)


def processor_seconds(command: tuple[str, ...]) -> tuple[float, int]:
    """User and system time of the process and of those it waited for, and its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, child.returncode


def taking_turns(starts: dict[str, Start], rounds: int) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Seconds of every command in every round, after one that fills caches; and the exit codes."""
    seconds: dict[str, list[float]] = {name: [] for name in starts}
    codes = {}
    for number in range(rounds + 1):
        for name in starts if number % 2 else reversed(starts):
            used, codes[name] = processor_seconds(starts[name].command)
            seconds[name].append(used)
    return {name: torch.tensor(found[1:], dtype=torch.float64) for name, found in seconds.items()}, codes


def row(name: str, start: Start, seconds: dict[str, Tensor]) -> dict[str, Any]:
    found: dict[str, Any] = {"command": name, "seconds": float(seconds[name].median()), "target": start.target}
    if start.base is not None:
        ratio = speedup(seconds[name], seconds[start.base])  # how many times as fast the base is
        found |= {"base": start.base, "ratio": ratio.ratio, "low": ratio.low, "high": ratio.high}
    return found


def show(found: dict[str, Any]) -> str:
    cells = [f"`{found['command']}`", f"{found['seconds']:.2f}"]
    if "ratio" not in found:
        return f"| {' | '.join(cells)} | 1 | |"
    verdict = "" if found["ratio"] <= found["target"] else " (missed)"
    ratio = f"{found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
    return f"| {' | '.join(cells)} | {ratio} | {found['target']:g}{verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    seconds, codes = taking_turns(STARTS, given.rounds)
    rows = [row(name, start, seconds) | {"exit_code": codes[name]} for name, start in STARTS.items()]
    print("| command | processor seconds | times the base | at most |\n|---|---|---|---|")
    print("\n".join(show(found) for found in rows))
    print(json.dumps({"benchmark": "start", "rows": rows, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    main()
