"""What tests of previews share: made-up previews, and somebody to tell."""

from collections.abc import Callable, Mapping
from typing import Any

from kheads import Budget
from kheads.lab.preview.found import Limit, Point, Preview
from kheads.measuring.measurement import Cost, Measurement, Speed
from kheads.measuring.timing import Ratio

Asked = tuple[str, Budget]  # the parts that could go, and the budget


def silent(text: str, done: int, total: int) -> None:
    """Tells nobody."""


def metrics(value: float, name: str = "accuracy") -> dict[str, dict[str, float]]:
    return {"dev": {name: value}}


def over_heads(qualities: Mapping[int, float], whole: float = 0.9, **further: Any) -> Preview:
    """Numbers of heads, of a hundred in a model of a thousand parameters, half of them outside of heads."""
    found = {("heads", Budget(heads=k)): value for k, value in qualities.items()}
    return made_up(found, whole, lambda budget: (500 + 5 * budget.heads, 1.5 - budget.heads / 100), **further)


def over_budgets(qualities: Mapping[tuple[str, float], float], whole: float = 0.9, **further: Any) -> Preview:
    """Shares of the parameters to remove, for each of the parts."""
    found = {(parts, Budget(params=1 - share)): value for (parts, share), value in qualities.items()}
    return made_up(found, whole, lambda budget: (int(1000 * budget.amount), 2 - budget.amount), **further)


def made_up(
    qualities: Mapping[Asked, float],
    whole: float,
    sized: Callable[[Any], tuple[int, float]],  # parameters and speed-up
    name: str = "accuracy",
    lower: bool = False,
    timed: bool = True,
) -> Preview:
    points = []
    for (parts, budget), value in qualities.items():
        parameters, speed = sized(budget)
        heads, neurons = int(budget.heads or 8), None if parts == "heads" else 100
        cost = measured(speed) if timed else None
        stages = metrics(value / 2, name), metrics(value, name)
        points.append(Point(budget, parts, heads, neurons, parameters, *stages, cost))
    budgets = sorted({budget for _, budget in qualities}, key=lambda budget: -budget.amount)
    all_parts = dict.fromkeys(parts for parts, _ in qualities)
    limits = tuple(Limit(parts, 500, Ratio(1.6, 1.5, 1.7) if timed else None) for parts in all_parts)
    return Preview(
        name,
        lower,
        "dev",
        200,
        metrics(whole, name),
        model="models/mine",
        method="own",
        heads=100,
        neurons=None if set(all_parts) == {"heads"} else 200,
        parameters=1000,
        budgets=tuple(budgets),
        points=tuple(points),
        limits=limits,
        seconds=61.0,
        remarks=("A remark.",),
    )


def measured(speed: float) -> Measurement:
    def cost(ratio: float) -> Cost:
        return Cost(1, 1, 1, 1, (Speed(8, 16, 1.0, 1.0, 1.0, Ratio(ratio, ratio - 0.1, ratio + 0.1)),), None)

    settings = {"repeats": 10, "warmup": 3, "threads": 1, "new_tokens": 0, "device": "cpu"}
    return Measurement(cost(speed), None, cost(1.6), settings)
