"""kheads heads: the map of a model's heads, and of its neurons."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kheads.blocks.fields import OneOf, check_value
from kheads.cli.app import JsonOption, ModelArgument, UnitOption

Parts = Annotated[str, OneOf(("heads", "ffn", "all"))]
PARTS = "What to show: heads, ffn (neurons) or all; heads, unless neurons are gone already."


def heads(
    model: ModelArgument,
    unit: UnitOption = "group",
    parts: Annotated[str | None, typer.Option(help=PARTS, show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the map of a model's attention heads, with the names of its sites as --protect takes them.

    Example: `kheads heads bert-base-uncased`
    """
    check_value(Parts | None, parts, "--parts")
    from kheads.anatomy import discover
    from kheads.lab import terminal
    from kheads.storage import sources

    built = sources.skeleton(model)
    record = getattr(built.config, "kheads", None)
    sites = discover(built, unit, parts or ("all" if (record or {}).get("neurons") else "heads"))
    if as_json:
        print(json.dumps([asdict(site) for site in sites]))
        return
    terminal.console().print(_map(sites, record))


def _map(sites: Any, record: Mapping[str, Any] | None) -> Any:
    from kheads.blocks.kept import Kept
    from kheads.lab.terminal import head_map

    if record is None or any(site.unit not in ("head", "neuron") for site in sites):
        return head_map(sites, named=True)
    states = {site.name: _state(site, record) for site in sites}
    kept = {name: [] if state["ghost"] else state["query"] for name, state in states.items()}
    totals = {name: state["of"] for name, state in states.items()}
    return head_map(sites, Kept.from_dict(kept), totals, named=True)


def _state(site: Any, record: Mapping[str, Any]) -> Any:
    """What the record says of a site; feed-forwards that were not cut are not in it."""
    from kheads.surgery.rebuild import unpacked

    if site.name in record["sites"]:
        return record["sites"][site.name]
    packed = record.get("neurons", {}).get(site.name)
    whole = {"query": list(range(site.count)), "of": site.count, "ghost": False}
    return whole if packed is None else unpacked(site.name, packed)
