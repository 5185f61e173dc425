"""The budget of a run: what was asked for, and what the smaller model was found to have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAMES = ("speedup", "smaller", "flops", "max_ms")  # the fields of a job that are budgets


@dataclass(frozen=True)
class Asked:
    """A budget, and what became of it.

    Attributes:
        name: the field of a job that asked for it: speedup, smaller, flops or max_ms.
        amount: how much was asked for.
        asked: the same in words.
        reached: what the smaller model has, in words.
        speedup: how many times as fast as the whole model it was found to be, with its interval; None where no time
            was taken.
    """

    name: str
    amount: float
    asked: str
    reached: str
    speedup: tuple[float, float, float] | None = None


def budget_of(record: Mapping[str, Any]) -> Asked | None:
    """The budget of a run; None where heads were counted, or nothing was asked for."""
    settings = record.get("settings", {})
    name = next((name for name in NAMES if settings.get(name) is not None), None)
    if name is None:
        return None
    amount, found = float(settings[name]), record.get("report", {}).get("budget") or {}
    at = f" at {settings['at']}" if settings.get("at") else ""
    asked = f"{asked_in_words(name, amount)}{at}"
    return Asked(name, amount, asked, _reached(name, record, found), _speedup(found.get("speedup")))


def asked_in_words(name: str, amount: float) -> str:
    """Such as: 2 times as fast."""
    return {
        "speedup": f"{amount:g} times as fast",
        "smaller": f"{100 * amount:.4g} % smaller",
        "flops": f"{100 * amount:.4g} % of the FLOPs" if amount < 1 else f"{amount:,.0f} FLOPs",
        "max_ms": f"at most {amount:g} ms",
    }[name]


def _reached(name: str, record: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """What the smaller model has, in the words of what was asked; parameters where nothing else was noted."""
    before, after = (float(record[when]["parameters"]) for when in ("before", "after"))
    value = found.get("reached", {}).get("value")
    if name == "smaller" or value is None:
        return f"{100 * (1 - after / before):.1f} % smaller"
    if name == "flops":
        whole = found.get("whole")
        return f"{100 * value / whole:.1f} % of the FLOPs ({value:,.0f})" if whole else f"{value:,.0f} FLOPs"
    form = "{:.2f} times as fast" if name == "speedup" else "{:.2f} ms"
    low, high = (found["reached"].get(end) for end in ("low", "high"))
    ends = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return f"{form.format(value)}{ends}"


def _speedup(ratio: Any) -> tuple[float, float, float] | None:
    found = [(ratio or {}).get(name) for name in ("ratio", "low", "high")]
    known = [float(value) for value in found if isinstance(value, (int, float)) and math.isfinite(value)]
    return (known[0], known[1], known[2]) if len(known) == len(found) else None
