"""Removal: slices the parameters of every site to the heads or neurons that stay."""

from __future__ import annotations

import copy
import inspect
import math
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from kheads.anatomy import (
    IndexedArgument,
    LocatedSite,
    OwnTable,
    Plan,
    in_forward_order,
    is_gated,
    locate,
    locate_feeds,
    parts_named,
    rows,
    unwrap,
)
from kheads.anatomy.layout import places, segments
from kheads.blocks.kept import Kept
from kheads.blocks.site import noun
from kheads.surgery.rebuild import (
    FORMAT,
    IndexArgument,
    OpenAttention,
    SelectOutput,
    Silence,
    give_own_tables,
    hook_of,
    packed,
    set_attribute,
    set_hook,
    set_tensor,
)

Model = TypeVar("Model", bound=nn.Module)
Tables = dict[tuple[int, str], Tensor]  # by site and name


def remove(model: Model, kept: Kept, unit: str = "group") -> Model:
    """Removes every head or neuron that is not in `kept`, in place, and returns the (unwrapped) model.

    The result computes what the model computes with the other blocks gated to zero. An emptied site does no work; only
    its output bias remains. Where the class cannot run without a block, or a key-value cache reads its length from the
    site, one stays as a ghost: its output is zero, and it counts as removed (see `ghosts`).

    Optimizers made before hold the old parameters; make them anew.

    Args:
        model: a supported model, pruned before or not.
        kept: the blocks that stay. Heads are removed if it names an attention, neurons if it names a feed-forward, and
            a site of these parts that it does not name keeps none. A part of which it names no site stays as it is;
            one that names nothing at all removes all heads.
        unit: what counts as a head where query heads share keys and values, as in `discover`.
    """
    _refuse(unwrap(model))
    return remove_shapes(model, kept, unit)


def remove_shapes(model: Model, kept: Kept, unit: str = "group") -> Model:
    """`remove`, of a model that may be on the meta device: it has shapes and no weights."""
    model = unwrap(model)
    located = locate(model, unit, parts_named(model, dict(kept.blocks)))
    kept.check([found.site for found in located])
    tables = position_tables(located)
    blocks = dict(kept.blocks)
    for found in located:
        cut_to(found, blocks.get(found.site.name, ()), tables)
    config: Any = getattr(model, "config", None)
    if config is not None:
        config.kheads = architecture(_owner(model, config))
    return model


def _owner(model: nn.Module, config: Any) -> nn.Module:
    """The module whose config it is, and beside whose weights it is saved; a SentenceTransformer only shows it."""
    return next((module for module in model.modules() if vars(module).get("config") is config), model)


def ghosts(model: nn.Module) -> tuple[str, ...]:
    """Names the emptied sites that keep one silent head or neuron, because their class or the cache needs it."""
    located = in_forward_order(model, [*locate(model), *locate_feeds(model, only_cut=True)])
    return tuple(found.site.name for found in located if found.ghost)


def architecture(model: nn.Module) -> dict[str, Any]:
    """Describes how the model differs from the one its config describes; `rebuild` reads it back.

    Feed-forwards are in it only if they were cut.
    """
    model = unwrap(model)
    names = paths(model)
    record: dict[str, Any] = {"format": FORMAT}
    sections = ("sites", "tensors", "attributes", "lists", "tables", "arguments", "selected", "layouts")
    record.update({key: {} for key in sections})
    record["silent"] = []
    parts = model.named_modules(remove_duplicate=False)
    record["opened"] = [name for name, module in parts if isinstance(module, OpenAttention)]
    for found in locate(model):
        record["sites"][found.site.name] = _state(found)
        _describe(found, names, record)
    for found in locate_feeds(model, only_cut=True):
        record.setdefault("neurons", {})[found.site.name] = packed(_state(found))
        _describe(found, names, record)
    return record


def paths(model: nn.Module) -> dict[int, str]:
    """The first name of every parameter and buffer, by identity."""
    names: dict[int, str] = {}
    for path, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            names.setdefault(id(tensor), f"{path}.{name}" if path else name)
    return names


def _refuse(model: nn.Module) -> None:
    if is_gated(model):
        raise RuntimeError("The model is gated; leave `gated(...)` or `detach` its gates before removing blocks.")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError("Some weights are on the meta device (not loaded or offloaded); load the whole model first.")


def _plan(found: LocatedSite, blocks: Sequence[int]) -> Plan:
    """Turns kept blocks into kept query heads and their key-value heads.

    With n_i kept query heads in group i and g the greatest common divisor of the n_i, each key-value head is repeated
    n_i / g times and serves g query heads. Whole groups, or the same number in each, need no repeat.
    """
    group = found.heads // found.kv if found.kv else 1
    if group == 1:
        return Plan(tuple(blocks), tuple(blocks), group)
    query = places(blocks, found.heads_per_block).tolist()
    served = Counter(head // group for head in query)
    counts = [served[index] for index in range(found.kv)]
    common = math.gcd(*counts) if any(counts) else 1
    kv = [index for index, count in enumerate(counts) for _ in range(count // common)]
    return Plan(tuple(query), tuple(kv), group)


def needs_a_head(found: LocatedSite) -> bool:
    """Whether the site, emptied, keeps a silent head."""
    return found.keeps_time or not found.layout.empty


def cut_to(found: LocatedSite, blocks: Sequence[int], tables: Tables) -> None:
    """Leaves the site these blocks, or a silent one where it cannot be empty."""
    plan = _plan(found, blocks)
    ghost = not plan.query and found.heads > 0 and needs_a_head(found)
    cut(found, Plan((0,), (0,), plan.group) if ghost else plan, tables, ghost)


def cut(found: LocatedSite, plan: Plan, tables: Tables, ghost: bool) -> None:
    """Leaves the site the heads of the plan; the one of a ghost is silent."""
    state = _next_state(found, plan, ghost)
    _cut_projections(found, plan)
    _cut_per_head(found, plan)
    _cut_bias(found, plan, tables)
    _select_after_norms(found, plan)
    if ghost:
        set_tensor(found.output, "weight", torch.zeros_like(found.output.weight))
        set_hook(found.output, Silence())
        _mute_values(found)
    set_counts(found, plan)
    found.module.kheads_state = state


def _next_state(found: LocatedSite, plan: Plan, ghost: bool) -> dict[str, Any]:
    """Records what stays in the numbering of the unpruned model, whatever was removed before."""
    old = _state(found)
    return {
        "query": [old["query"][head] for head in plan.query],
        "kv": [old["kv"][head] for head in plan.kv],
        "of": old["of"],
        "of_kv": old["of_kv"],
        "ghost": ghost,
    }


def _state(found: LocatedSite) -> dict[str, Any]:
    whole = {"query": list(range(found.heads)), "kv": list(range(found.kv)), "of": found.heads, "of_kv": found.kv}
    return getattr(found.module, "kheads_state", {**whole, "ghost": False})


def _cut_projections(found: LocatedSite, plan: Plan) -> None:
    def size(name: str) -> int:
        return found.layout.size(found.module, name)

    for path, text in found.layout.rows.items():
        index = rows(text, size, found.heads, found.kv, plan)
        for owner, name, axis in output_tensors(found.module, path):
            _take(owner, name, axis, index)
    columns = places(plan.query, found.head_dim)
    _take(found.output, "weight", 0 if _is_conv1d(found.output) else 1, columns)


@torch.no_grad()
def _mute_values(found: LocatedSite) -> None:
    """Sets the values of a ghost to zero as well, and what goes into its neuron.

    An adapter wraps the output projection and does not know of its hook. It learns nothing from an input of zero, and
    one on the values nothing from an output of zero.
    """
    for path, text in found.layout.rows.items():
        for owner, name, axis in output_tensors(found.module, path):
            start = 0
            for part in (part for _, parts in segments(text) for part in parts):
                size = found.layout.size(found.module, part)
                if part in ("v", "n"):
                    getattr(owner, name).narrow(axis, start, size).zero_()
                start += size


def _cut_per_head(found: LocatedSite, plan: Plan) -> None:
    for path, axis in found.layout.per_head.items():
        heads = plan.kv if path.startswith("kv:") else plan.query
        parent, name, value = resolve(found.module, path.removeprefix("kv:"))
        if isinstance(value, nn.ModuleList):
            setattr(parent, name, nn.ModuleList([copy.deepcopy(value[head]) for head in heads]))
        elif value is not None:
            _take(parent, name, axis, places(heads, 1))


def _select_after_norms(found: LocatedSite, plan: Plan) -> None:
    """Leaves norms over all heads whole and takes the kept heads from what they give."""
    for path, part in found.layout.selected.items():
        norm = found.module.get_submodule(path)
        width = found.layout.size(found.module, part)
        features = places(plan.query if part == "q" else plan.kv, width).tolist()
        old = hook_of(norm, SelectOutput)
        of = old.of if old else width * (found.heads if part == "q" else found.kv)
        set_hook(norm, SelectOutput([old.features[feature] for feature in features] if old else features, of))


def _cut_bias(found: LocatedSite, plan: Plan, tables: Tables) -> None:
    bias, module = found.layout.bias, found.module
    if isinstance(bias, IndexedArgument):
        old = hook_of(module, IndexArgument)
        heads = [old.heads[head] for head in plan.query] if old else list(plan.query)
        places = list(inspect.signature(module.forward).parameters)
        names = {name: places.index(name) for name in bias.names}
        set_hook(module, IndexArgument(names, bias.axis, heads, old.of if old else found.heads, bias.fused))
    elif isinstance(bias, OwnTable):
        give_own_tables(module, {name: _columns(tables.get((id(module), name)), plan) for name in bias.names})


def _columns(table: Tensor | None, plan: Plan) -> nn.Embedding | None:
    """A table with the columns of the heads that stay."""
    if table is None:
        return None
    kept = table.detach()[:, list(plan.query)].clone()
    embedding = nn.Embedding(kept.shape[0], kept.shape[1], _weight=kept)
    embedding.weight.requires_grad_(table.requires_grad)
    return embedding


def position_tables(located: Sequence[LocatedSite]) -> Tables:
    """The tables that each self-attention of a T5-like stack uses: its own, or those of the stack's first layer."""
    tables: Tables = {}
    current: dict[tuple[str, str], Tensor] = {}
    for found in located:
        if not isinstance(found.layout.bias, OwnTable) or found.site.kind == "cross":
            continue
        stack = found.site.name.split(".block.")[0]
        for name in found.layout.bias.names:
            own = getattr(found.module, name, None)
            if own is not None:
                current[stack, name] = own.weight
            tables[id(found.module), name] = current[stack, name]
    return tables


def set_counts(found: LocatedSite, plan: Plan) -> None:
    """Writes the numbers of heads that the class reads."""
    values = counts(plan, found.head_dim)
    for path, what in found.layout.counts.items():
        if resolve(found.module, path)[2] is not None:
            set_attribute(found.module, path, values[what])


def counts(plan: Plan, width: int) -> dict[str, int]:
    """The numbers that a layout's `counts` name, for the heads of a plan."""
    return {
        "heads": len(plan.query),
        "kv": len(plan.kv),
        "group": plan.new_group,
        "heads*width": len(plan.query) * width,
    }


def _take(owner: nn.Module, name: str, axis: int, index: Tensor) -> None:
    old = getattr(owner, name)
    set_tensor(owner, name, old.detach().index_select(axis, index.to(old.device)))


def output_tensors(module: nn.Module, path: str) -> list[tuple[nn.Module, str, int]]:
    """The tensors of a projection that have its output axis: (owner, name, axis)."""
    parent, name, value = resolve(module, path)
    if value is None:
        return []
    if not isinstance(value, nn.Module):
        return [(parent, name, 0)]
    tensors = [(value, "weight", 1 if _is_conv1d(value) else 0)]
    return tensors + ([(value, "bias", 0)] if getattr(value, "bias", None) is not None else [])


def _is_conv1d(module: nn.Module) -> bool:
    return hasattr(module, "nf")


def resolve(module: nn.Module, path: str) -> tuple[Any, str, Any]:
    """Returns (owner, name, value) of a path; value None where it is absent."""
    parent, _, name = path.rpartition(".")
    try:
        owner = attrgetter(parent)(module) if parent else module
    except AttributeError:
        return None, name, None
    return owner, name, getattr(owner, name, None)


def _describe(found: LocatedSite, names: dict[int, str], record: dict[str, Any]) -> None:
    name, layout, module = found.site.name, found.layout, found.module
    prefix = f"{name}." if name else ""
    if "kheads_layout" in module.__dict__:
        record["layouts"][name] = module.kheads_layout
    if "kheads_state" not in module.__dict__:
        return
    owners = [(owner, tensor) for path in layout.rows for owner, tensor, _ in output_tensors(module, path)]
    owners.append((found.output, "weight"))
    for path in layout.per_head:
        owner, tensor, value = resolve(module, path.removeprefix("kv:"))
        if isinstance(value, nn.ModuleList):
            record["lists"][prefix + path.removeprefix("kv:")] = len(value)
        elif value is not None:
            owners.append((owner, tensor))
    for owner, tensor in owners:
        value = getattr(owner, tensor)
        record["tensors"][names[id(value)]] = list(value.shape)
    if found.ghost:
        if not found.output.weight.is_meta and found.output.weight.any():
            what = noun([found.site]).removesuffix("s")
            raise ValueError(f"The silent {what} of the emptied site {name!r} has weights; set its output to 0.")
        record["silent"].append(prefix + layout.o)
    for path in layout.counts:
        value = resolve(module, path)[2]
        if value is not None:
            record["attributes"][prefix + path] = value
    if isinstance(layout.bias, OwnTable):
        tables = {table: getattr(module, table, None) for table in layout.bias.names}
        record["tables"][name] = {table: own and list(own.weight.shape) for table, own in tables.items()}
    if (hook := hook_of(module, IndexArgument)) is not None:
        record["arguments"][name] = hook.record()
    for path in layout.selected:
        record["selected"][prefix + path] = hook_of(module.get_submodule(path), SelectOutput).record()
