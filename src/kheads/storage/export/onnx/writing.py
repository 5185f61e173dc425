"""The ONNX target: files that onnxruntime runs, tried where there is nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from kheads.storage.contents import write_json
from kheads.storage.export.companions import take_along, without_code
from kheads.storage.export.onnx.card import write_card
from kheads.storage.export.onnx.comparing import compare, run_files
from kheads.storage.export.onnx.graph import Case, Kind, Named
from kheads.storage.export.onnx.int8 import ENDING, ROUNDS, quantise, report
from kheads.storage.export.onnx.kinds import kind_of
from kheads.storage.export.onnx.refusal import refusal
from kheads.storage.export.onnx.tracing import quiet, write_graph
from kheads.storage.export.sentences import sentence_files, write_sentence_files
from kheads.storage.export.target import Exported, ExportError, Order
from kheads.storage.marks import MARK
from kheads.storage.model_folder import CONFIG, GENERATION
from kheads.storage.weights import INDEX, weight_files
from kheads.surgery.silent import give_silent_heads

if TYPE_CHECKING:
    from pathlib import Path

NOT_OF_IT = ("kheads", "_name_or_path")  # the record is for weights that are not here, the path for this machine


def write(order: Order) -> Exported:
    """Writes the files and compares what they give in a new process."""
    model: Any = order.model
    small_too = check_int8(order.options.get("int8", False))
    kind, remarks = kind_of(model), []
    if model.dtype != torch.float32:
        remarks.append(
            f"The weights were {str(model.dtype).removeprefix('torch.')}; the ONNX file has them as float32."
        )
        model.float()
    cases = _cases(kind, model, order.inputs)
    give_silent_heads(model)  # after the cases: these come from the model as it was
    paths = _write_graphs(kind, model, order.folder)
    small = [quantise(path) for path in paths] if small_too else []
    found = run_files(order.folder, kind.name, cases, ("", ENDING) if small else ("",), ROUNDS if small else 0)
    compared = [compare(cases, found), *([report(cases, found, paths)] if small else [])]
    left = _furnish(order, kind)
    remarks += [f"Left out of the export: {', '.join(left)}."] if left else []
    remarks += write_sentence_files(order)[1]
    return Exported(tuple(compared), tuple(remarks))


def check_int8(value: Any) -> bool:
    """The option, if it is one."""
    if not isinstance(value, bool):
        raise ValueError(f"`int8` must be True or False; got {value!r}.")
    return value


def _cases(kind: Kind, model: Any, inputs: Named | None) -> list[Case]:
    """What to compare, computed by the model as it was saved."""
    with _trying(model, "kheads cannot make up inputs for it"):
        return kind.cases(model, inputs)


def _write_graphs(kind: Kind, model: Any, folder: Path) -> list[Path]:
    with _trying(model, "it does not run as a file would run it"):
        graphs = kind.graphs(model)
    return [write_graph(model, graph, folder) for graph in graphs]


@contextmanager
def _trying(model: Any, reason: str) -> Iterator[None]:
    """Runs the model on what was made up; if it fails, that is the reason not to export it."""
    try:
        with torch.no_grad(), quiet():
            yield
    except ExportError:
        raise
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise refusal(model, reason) from error


def _furnish(order: Order, kind: Kind) -> list[str]:
    """Puts configs, tokenizer and card beside the files, and returns what was left out."""
    model: Any = order.model
    config = without_code(model.config.to_dict())
    write_json(order.folder / CONFIG, {name: value for name, value in config.items() if name not in NOT_OF_IT})
    if model.can_generate():
        write_json(order.folder / GENERATION, without_code(model.generation_config.to_diff_dict()))
    written = {MARK, CONFIG, GENERATION, INDEX, *(path.name for path in weight_files(order.source))}
    left = take_along(order.source, order.folder, written | sentence_files(order.source))
    write_card(order, kind)
    return left
