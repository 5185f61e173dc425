"""`meet`: chooses blocks, cuts the model and measures what was reached; where a time was missed, it chooses again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from kheads.anatomy import discover
from kheads.blocks.budget import TIMES, Budget
from kheads.blocks.costs import Costs
from kheads.blocks.kept import Kept
from kheads.blocks.knapsack import ROUNDING
from kheads.blocks.site import total, unwrap
from kheads.measuring.latency import uncached
from kheads.measuring.measurement import cut_copy, flops, ready, size, weightless_copy
from kheads.measuring.pricing import inputs_for, on_device
from kheads.measuring.statistics import bootstrap, median
from kheads.measuring.timing import Ratio, interleaved, speedup
from kheads.surgery.removal import remove_shapes

TRIES = 6
BELOW = 0.01  # by which the median may miss what was asked, if the interval reaches it
EXCESS = 0.05  # by which the interval may exceed what was asked, before more blocks are kept
MORE = 0.005  # by which each try aims further than the last one missed
BACK = (1.0, 0.5, 0.25, 0.125)  # shares of the way to the next aim, where that is too far
PRECISE = 0.02  # width of an interval, relative to its median, that is narrow enough
ROUGH = 0.1  # and one that is narrow enough where what was asked is not in it
ROUNDS = 10  # before the first look at the interval; after each look as many again
MOST_ROUNDS = 320
SECONDS = 20.0  # for one comparison
Choose = Callable[[Budget], Kept]


@dataclass(frozen=True)
class Reached:
    """An amount in the unit of a budget; of times the median, with a 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Met:
    """What `meet` returns.

    Attributes:
        kept: the blocks that stay.
        asked: the budget.
        reached: the same amount of the smaller model.
        speedup: how many times as fast as the whole model it is; None where no time was asked for.
        tries: how often blocks were chosen.
        parameters: of the smaller model.
        flops: of the smaller model on the batch of the budget; None where the budget is about none, and none is given.
        whole: the same amount of the whole model, in the currency of the budget.
    """

    kept: Kept
    asked: Budget
    reached: Reached
    speedup: Ratio | None
    tries: int
    parameters: int
    flops: int | None
    whole: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what was asked for, of which batch and threads; what was reached, and in how many tries."""
        asked: dict[str, Any] = {self.asked.name: getattr(self.asked, self.asked.name)}
        if self.asked.currency in ("flops", "ms"):
            asked["at"] = list(self.asked.batch)
        if self.asked.name in TIMES:
            asked["threads"] = self.asked.threads or torch.get_num_threads()
        return {
            "asked": asked,
            "reached": asdict(self.reached),
            "speedup": None if self.speedup is None else asdict(self.speedup),
            "tries": self.tries,
            "parameters": self.parameters,
            "flops": self.flops,
            "whole": self.whole,
        }


def meet(
    model: nn.Module,
    choose: Choose,
    budget: Budget,
    costs: Costs,
    inputs: Mapping[str, Tensor] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Met:
    """Chooses blocks within a budget so that the model that is cut to them meets it, measured.

    Heads, parameters and FLOPs are counted and never above. For a time, the smaller model takes turns with the whole
    one; it is reached when the interval reaches what was asked and the median is at most 1 % short of it. Otherwise
    blocks are chosen again within a tighter budget, or within a looser one where it is more than 5 % faster than asked.

    Args:
        model: the whole model; it is left as it was.
        choose: gives the blocks that stay within a budget, such as `lambda budget: select(scores, budget, sites,
            costs=costs)`.
        budget: what is asked.
        costs: what blocks cost, as `price` found out.
        inputs: what `forward` takes, in place of made-up inputs of the budget's batch.
        tell: is called with a line of text before anything that takes a while.

    Raises:
        ValueError: the time cannot be reached; the sentence says how far this model can go, and why.
    """
    if inputs is None and budget.currency in ("heads", "params"):
        return _counted(model, choose(budget), budget, costs, None)
    given = inputs_for(model, budget) if inputs is None else on_device(model, inputs)
    if budget.name not in TIMES:
        return _counted(model, choose(budget), budget, costs, given)
    return _timed(model, choose, budget, costs, given, tell or _silent)


def _counted(model: nn.Module, kept: Kept, budget: Budget, costs: Costs, inputs: Mapping[str, Tensor] | None) -> Met:
    # Where nothing has to run, the shapes say it all: a copy of a large model takes memory.
    small = remove_shapes(weightless_copy(unwrap(model)), kept) if inputs is None else cut_copy(model, kept)
    parameters, work = size(small)["parameters"], None if inputs is None else flops(small, inputs)
    value = {"params": parameters, "flops": work}.get(budget.name) or total(discover(small))
    if value > (limit := budget.limit(costs.whole)) * (1 + ROUNDING):
        raise ValueError(
            f"The chosen blocks leave {value:,} {budget.currency}, and the budget allows {limit:,.0f}; give the costs "
            "of this model, as `kheads.price` finds them out."
        )
    return Met(kept, budget, Reached(value, value, value), None, 1, parameters, work, costs.whole)


# ----------------------------------------------------------------------------------------------------------------- time


def _timed(
    model: nn.Module,
    choose: Choose,
    budget: Budget,
    costs: Costs,
    inputs: Mapping[str, Tensor],
    tell: Callable[[str], None],
) -> Met:
    aim, kept, ratios = budget, choose(budget), list[Ratio]()
    best: Met | None = None
    beyond: Budget | None = None  # the last aim that went too far
    short: Budget | None = None  # and the last that did not go far enough
    tried = list[Kept]()
    for number in range(1, TRIES + 1):
        tell(f"timing the model with {len(kept):,} blocks beside the whole one")
        small = cut_copy(model, kept)
        reached, ratio = compared(model, small, budget, inputs)
        ratios.append(ratio)
        if reaches(reached, budget):
            if best is None or len(kept) > len(best.kept):
                parameters = size(small)["parameters"]
                best = Met(kept, budget, reached, ratio, number, parameters, flops(small, inputs), costs.whole)
            if not exceeds(reached, budget):
                break
            beyond = aim
        else:
            short = aim
        tried.append(kept)
        wanted = _between(beyond, short) if beyond and short else tightened(aim, budget, reached, number)
        aim, kept = _chosen(choose, aim, wanted, kept)
        if kept in tried:  # nothing smaller is left, or nothing between those that were timed
            break
        tell(f"{_amount(reached.value, budget)} instead of {_amount(budget.amount, budget)}; choosing again")
    if best is None:
        raise ValueError(refusal(budget, ratios, costs))
    return replace(best, tries=len(ratios))


def _between(one: Budget, other: Budget) -> Budget:
    """The budget in the middle of two."""
    amount: dict[str, Any] = {one.name: (one.amount + other.amount) / 2}
    return replace(one, **amount)


def _chosen(choose: Choose, last: Budget, aim: Budget, before: Kept) -> tuple[Budget, Kept]:
    """The blocks within the next budget, or within one nearer to the last where no choice is as small as that."""
    for share in BACK:
        amount: dict[str, Any] = {aim.name: last.amount + share * (aim.amount - last.amount)}
        nearer = replace(aim, **amount)
        try:
            return nearer, choose(nearer)
        except ValueError:
            continue
    return last, before


def compared(model: nn.Module, small: nn.Module, budget: Budget, inputs: Mapping[str, Tensor]) -> tuple[Reached, Ratio]:
    """How fast the smaller model is: in the unit of the budget, and beside the whole one.

    Both take turns until the interval is narrow enough or the time is up.
    """
    model = unwrap(model)
    device, given = next(model.parameters()).device, uncached(model, inputs)
    seconds = torch.zeros(2, 0, dtype=torch.float64)
    with ready([model, small], budget.threads or torch.get_num_threads()), torch.inference_mode():
        while True:
            calls = [lambda: model(**given), lambda: small(**given)]
            done = seconds.shape[1]
            more = interleaved(calls, max(ROUNDS, done), device, warmup=0 if done else 2)
            seconds = torch.cat([seconds, more], dim=1)
            reached, ratio = _reached(seconds, budget)
            # As many rounds again would take longer than there is time for, or tell no more.
            if settled(reached, budget) or float(seconds.sum()) > SECONDS / 2 or seconds.shape[1] >= MOST_ROUNDS:
                return reached, ratio


def _reached(seconds: Tensor, budget: Budget) -> tuple[Reached, Ratio]:
    ratio = speedup(seconds[0], seconds[1])
    if budget.name == "speedup":
        return Reached(ratio.ratio, ratio.low, ratio.high), ratio
    ms = 1e3 * seconds[1]
    return Reached(float(ms.quantile(0.5)), *bootstrap(ms.tolist(), median)), ratio


def settled(reached: Reached, budget: Budget) -> bool:
    """Whether further rounds would tell little: the interval is narrow, less so where what was asked is not in it."""
    inside = reached.low <= budget.amount <= reached.high
    return reached.high - reached.low <= (PRECISE if inside else ROUGH) * reached.value


def reaches(reached: Reached, budget: Budget) -> bool:
    """Whether the interval reaches what was asked, and the median is at most 1 % short of it."""
    if budget.name == "speedup":
        return reached.high >= budget.amount and reached.value >= budget.amount * (1 - BELOW)
    return reached.low <= budget.amount and reached.value <= budget.amount * (1 + BELOW)


def exceeds(reached: Reached, budget: Budget) -> bool:
    """Whether the whole interval is so far beyond what was asked that more blocks could stay."""
    if budget.name == "speedup":
        return reached.low > budget.amount * (1 + EXCESS)
    return reached.high < budget.amount * (1 - EXCESS)


def tightened(aim: Budget, asked: Budget, reached: Reached, number: int) -> Budget:
    """The next aim: tighter by as much as this one missed, or looser by as much as it exceeded, and a little more."""
    more = 1 + MORE * number
    if asked.name == "speedup":
        # Never so loose that hardly anything goes: what a noisy machine says there is seldom right.
        loosest = 1 + (asked.amount - 1) / 4
        return replace(aim, speedup=max(aim.amount * asked.amount / reached.value * more, loosest))
    return replace(aim, ms=aim.amount * asked.amount / reached.value / more)


def refusal(budget: Budget, ratios: Sequence[Ratio], costs: Costs) -> str:
    """How far this model can go, and why."""
    best = max(ratios, key=lambda found: found.ratio)
    tries = f"{len(ratios)} tries" if len(ratios) > 1 else "one try"
    share, fastest = costs.outside / costs.whole, costs.whole / max(costs.outside, 1e-9)
    return (
        f"`{budget.name}` {budget.amount:g} was not reached in {tries}: the fastest was {best.ratio:.2f} times as fast "
        f"as the whole model ({best.low:.2f} to {best.high:.2f}). Without any of these blocks it is {fastest:.2f} "
        f"times as fast here ({costs.outside:.2f} of {costs.whole:.2f} ms): {100 * share:.0f} % of its time is outside "
        "of blocks, in embeddings, norms and the rest. Ask for less."
    )


def _amount(value: float, budget: Budget) -> str:
    return f"{value:.2f} times as fast" if budget.name == "speedup" else f"{value:.2f} ms"


def _silent(_: str) -> None:
    """Tells nobody."""
