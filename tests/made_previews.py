"""What tests of previews share: made-up numbers, and somebody to tell."""

from kheads.measuring.measurement import Cost, Measurement, Speed
from kheads.measuring.timing import Ratio


def silent(text: str, done: int, total: int) -> None:
    """Tells nobody."""


def metrics(value: float, name: str = "accuracy") -> dict[str, dict[str, float]]:
    return {"dev": {name: value}}


def measured(speed: float) -> Measurement:
    def cost(ratio: float) -> Cost:
        return Cost(1, 1, 1, 1, (Speed(8, 16, 1.0, 1.0, 1.0, Ratio(ratio, ratio - 0.1, ratio + 0.1)),), None)

    settings = {"repeats": 10, "warmup": 3, "threads": 1, "new_tokens": 0, "device": "cpu"}
    return Measurement(cost(speed), None, cost(1.6), settings)
