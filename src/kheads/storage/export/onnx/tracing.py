"""Tracing: a graph as a file, by torch.onnx."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kheads.storage.export.onnx.graph import Graph
from kheads.storage.export.onnx.refusal import refusal


class _Traced(nn.Module):
    """The model as a function of plain tensors."""

    def __init__(self, model: nn.Module, graph: Graph):
        super().__init__()
        self.model, self.graph = model, graph

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self.graph.run(self.model, dict(zip(self.graph.inputs, tensors, strict=True)))


def write_graph(model: Any, graph: Graph, folder: Path) -> Path:
    """Writes one file; weights of more than 2 GB lie beside it.

    Raises:
        ExportError: torch.onnx cannot trace the model.
    """
    path = folder / f"{graph.file}.onnx"
    shapes = {"tensors": tuple(dict(graph.axes[name]) for name in graph.inputs)}
    names: dict[str, Any] = {"input_names": list(graph.inputs), "output_names": list(graph.outputs)}
    traced = _Traced(model, graph).eval()
    try:
        with quiet(), torch.no_grad():
            given = tuple(graph.inputs.values())
            program = torch.onnx.export(traced, given, dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
            if program is None:
                raise RuntimeError("torch.onnx gave no program")
            _forget_where(program.model)
            program.save(str(path))
    except Exception as error:  # tracing runs all of the model's code, which may raise anything
        raise refusal(model, "torch.onnx cannot trace it") from error
    return path


def _forget_where(graph: Any) -> None:
    """Takes off what torch.onnx notes on every part: which line of which file of this machine it comes from."""
    graph.metadata_props.clear()
    for node in graph.graph.all_nodes():
        for part in (node, *node.outputs):
            part.metadata_props.clear()
    for value in graph.graph.inputs:
        value.metadata_props.clear()


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps tracing and quantising from talking: their remarks are on their own insides."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
