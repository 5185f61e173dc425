"""How budgets are written: in a table, in a sentence, and for `kheads prune`."""

from __future__ import annotations

from dataclasses import dataclass

from kheads.blocks.budget import Budget


@dataclass(frozen=True)
class Wording:
    """How budgets of one kind are written.

    Attributes:
        noun: what one of them is called.
        column: what stands above them in a table.
        axis: what quality is drawn against.
        sentence: what a sentence says around the amount.
        flag: asks `kheads prune` for one.
    """

    noun: str
    column: str
    axis: str
    sentence: str
    flag: str


WORDINGS = {
    "heads": Wording("K", "K", "K, the heads kept", "K = {}", "-k"),
    "params": Wording("budget", "smaller", "parameters removed", "{} smaller", "--smaller"),
    "flops": Wording("budget", "FLOPs", "FLOPs kept", "{} of the FLOPs", "--flops"),
    "speedup": Wording("budget", "asked", "the speed-up asked for", "{} as fast", "--speedup"),
}


def in_short(budget: Budget) -> str:
    """A few letters: how many heads stay, what goes of the parameters, what stays of the FLOPs, or how fast."""
    if budget.name == "heads":
        return f"{budget.heads}"
    if budget.name == "speedup":
        return f"{budget.amount:g}x"
    return f"{100 * (1 - budget.amount if budget.name == 'params' else budget.amount):.4g} %"


def in_words(budget: Budget) -> str:
    """Such as: K = 24; 20 % smaller; 1.5x as fast."""
    return WORDINGS[budget.name].sentence.format(in_short(budget))


def with_parts(budget: Budget, parts: str) -> str:
    """Such as: 20 % smaller (heads and neurons)."""
    return in_words(budget) if budget.name == "heads" else f"{in_words(budget)} ({named(parts)})"


def options(budget: Budget, parts: str) -> list[str]:
    """The words of `kheads prune` that ask for a budget, met by these parts."""
    amount = in_short(budget).replace(" ", "").removesuffix("x")
    usual = "heads" if budget.name == "heads" else "all"
    at = [] if budget.at is None else ["--at", "x".join(map(str, budget.batch))]
    return [WORDINGS[budget.name].flag, amount, *([] if parts == usual else ["--parts", parts]), *at]


def named(parts: str) -> str:
    """What people call the blocks of some parts."""
    return {"heads": "heads", "ffn": "neurons", "all": "heads and neurons"}[parts]
