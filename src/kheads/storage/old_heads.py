"""Folders that transformers 4 pruned: `config.pruned_heads` names the heads that are gone, and the weights lack them.

transformers 5 no longer reads the entry. The heads that it names are cut from the full-size model as `remove` would cut
them, and the weights have to fit what that gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kheads.anatomy import LocatedSite, Plan, locate
from kheads.storage.contents import CheckpointError
from kheads.surgery.removal import architecture, cut, needs_a_head, position_tables

if TYPE_CHECKING:
    from torch import nn

ENTRY = "pruned_heads"
# Types whose folders, written by transformers 4.57, were loaded and gave the same outputs.
_BERTS = """bert bert-generation camembert data2vec-text distilbert electra ernie esm layoutlm megatron-bert rembert
roberta roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl"""
TYPES = frozenset([*_BERTS.split(), "gpt2", "vit"])


def is_old(config: Mapping[str, Any]) -> bool:
    """Whether a config names pruned heads in the way of transformers 4."""
    return "kheads" not in config and bool(config.get(ENTRY))


def cut_old(model: nn.Module, config: Mapping[str, Any]) -> dict[str, Any]:
    """Cuts a full-size model to what transformers 4 has left, in place, and returns the record of its heads.

    Args:
        model: the model that the config describes, unpruned, on the meta device.
        config: the content of config.json.
    """
    kind = config.get("model_type")
    if kind not in TYPES:
        raise CheckpointError(
            f"transformers 4 pruned heads of its type {kind!r}, and kheads knows how it did that for "
            f"{', '.join(sorted(TYPES))}"
        )
    located = locate(model)
    if any(found.site.kind == "cross" for found in located):
        raise CheckpointError("it has cross-attentions, whose heads transformers 4 did not prune alike")
    gone = _gone(config[ENTRY], located)
    tables = position_tables(located)
    for layer, found in enumerate(located):
        stay = tuple(head for head in range(found.heads) if head not in gone.get(layer, ()))
        if not stay and needs_a_head(found):
            raise CheckpointError(f"it has no head left in layer {layer}, and {type(found.module).__name__} needs one")
        cut(found, Plan(stay, stay, 1), tables, False)
    return architecture(model)


def _gone(entry: Any, located: Sequence[LocatedSite]) -> dict[int, set[int]]:
    """The heads that are gone, by layer, if they exist."""
    gone: dict[int, set[int]] = {}
    for name, heads in entry.items() if isinstance(entry, dict) else [(entry, None)]:
        layer = int(name) if isinstance(name, str) and name.isdecimal() and len(name) < 5 else -1
        known = range(located[layer].heads) if 0 <= layer < len(located) else range(0)
        if not isinstance(heads, list) or any(type(head) is not int or head not in known for head in heads):
            raise CheckpointError(f"its {ENTRY} names heads that layer {str(name)[:20]!r} does not have")
        gone[layer] = set(heads)
    return gone
