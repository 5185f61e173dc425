"""The record of a run: what was asked, what came out, on what. Written beside the model as result.json."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from kheads.blocks.site import Site, total
from kheads.methods import METHODS, Method
from kheads.training.pruning import PruneResult

NAME = "result.json"


def describe(
    result: PruneResult, method: Method | None, settings: dict[str, Any], before: dict[str, Any], metric: str
) -> dict[str, Any]:
    """Everything about a run that another reader needs, as plain data.

    Args:
        result: what `prune` returned.
        method: how heads were chosen; None for the unpruned baseline.
        settings: what the user asked for.
        before: `describe_model` of the model before.
        metric: the headline metric of the task.
    """
    key = next((key for key, cls in METHODS.items() if isinstance(method, cls)), "none")
    return {
        "method": {"name": key, **(dataclasses.asdict(method) if method is not None else {})},
        "settings": settings,
        "metric": metric,
        "metrics": result.metrics,
        "kept": result.kept.to_dict(),
        "scores": result.scores.tolist(),
        "before": before,
        "after": {"heads": len(result.kept), **size_of(result.model)},
        "report": result.report,
        "history": result.history,
        "versions": versions(),
        "machine": machine(),
    }


def describe_model(model: PreTrainedModel, sites: Sequence[Site]) -> dict[str, Any]:
    """Heads, where they lie, and size."""
    lie = [{"name": site.name, "kind": site.kind, "count": site.count} for site in sites]
    return {"heads": total(sites), "sites": lie, **size_of(model)}


def size_of(model: PreTrainedModel) -> dict[str, int]:
    """Parameters, and bytes of weights."""
    unique = {id(parameter): parameter for parameter in model.parameters()}.values()
    return {
        "parameters": sum(parameter.numel() for parameter in unique),
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in unique),
    }


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "kheads": metadata.version("kheads"),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def machine() -> dict[str, Any]:
    """What it ran on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
    }


def write(record: dict[str, Any], folder: Path) -> Path:
    """Writes the record, whole or not at all."""
    return write_json(record, folder / NAME)


def write_json(value: Mapping[str, Any], path: Path) -> Path:
    """Writes JSON beside its place and renames it, so that no reader sees half of it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=1, default=str) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path
