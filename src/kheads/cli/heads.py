"""kheads heads: the map of a model's heads."""

from __future__ import annotations

import json
from typing import Any

from kheads.anatomy import discover
from kheads.blocks.kept import Kept
from kheads.cli.app import JsonOption, ModelArgument, UnitOption
from kheads.lab import terminal
from kheads.storage import sources


def heads(model: ModelArgument, unit: UnitOption = "group", as_json: JsonOption = False) -> None:
    """Show the map of a model's attention heads.

    Example: `kheads heads bert-base-uncased`
    """
    built = sources.skeleton(model)
    sites = discover(built, unit)
    if as_json:
        print(json.dumps([site.__dict__ for site in sites]))
        return
    terminal.console().print(_map(sites, getattr(built.config, "kheads", None)))


def _map(sites: Any, record: dict[str, Any] | None) -> Any:
    if record is None or any(site.unit != "head" for site in sites):
        return terminal.head_map(sites)
    kept = {name: [] if state["ghost"] else state["query"] for name, state in record["sites"].items()}
    totals = {name: state["of"] for name, state in record["sites"].items()}
    return terminal.head_map(sites, Kept.from_dict(kept), totals)
