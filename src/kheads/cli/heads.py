"""kheads heads: the map of a model's heads."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from kheads.cli.app import JsonOption, ModelArgument, UnitOption


def heads(model: ModelArgument, unit: UnitOption = "group", as_json: JsonOption = False) -> None:
    """Show the map of a model's attention heads, with the names of its sites as --protect takes them.

    Example: `kheads heads bert-base-uncased`
    """
    from kheads.anatomy import discover
    from kheads.lab import terminal
    from kheads.storage import sources

    built = sources.skeleton(model)
    sites = discover(built, unit)
    if as_json:
        print(json.dumps([asdict(site) for site in sites]))
        return
    terminal.console().print(_map(sites, getattr(built.config, "kheads", None)))


def _map(sites: Any, record: dict[str, Any] | None) -> Any:
    from kheads.blocks.kept import Kept
    from kheads.lab.terminal import head_map

    if record is None or any(site.unit != "head" for site in sites):
        return head_map(sites, named=True)
    kept = {name: [] if state["ghost"] else state["query"] for name, state in record["sites"].items()}
    totals = {name: state["of"] for name, state in record["sites"].items()}
    return head_map(sites, Kept.from_dict(kept), totals, named=True)
