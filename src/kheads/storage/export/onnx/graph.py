"""The nouns of an ONNX export: a graph to write, and a case on which the written file is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Named = Mapping[str, Tensor]
Axes = Mapping[int, str]  # which axes of a tensor may have any size, and what the file calls them

# What graphs are traced with. A size of 0 or 1 would be taken for fixed, and equal sizes for the same one.
BATCH, LENGTH, PAST, SOURCE = 2, 3, 5, 7


YOURS = "your batch"  # the case of a batch that the user gives


@dataclass(frozen=True)
class Graph:
    """One file.

    Attributes:
        file: its name, without the ending.
        inputs: examples to trace with, by the names that the file gives them.
        axes: for every input the axes that stay open.
        outputs: the names of what `run` gives.
        run: computes the outputs with the model, in their order.
    """

    file: str
    inputs: Named
    axes: Mapping[str, Axes]
    outputs: tuple[str, ...]
    run: Callable[[Any, dict[str, Tensor]], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """What the files are fed in a new process, and what the model itself gives for it.

    Attributes:
        name: its size, such as "3 x 37 with padding".
        given: the inputs, by name, and for text that is continued the `tokens` that the model writes.
        expected: the model's outputs, by name.
        valid: for outputs that have a place for every token, True where there is one; padding is not compared.
    """

    name: str
    given: Named
    expected: Named
    valid: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """How models of one kind are written and tried.

    Attributes:
        name: how the new process runs the files; a key of `alone.RUNS`.
        cases: what to compare, from the model and the user's own batch, if there is one.
        graphs: what to write.
    """

    name: str
    cases: Callable[[Any, Named | None], list[Case]]
    graphs: Callable[[Any], list[Graph]]
