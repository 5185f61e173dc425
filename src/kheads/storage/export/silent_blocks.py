"""Silent blocks: the weights of a pruned model laid into a larger one of the same class, zeros in between.

A head whose output columns are zero adds nothing, whatever it looks at; a neuron likewise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kheads.anatomy import LocatedSite, OwnTable, Plan, locate, locate_feeds, rows
from kheads.anatomy.layout import places
from kheads.storage.export.target import ExportError
from kheads.surgery.removal import output_tensors, position_tables, resolve

Located = Mapping[str, LocatedSite]
Slots = Mapping[str, Sequence[int]]  # the place of each block of a site in the larger one


def sites_of(model: nn.Module) -> dict[str, LocatedSite]:
    """The attentions and feed-forwards of a model by name."""
    return {found.site.name: found for found in (*locate(model), *locate_feeds(model))}


@torch.no_grad()
def lay_into(larger: nn.Module, model: nn.Module, slots: Slots) -> None:
    """Gives the larger model the weights of the pruned one; what is new in it is silent.

    Args:
        larger: a model of the same parts with as many blocks at each site, or more.
        model: the pruned model.
        slots: for each site the place of each of its blocks in the larger one; a ghost has none.
    """
    theirs, ours = sites_of(larger), sites_of(model)
    _copy_others(larger, model, ours)
    for name, found in ours.items():
        _lay_site(theirs[name], found, slots[name])
    _lay_tables(theirs, ours, slots)


def _copy_others(larger: nn.Module, model: nn.Module, sites: Located) -> None:
    given = model.state_dict()
    for name, tensor in larger.state_dict().items():
        if name in given and given[name].shape == tensor.shape:
            tensor.copy_(given[name])
        elif not any(name.startswith(f"{site}.") for site in sites):
            raise ExportError(
                f"{name} of {type(larger).__name__} follows from the same numbers, but is no part of a site."
            )


def _lay_site(larger: LocatedSite, found: LocatedSite, slots: Sequence[int]) -> None:
    """Puts the blocks of a site into their slots."""
    layout, group = found.layout, larger.heads // larger.kv
    plan = Plan(tuple(places(slots, group).tolist()), tuple(slots), group)

    def size(part: str) -> int:
        return layout.size(found.module, part)

    for path, text in layout.rows.items():
        index = rows(text, size, larger.heads, larger.kv, plan)
        pairs = zip(output_tensors(larger.module, path), output_tensors(found.module, path), strict=True)
        for (there, name, axis), (here, _, _) in pairs:
            _put(getattr(there, name), getattr(here, name), axis, index)
    axis = 0 if hasattr(found.output, "nf") else 1  # Conv1D: inputs first
    _put(larger.output.weight, found.output.weight, axis, places(plan.query, found.head_dim))
    for path, axis in layout.per_head.items():
        _put_per_head(larger.module, found.module, path, axis, plan)


def _put_per_head(larger: nn.Module, smaller: nn.Module, path: str, axis: int, plan: Plan) -> None:
    there, here = (resolve(module, path.removeprefix("kv:"))[2] for module in (larger, smaller))
    heads = plan.kv if path.startswith("kv:") else plan.query
    if isinstance(here, nn.ModuleList):
        for slot, module in zip(heads, here, strict=False):  # none for a ghost's
            there[slot].load_state_dict(module.state_dict())
    elif here is not None:
        _put(there, here, axis, places(heads, 1))


def _put(there: Tensor, here: Tensor, axis: int, index: Tensor) -> None:
    there.zero_()
    if len(index):  # where nothing stays, the pruned site may have a ghost
        there.index_copy_(axis, index, here.detach().to(there.dtype))


def _lay_tables(theirs: Located, ours: Located, slots: Slots) -> None:
    """Puts the columns of position tables into their slots, where several sites may share a table."""
    sources, targets = (position_tables(list(found.values())) for found in (ours, theirs))
    taken: dict[tuple[int, int], Tensor] = {}
    for target in targets.values():
        target.zero_()
    for name, found in ours.items():
        bias: Any = found.layout.bias
        for table in bias.names if isinstance(bias, OwnTable) and found.site.kind != "cross" else ():
            source, target = sources[id(found.module), table], targets[id(theirs[name].module), table]
            for column, slot in enumerate(slots[name]):
                _check_same(name, taken.setdefault((id(target), slot), source[:, column]), source[:, column])
                target[:, slot] = source[:, column]


def _check_same(name: str, one: Tensor, other: Tensor) -> None:
    if not torch.equal(one, other):
        raise ExportError(
            f"{name} has other position biases for a head than another layer, as after training, and its class has one "
            "table for all layers; use `to='hub'`."
        )
