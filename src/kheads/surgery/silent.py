"""Silent heads for emptied sites, where what runs the model cannot do without: most runtimes know no empty matrix."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from kheads.anatomy import IndexedArgument, LocatedSite, OwnTable, Plan, in_forward_order, locate, locate_feeds, unwrap
from kheads.anatomy.layout import total_rows
from kheads.surgery.rebuild import IndexArgument, SelectOutput, Silence, give_own_tables, hook_of, set_hook, set_tensor
from kheads.surgery.removal import architecture, output_tensors, resolve, set_counts

Model = TypeVar("Model", bound=nn.Module)


def give_silent_heads(model: Model) -> Model:
    """Gives every emptied site one head or neuron whose output is zero, in place, and returns the (unwrapped) model.

    It computes what it did before. These are the ghosts that `remove` keeps where a class cannot do without one; here
    no site is left without.
    """
    model = unwrap(model)
    for found in in_forward_order(model, [*locate(model), *locate_feeds(model, only_cut=True)]):
        if found.heads == 0:
            _give_silent_head(found)
    config: Any = getattr(model, "config", None)
    if config is not None:
        config.kheads = architecture(model)
    return model


def _give_silent_head(found: LocatedSite) -> None:
    _widen_projections(found)
    _widen_per_head(found)
    _widen_bias(found)
    for path, part in found.layout.selected.items():
        norm = found.module.get_submodule(path)
        set_hook(norm, SelectOutput(list(range(found.layout.size(found.module, part))), hook_of(norm, SelectOutput).of))
    set_hook(found.output, Silence())
    set_counts(found, Plan((0,), (0,), 1))
    found.module.kheads_state = {**found.module.kheads_state, "query": [0], "kv": [0], "ghost": True}


def _widen_projections(found: LocatedSite) -> None:
    """One head's rows in every projection, and its columns in the output projection; zeros."""
    for path, text in found.layout.rows.items():
        rows = total_rows(text, lambda part: found.layout.size(found.module, part), heads=1, kv=1)
        for owner, name, axis in output_tensors(found.module, path):
            _widen(owner, name, axis, rows)
    _widen(found.output, "weight", 0 if hasattr(found.output, "nf") else 1, found.head_dim)


def _widen_per_head(found: LocatedSite) -> None:
    for path, axis in found.layout.per_head.items():
        owner, name, value = resolve(found.module, path.removeprefix("kv:"))
        if isinstance(value, nn.ModuleList):
            raise ValueError(f"{found.site.name} has a module for each head and none is left to take; keep one head.")
        if value is not None:
            _widen(owner, name, axis, 1)


def _widen_bias(found: LocatedSite) -> None:
    bias, module = found.layout.bias, found.module
    if isinstance(bias, IndexedArgument):
        old = hook_of(module, IndexArgument)
        set_hook(module, IndexArgument(old.names, old.axis, [0], old.of, old.fused))
    elif isinstance(bias, OwnTable):
        tables = {name: getattr(module, name, None) for name in bias.names}
        for table in tables.values():
            if table is not None:
                _widen(table, "weight", 1, 1)
        give_own_tables(module, tables)


def _widen(owner: nn.Module, name: str, axis: int, size: int) -> None:
    old = getattr(owner, name)
    shape = [*old.shape[:axis], size, *old.shape[axis + 1 :]]
    set_tensor(owner, name, torch.zeros(shape, dtype=old.dtype, device=old.device))
