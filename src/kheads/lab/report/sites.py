"""The attention and feed-forward modules of a record, by layer and kind: the columns of head maps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CROSS = ("encoder_attn", "crossattention", "encdecattention", "cross_attn", "crossattn")
FEED_FORWARD = "ffn"
KIND_NAMES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross"}


@dataclass(frozen=True)
class Column:
    """One module: its path, kind, place among those of its kind (from 0) and number of heads, or of neurons."""

    site: str
    kind: str
    layer: int
    heads: int


def columns_of(record: Mapping[str, Any]) -> tuple[Column, ...]:
    """The attention modules in order, kind by kind.

    Records that list their sites (`before.sites`) are taken at their word. Older ones have names only; there the kind
    follows from the path, and the number of heads from the scores, if it is the same everywhere.
    """
    listed = record["before"].get("sites")
    if listed is None:
        names = list(record["kept"])
        listed = [{"name": name, "kind": _kind(name), "count": _even(record, len(names))} for name in names]
    return tuple(column for kind in KIND_NAMES for column in _of_kind(listed, kind))


def feeds_of(record: Mapping[str, Any]) -> tuple[Column, ...]:
    """The feed-forward modules in order; none where no neurons were chosen from."""
    return tuple(_of_kind(record["before"].get("sites") or [], FEED_FORWARD))


def _of_kind(listed: Sequence[Mapping[str, Any]], kind: str) -> list[Column]:
    sites = [site for site in listed if site["kind"] == kind]
    return [Column(site["name"], kind, layer, site["count"]) for layer, site in enumerate(sites)]


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
