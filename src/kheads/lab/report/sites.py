"""The attention modules of a record, by layer and kind: the columns of head maps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CROSS = ("encoder_attn", "crossattention", "encdecattention", "cross_attn", "crossattn")
KIND_NAMES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross"}


@dataclass(frozen=True)
class Column:
    """One attention module: its path, kind, place among those of its kind (from 0) and number of heads."""

    site: str
    kind: str
    layer: int
    heads: int


def columns_of(record: Mapping[str, Any]) -> tuple[Column, ...]:
    """The modules in order, kind by kind.

    Records that list their sites (`before.sites`) are taken at their word. Older ones have names only; there the kind
    follows from the path, and the number of heads from the scores, if it is the same everywhere.
    """
    listed = record["before"].get("sites")
    if listed is None:
        names = list(record["kept"])
        listed = [{"name": name, "kind": _kind(name), "count": _even(record, len(names))} for name in names]
    kinds = [kind for kind in KIND_NAMES if any(site["kind"] == kind for site in listed)]
    ordered = [(kind, [site for site in listed if site["kind"] == kind]) for kind in kinds]
    return tuple(
        Column(site["name"], kind, layer, site["count"]) for kind, sites in ordered for layer, site in enumerate(sites)
    )


def _kind(name: str) -> str:
    path = name.lower()
    if any(word in path for word in CROSS):
        return "cross"
    return "decoder" if re.search(r"\bdecoder\b", path) else "encoder"


def _even(record: Mapping[str, Any], sites: int) -> int:
    heads, rest = divmod(int(record["before"]["heads"]), max(sites, 1))
    if rest:
        raise ValueError(
            f"The record does not say how its {record['before']['heads']} heads lie in {sites} attention modules; "
            "run it again with this version of kheads."
        )
    return heads
