"""The record of a run: what was asked, what came out, on what. Written beside the model as result.json."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from kheads.anatomy import discover
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, part, total
from kheads.methods.base import Method
from kheads.methods.look import Look
from kheads.methods.registry import BUILT_IN, UNPRUNED, key_of
from kheads.storage import strict_json

NAME = "result.json"
# What is measured of the smaller model in the course of a run, and what people read behind the metric's name.
STAGES = {"cut": " (after the cut)", "repaired": " (repaired)", "pruned": "", "recovered": " (recovered)"}
FURTHER = "further"  # the model with all heads, trained on for as long
UNPRUNED_LOOK = Look("Unpruned", marker="", dash="dash", colour="@ink")


def describe_method(method: Method | None) -> dict[str, Any]:
    """A method's name and its fields; none for the unpruned baseline."""
    return {"name": UNPRUNED} if method is None else {"name": key_of(method), **asdict(method)}


def describe_look(method: Method | None, pipelined: bool) -> dict[str, Any]:
    """How the run is drawn, and with which others it is a series; a report needs no more of the method."""
    if method is None:
        return {"key": UNPRUNED, "rank": 2 * len(BUILT_IN), **asdict(UNPRUNED_LOOK)}
    key, look = key_of(method), method.look_in(pipelined)
    apart = look != method.look
    place = list(BUILT_IN).index(key) if key in BUILT_IN else len(BUILT_IN)
    return {"key": f"{key}-pipelined" if apart else key, "rank": 2 * place + apart, **asdict(look)}


def describe_model(model: nn.Module, sites: Sequence[Site]) -> dict[str, Any]:
    """Heads, and neurons where these are chosen from, too; where they lie, and size."""
    lie = [{"name": site.name, "kind": site.kind, "count": site.count} for site in sites]
    chosen = [site for site in sites if part(site) == "heads"]
    neurons = total(site for site in sites if part(site) == "ffn")
    counts = {"heads": total(chosen or discover(model)), **({"neurons": neurons} if neurons else {})}
    return {**counts, "sites": lie, **size_of(model)}


def describe_kept(kept: Kept, before: Mapping[str, Any]) -> dict[str, int]:
    """How many heads stay, and neurons where these were chosen from, too.

    Args:
        kept: the blocks that stay.
        before: what `describe_model` says of the model that was given.
    """
    blocks = kept.to_dict()
    of = {
        kind: [site for site in before["sites"] if (site["kind"] == "ffn") == (kind == "ffn")] for kind in ("", "ffn")
    }
    counts = {kind: sum(len(blocks.get(site["name"], ())) for site in sites) for kind, sites in of.items()}
    heads = counts[""] if of[""] else before["heads"]
    return {"heads": heads, **({"neurons": counts["ffn"]} if of["ffn"] else {})}


def size_of(model: nn.Module) -> dict[str, int]:
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


def write(record: Mapping[str, Any], folder: Path) -> Path:
    """Writes the record, whole or not at all."""
    return write_json(record, folder / NAME)


def write_json(value: Mapping[str, Any], path: Path) -> Path:
    """Writes JSON beside its place and renames it, so that no reader sees half of it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(strict_json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path
