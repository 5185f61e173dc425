"""Comparing times fairly: everything takes turns in one run, and what counts are ratios within a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kheads.measuring.statistics import bootstrap, median

REPEATS = 20
WARMUP = 3


@dataclass(frozen=True)
class Ratio:
    """How many times as fast something is: the median over rounds, with a 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float

    @property
    def undecided(self) -> bool:
        """Whether the interval includes 1: no difference was measured."""
        return self.low <= 1 <= self.high

    def __str__(self) -> str:
        note = ", no difference measured: the interval includes 1" if self.undecided else ""
        return f"{self.ratio:.2f}x ({self.low:.2f} to {self.high:.2f}{note})"


def interleaved(
    calls: Sequence[Callable[[], Any]],
    repeats: int,
    device: torch.device,
    warmup: int = WARMUP,
    clock: Callable[[], float] = time.perf_counter,
) -> Tensor:
    """Seconds of every call in every round, (calls, rounds); every second round goes through them backwards."""
    times = torch.zeros(len(calls), repeats, dtype=torch.float64)
    for number in range(-warmup, repeats):
        order = range(len(calls)) if number % 2 else range(len(calls) - 1, -1, -1)
        for index in order:
            _synchronise(device)
            begin = clock()
            calls[index]()
            _synchronise(device)
            if number >= 0:
                times[index, number] = clock() - begin
    return times


def speedup(base: Tensor, other: Tensor) -> Ratio:
    """How many times as fast `other` is as `base`, from their seconds in the same rounds, (R,) each."""
    ratios = (base / other).tolist()
    low, high = bootstrap(ratios, median)
    return Ratio(float(torch.tensor(ratios, dtype=torch.float64).quantile(0.5)), low, high)


def _synchronise(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
