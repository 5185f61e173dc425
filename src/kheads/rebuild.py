"""Gives a freshly built, full-size model the shapes of a pruned one, from the record in its config.

This file stands alone: it needs torch and transformers, not kheads. `kheads.load` uses it, and `export(..., to="hub")`
puts a copy of it beside the weights, where `from_pretrained(..., trust_remote_code=True)` finds it.

The record says what differs from the architecture that the config describes:

    format      version of the record
    sites       {site: {"query": [...], "kv": [...], "of": n, "of_kv": m, "ghost": bool}}, in the numbering of the
                unpruned model; a ghost is a head whose output is zero, kept where the code cannot run without one
    tensors     {parameter: shape}
    attributes  {attribute: integer}, head counts that `forward` reads
    lists       {module list: length}
    tables      {site: {"name": ..., "shape": [...]}}, position tables that a site now has to itself
    silent      [module], output projections of ghosts: their weights are zero and must not learn
    arguments   {site: {"name": ..., "axis": ..., "heads": [...], "of": n, "fused": bool}}, biases made elsewhere
"""

import copy
from typing import Any

import torch
from torch import nn

FORMAT = 1


class IndexArgument:
    """Forward pre-hook that selects the kept heads on one axis of an argument made elsewhere for all heads.

    With `fused`, that axis holds batch and heads together, as BLOOM's ALiBi does.
    """

    def __init__(self, name: str, axis: int, heads: list[int], of: int, fused: bool = False):
        self.name, self.axis, self.heads, self.of, self.fused = name, axis, list(heads), of, fused

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        value = kwargs.get(self.name)
        if value is None:
            return args, kwargs
        index = torch.tensor(self.heads, dtype=torch.long, device=value.device)
        if self.fused:
            split = value.unflatten(self.axis, (-1, self.of)).index_select(self.axis + 1, index)
            return args, {**kwargs, self.name: split.flatten(self.axis, self.axis + 1)}
        if value.shape[self.axis] == 1:  # one bias for every head
            return args, kwargs
        return args, {**kwargs, self.name: value.index_select(self.axis, index)}

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "axis": self.axis, "heads": self.heads, "of": self.of, "fused": self.fused}


class DropArgument:
    """Forward pre-hook that drops an argument, so that the site computes its own."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return args, {**kwargs, self.name: None} if self.name in kwargs else kwargs


class Silence:
    """Forward pre-hook of a ghost's output projection: no input, so its zero weights get no gradient and stay zero."""

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        return (torch.zeros_like(args[0]), *args[1:]), kwargs


def hook_of(site: nn.Module, kind: type) -> Any:
    """Returns the site's hook of that kind, or None."""
    return next((hook for hook in site._forward_pre_hooks.values() if isinstance(hook, kind)), None)


def set_hook(site: nn.Module, hook: Any) -> None:
    """Adds the hook, in place of an earlier one of its kind."""
    for key in [key for key, old in site._forward_pre_hooks.items() if isinstance(old, type(hook))]:
        del site._forward_pre_hooks[key]
        site._forward_pre_hooks_with_kwargs.pop(key, None)
    site.register_forward_pre_hook(hook, with_kwargs=True)


def give_own_table(site: nn.Module, name: str, table: nn.Embedding | None) -> None:
    """Lets a T5-like site use its own position table, or none (cross-attention), whatever is handed to it."""
    if table is not None:
        setattr(site, name, table)
        setattr(site, f"has_{name}", True)
    set_hook(site, DropArgument("position_bias"))


def set_attribute(root: Any, path: str, value: int) -> None:
    """Sets an integer attribute; a config on the way is first copied, because all sites share it."""
    *parents, name = path.split(".")
    owner = root
    for parent in parents:
        child = getattr(owner, parent) if not parent.isdigit() else owner[int(parent)]
        if parent == "config" and not getattr(child, "kheads_copy", False):
            child = copy.copy(child)
            child.kheads_copy = True
            owner.config = child
        owner = child
    setattr(owner, name, value)


def set_tensor(owner: Any, name: str, tensor: torch.Tensor) -> None:
    """Replaces a parameter or buffer and keeps the sizes that its module states true."""
    if name in owner._parameters:
        old = owner._parameters[name]
        owner._parameters[name] = nn.Parameter(tensor, requires_grad=old.requires_grad)
    else:
        owner._buffers[name] = tensor
    if name != "weight":
        return
    if isinstance(owner, nn.Linear):
        owner.out_features, owner.in_features = tensor.shape
    elif isinstance(owner, nn.Embedding):
        owner.num_embeddings, owner.embedding_dim = tensor.shape
    elif hasattr(owner, "nf") and hasattr(owner, "nx"):  # transformers' Conv1D: inputs first
        owner.nx, owner.nf = tensor.shape


def rebuild(model: nn.Module, record: dict[str, Any]) -> nn.Module:
    """Applies the record to a full-size model in place. Values are left empty, to be loaded."""
    for path, length in record["lists"].items():
        parent, _, name = _locate(model, path).rpartition(".")
        owner = model.get_submodule(parent)
        setattr(owner, name, nn.ModuleList(list(getattr(owner, name))[:length]))
    for site, table in record["tables"].items():
        module = model.get_submodule(_locate(model, site))
        like = next(module.parameters())
        rows, columns = table["shape"] or (0, 0)
        embedding = nn.Embedding(rows, columns, device=like.device, dtype=like.dtype) if table["shape"] else None
        give_own_table(module, table["name"], embedding)
    for path, shape in record["tensors"].items():
        parent, _, name = _locate(model, path).rpartition(".")
        owner = model.get_submodule(parent)
        old = getattr(owner, name)
        set_tensor(owner, name, torch.empty(shape, device=old.device, dtype=old.dtype))
    for path, value in record["attributes"].items():
        set_attribute(model, _locate(model, path), int(value))
    for site, argument in record["arguments"].items():
        set_hook(model.get_submodule(_locate(model, site)), IndexArgument(**argument))
    for path in record["silent"]:
        set_hook(model.get_submodule(_locate(model, path)), Silence())
    for site, state in record["sites"].items():
        model.get_submodule(_locate(model, site)).kheads_state = state
    return model


def _locate(model: nn.Module, path: str) -> str:
    """The path in this model: a bare model lacks the prefix that a model with a task head puts before it."""
    prefix = getattr(model, "base_model_prefix", "")
    if hasattr(model, path.partition(".")[0]):
        return path
    if prefix and path.startswith(f"{prefix}."):
        return path.removeprefix(f"{prefix}.")
    return f"{prefix}.{path}"


def pruned_class(base: Any) -> Any:
    """Returns a subclass of a transformers class whose instances have the shapes of their config's record."""

    def build(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, config, *args, **kwargs)
        record = getattr(config, "kheads", None)
        if record is not None:
            rebuild(self, record)

    # The class of the loaded model keeps the name that `config.architectures` states.
    return type(base.__name__, (base,), {"__init__": build, "__module__": __name__, "__doc__": base.__doc__})


def __getattr__(name: str) -> Any:
    """Resolves the class names that `auto_map` gives in an exported folder."""
    import transformers

    base = getattr(transformers, name, None) if name[:1].isupper() else None
    if isinstance(base, type) and issubclass(base, transformers.PreTrainedModel):
        return pruned_class(base)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
