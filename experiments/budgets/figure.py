"""Heads alone against heads and neurons, without training: quality against parameters and against measured speed.

python experiments/budgets/figure.py FIGURE.svg PARTS.json ...

The files are what `run.sh` with KINDS=parts writes, one a seed.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes

LOOK = {"heads": ("o", "#d95f02", "heads alone"), "all": ("s", "#1b9e77", "heads and neurons")}
Preview = dict[str, Any]


def points(preview: Preview, parts: str, by: str) -> list[tuple[float, float]]:
    """(parameters in percent of the whole model's, or times as fast; points below the unpruned model), in order."""
    chosen = [point for point in preview["points"] if point["parts"] == parts]
    if by == "parameters":
        return [(100 * point["parameters"] / preview["parameters"], -point["worse"]) for point in chosen]
    return [(point["speedup"]["ratio"], -point["worse"]) for point in chosen]


def draw(axes: Axes, previews: list[Preview], by: str) -> None:
    """One line a seed and part, so that nothing is averaged away."""
    for parts, (marker, colour, label) in LOOK.items():
        for number, preview in enumerate(previews):
            along, down = zip(*points(preview, parts, by), strict=True)
            name = label if number == 0 else None
            axes.plot(along, down, marker=marker, color=colour, alpha=0.7, linewidth=1, markersize=4, label=name)
    axes.axhline(0, color="#555555", linewidth=0.8, linestyle="--")
    axes.grid(alpha=0.25)


def main() -> None:
    """Draws both panels."""
    target, *files = map(Path, sys.argv[1:])
    previews = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    matplotlib.rcParams.update({"svg.hashsalt": "kheads", "font.size": 9})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    draw(left, previews, "parameters")
    draw(right, previews, "speed")
    left.invert_xaxis()
    left.set(xlabel="parameters that stay, %", ylabel="points against the unpruned model", ylim=(-20, 2))
    right.set(xlabel="times as fast, measured at 8 x 128", xlim=(0.9, 6))
    left.legend(frameon=False, loc="lower left")
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
