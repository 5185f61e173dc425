"""Gives a freshly built, full-size model the shapes of a pruned one, from the record in its config.

This file stands alone: it needs torch and transformers, not kheads. `kheads.load` uses it, and `export(..., to="hub")`
puts a copy of it beside the weights, where `from_pretrained(..., trust_remote_code=True)` finds it.

The record says what differs from the architecture that the config describes:

    format      version of the record
    sites       {site: {"query": [...], "kv": [...], "of": n, "of_kv": m, "ghost": bool}}, in the numbering of the
                unpruned model; a ghost is a head whose output is zero, kept where the code cannot run without one
    neurons     {site: {"mask": "...", "of": n, "ghost": bool}}, the same for feed-forwards that were cut, if any: one
                bit for each neuron of the unpruned model, 1 where it stays, low bits first, in base64
    tensors     {parameter: shape}
    attributes  {attribute: integer}, counts of heads or neurons that `forward` reads
    lists       {module list: length}
    tables      {site: {table: shape or null}}, position tables that a site now has to itself
    silent      [module], output projections of ghosts: their weights are zero and must not learn
    arguments   {site: {"names": {...}, "axis": ..., "heads": [...], "of": n, "fused": bool}}, biases made elsewhere
    layouts     {site: {...}}, layouts that `kheads.adopt` proved, for classes that are not in its table
    opened      [module], attentions of torch that were replaced by `OpenAttention`
    selected    {norm: {"features": [...], "of": n}}, norms over all heads, of whose output only the kept heads go on
    checksum    {what: digest}, of the files beside the record; `kheads.load` compares it, this file does not

A record can reach nothing but the parts of its own sites, and change nothing there but what the number of heads or
neurons tells: sizes, counts that have the old value now, and hooks that select exactly the heads that the site keeps.
"""

import base64
import hashlib
import inspect
import json
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

FORMAT = 1
SEAL = ""  # in an exported folder: the digest of the one record that `export` has tried; no other is taken there

Arguments = tuple[Any, ...]  # of a call of a module
Keywords = dict[str, Any]


class IndexArgument:
    """Forward pre-hook that selects the kept heads on one axis of arguments made elsewhere for all heads.

    `names` maps each argument to its place in the call. With `fused`, the axis holds batch and heads together, as
    BLOOM's ALiBi does.
    """

    def __init__(self, names: dict[str, int], axis: int, heads: list[int], of: int, fused: bool = False):
        self.names, self.axis, self.heads, self.of, self.fused = dict(names), axis, list(heads), of, fused

    def __call__(self, module: nn.Module, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
        for name, place in self.names.items():
            if isinstance(kwargs.get(name), torch.Tensor):
                kwargs = {**kwargs, name: self._select(kwargs[name])}
            elif place < len(args) and isinstance(args[place], torch.Tensor):
                args = (*args[:place], self._select(args[place]), *args[place + 1 :])
        return args, kwargs

    def _select(self, value: torch.Tensor) -> torch.Tensor:
        index = torch.tensor(self.heads, dtype=torch.long, device=value.device)
        if self.fused and value.dim() == 2:  # an attention mask for every head and example
            return value
        if self.fused:
            split = value.view(*value.shape[: self.axis], -1, self.of, *value.shape[self.axis + 1 :])
            return split.index_select(self.axis + 1, index).flatten(self.axis, self.axis + 1)
        if value.dim() <= self.axis or value.shape[self.axis] == 1:  # one bias for every head
            return value
        return value.index_select(self.axis, index)

    def record(self) -> dict[str, Any]:
        return {"names": self.names, "axis": self.axis, "heads": self.heads, "of": self.of, "fused": self.fused}


class SelectOutput:
    """Forward hook of a norm over all heads: hands on the features of the kept heads."""

    def __init__(self, features: list[int], of: int):
        self.features, self.of = list(features), of

    def __call__(self, module: nn.Module, args: Arguments, output: torch.Tensor) -> torch.Tensor:
        return output.index_select(-1, torch.tensor(self.features, dtype=torch.long, device=output.device))

    def record(self) -> dict[str, Any]:
        return {"features": self.features, "of": self.of}


class DropArgument:
    """Forward pre-hook that drops an argument, so that the site computes its own."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, module: nn.Module, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
        return args, {**kwargs, self.name: None} if self.name in kwargs else kwargs


class Silence:
    """Forward pre-hook of a ghost's output projection: no input, so its zero weights get no gradient and stay zero."""

    def __call__(self, module: nn.Module, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
        return (torch.zeros_like(args[0]), *args[1:]), kwargs


class ConfigView:
    """A site's own view of the config that all sites share: its own counts, everything else as the config has it."""

    def __init__(self, config: Any):
        self.__dict__["shared"] = config

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "shared" not in self.__dict__:  # half-made copies ask before they have a state
            raise AttributeError(name)
        return getattr(self.shared, name)


class OpenAttention(nn.Module):
    """What `nn.MultiheadAttention` computes, with projections of their own, so that heads can be gated and removed.

    torch's module hands its weights to a function, which asserts their sizes and calls no output projection.
    """

    # nn.TransformerEncoder(Layer) reads these, and then leaves its fused path for the module's forward.
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(self, attention: nn.MultiheadAttention):
        super().__init__()
        if attention.bias_k is not None or attention.add_zero_attn:
            raise ValueError("nn.MultiheadAttention with `add_bias_kv` or `add_zero_attn` cannot be opened.")
        self.num_heads, self.head_dim = attention.num_heads, attention.head_dim
        self.batch_first, self.dropout = attention.batch_first, attention.dropout
        if attention.in_proj_weight is not None:
            weights = attention.in_proj_weight.detach().chunk(3)
        else:
            weights = tuple(getattr(attention, f"{part}_proj_weight").detach() for part in "qkv")
        biases = (None,) * 3 if attention.in_proj_bias is None else attention.in_proj_bias.detach().chunk(3)
        self.q_proj, self.k_proj, self.v_proj = map(_linear, weights, biases)
        self.out_proj = _linear(attention.out_proj.weight.detach(), attention.out_proj.bias)
        self.requires_grad_(attention.out_proj.weight.requires_grad).train(attention.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Like `nn.MultiheadAttention.forward`; `is_causal` is a hint there, and `attn_mask` says the same."""
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = query.dim() == 3
        if not batched:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        q, k, v = self._split(self.q_proj(query)), self._split(self.k_proj(key)), self._split(self.v_proj(value))
        bias = self._bias(q, key_padding_mask, attn_mask)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
            weights = functional.dropout((scores if bias is None else scores + bias).softmax(-1), dropout)
            mixed = weights @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
        output = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _split(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _bias(self, q: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Both masks as one sum; a boolean mask is True where nothing may be seen."""
        masks = []
        if padding is not None:
            masks.append(padding.view(q.shape[0], 1, 1, -1))
        if mask is not None:
            masks.append(mask if mask.dim() == 2 else mask.view(q.shape[0], self.num_heads, *mask.shape[-2:]))
        closed = [
            torch.zeros_like(one, dtype=q.dtype).masked_fill(one, float("-inf")) if one.dtype == torch.bool else one
            for one in masks
        ]
        return sum(closed[1:], closed[0]) if closed else None


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def open_attention(model: nn.Module) -> nn.Module:
    """Replaces every `nn.MultiheadAttention` inside the model, in place, by a module whose heads can be removed.

    The outputs stay the same; only `nn.TransformerEncoder`, which in eval mode may write zeros at padded positions, now
    computes them, as it does in training mode. The parameters get other names (`q_proj`, `k_proj` and `v_proj` instead
    of one `in_proj`), so load a state dict before, and make optimizers after.
    """
    parts = model.named_modules(remove_duplicate=False)
    _open(model, [name for name, module in parts if type(module) is nn.MultiheadAttention and name])
    return model


def _open(model: nn.Module, paths: list[str]) -> None:
    opened: dict[nn.Module, OpenAttention] = {}  # one that has several names stays one
    for path in paths:
        parent, _, name = path.rpartition(".")
        owner = model.get_submodule(parent)
        old = getattr(owner, name)
        if not isinstance(old, OpenAttention):
            setattr(owner, name, opened.setdefault(old, OpenAttention(old)))
    for module in model.modules():
        if paths and isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # the fused path, which takes the weights past the modules


def hook_of(site: nn.Module, kind: type) -> Any:
    """Returns the site's hook of that kind, or None."""
    hooks = (*site._forward_pre_hooks.values(), *site._forward_hooks.values())
    return next((hook for hook in hooks if isinstance(hook, kind)), None)


def set_hook(site: nn.Module, hook: Any) -> None:
    """Adds the hook, in place of an earlier one of its kind."""
    if isinstance(hook, SelectOutput):
        for key in [key for key, old in site._forward_hooks.items() if isinstance(old, SelectOutput)]:
            del site._forward_hooks[key]
        site.register_forward_hook(hook)
        return
    for key in [key for key, old in site._forward_pre_hooks.items() if isinstance(old, type(hook))]:
        del site._forward_pre_hooks[key]
        site._forward_pre_hooks_with_kwargs.pop(key, None)
    site.register_forward_pre_hook(hook, with_kwargs=True)


def give_own_tables(site: nn.Module, tables: dict[str, nn.Embedding | None]) -> None:
    """Lets a T5-like site use its own position tables, or none (cross-attention), whatever is handed to it."""
    for name, table in tables.items():
        if table is not None:
            setattr(site, name, table)
            setattr(site, f"has_{name}", True)
    set_hook(site, DropArgument("position_bias"))


def _table(shape: list[int], like: Tensor) -> nn.Embedding:
    return nn.Embedding(shape[0], shape[1], device=like.device, dtype=like.dtype)


def set_attribute(root: Any, path: str, value: int) -> None:
    """Sets an integer attribute; a config on the way is first given a view, because all sites share it."""
    *parents, name = path.split(".")
    owner = root
    for parent in parents:
        child = getattr(owner, parent) if not parent.isdigit() else owner[int(parent)]
        if parent == "config" and not isinstance(child, ConfigView):
            child = owner.config = ConfigView(child)
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
    """Applies the record to a full-size model in place. Values are left empty, to be loaded.

    Raises:
        ValueError: the record names something that is no part of its sites, or that its heads do not tell.
    """
    record = {**record, "sites": _states(record)}
    _open(model, [_opened(model, path) for path in record.get("opened", [])])
    for path, length in record["lists"].items():
        owner, name = _owner(model, record, path)
        modules = owner._modules.get(name)
        _require(isinstance(modules, nn.ModuleList) and _is_size(length), path)
        setattr(owner, name, nn.ModuleList(list(modules)[:length]))
    for site, tables in record["tables"].items():
        _give_tables(_part(model, site), _state(record, site), tables)
    for path, shape in record["tensors"].items():
        owner, name = _owner(model, record, path)
        old: Any = {**owner._parameters, **owner._buffers}.get(name)
        _require(old is not None and len(shape) == old.dim() and all(map(_is_size, shape)), path)
        set_tensor(owner, name, torch.empty(shape, device=old.device, dtype=old.dtype))
    for path, value in record["attributes"].items():
        _set_count(model, record, path, value)
    for site, argument in record["arguments"].items():
        module, state = _part(model, site), _state(record, site)
        known = set(inspect.signature(module.forward).parameters)
        _require(argument["heads"] == state["query"] and argument["of"] == state["of"], site)
        _require(known.issuperset(argument["names"]), site)
        set_hook(module, IndexArgument(**argument))
    for path, features in record.get("selected", {}).items():
        _select_output(model, record, path, features)
    for path in record["silent"]:
        _require(_site_state(record, path)["ghost"], path)
        set_hook(_part(model, path), Silence())
    for site, layout in record.get("layouts", {}).items():
        vars(_part(model, site))["kheads_layout"] = layout
    for site, state in record["sites"].items():
        vars(_part(model, site))["kheads_state"] = state
    return model


def packed(state: dict[str, Any]) -> dict[str, Any]:
    """What is said of a feed-forward, as the record says it: thousands of neurons, one bit each."""
    mask = bytearray((state["of"] + 7) // 8)
    for neuron in state["query"]:
        mask[neuron // 8] |= 1 << neuron % 8
    return {"mask": base64.b64encode(mask).decode(), "of": state["of"], "ghost": state["ghost"]}


def unpacked(site: str, state: Any) -> dict[str, Any]:
    """What `packed` was given: a neuron is a head with a key and value of its own.

    Raises:
        ValueError: it is nothing that `packed` gives.
    """
    expected = {"mask": str, "of": int, "ghost": bool}
    _require(isinstance(state, dict) and {key: type(value) for key, value in state.items()} == expected, site)
    of = state["of"]
    try:
        mask = base64.b64decode(state["mask"], validate=True)
    except ValueError:
        mask = b""
    _require(of > 0 and len(mask) == (of + 7) // 8, site)  # before anything is done `of` times
    neurons = [neuron for neuron in range(of) if mask[neuron // 8] >> neuron % 8 & 1]
    found = {"query": neurons, "kv": list(neurons), "of": of, "of_kv": of, "ghost": state["ghost"]}
    _require(packed(found) == state, site)  # no bits beyond the last neuron
    return found


def _states(record: dict[str, Any]) -> dict[str, Any]:
    """What the record says of every site, of whichever kind."""
    feeds = {site: unpacked(site, state) for site, state in record.get("neurons", {}).items()}
    for site in feeds:
        _require(site not in record["sites"], site)
    return {**record["sites"], **feeds}


def _require(holds: bool, path: str) -> None:
    if not holds:
        raise ValueError(f"The record of heads says of {path!r} what its heads do not tell; the record is damaged.")


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _part(model: nn.Module, path: str) -> Any:
    """The module at that path; nothing but modules is on the way."""
    module: nn.Module | None = model
    for name in _locate(model, path).split(".") if path else ():
        module = module._modules.get(name) if module is not None else None
    if module is None:
        raise ValueError(f"The record of heads names {path!r}, which the model does not have.")
    return module


def _state(record: dict[str, Any], site: str) -> dict[str, Any]:
    _require(site in record["sites"], site)
    state: dict[str, Any] = record["sites"][site]
    return state


def _site_state(record: dict[str, Any], path: str) -> dict[str, Any]:
    """What the record says of the site that the path lies in."""
    sites = [site for site in record["sites"] if path.startswith(f"{site}." if site else "")]
    return _state(record, max(sites, key=len, default=path))


def _owner(model: nn.Module, record: dict[str, Any], path: str) -> tuple[Any, str]:
    """The module inside a site that has the thing at the path, and the thing's name there."""
    _site_state(record, path)
    parent, _, name = path.rpartition(".")
    return _part(model, parent), name


def _opened(model: nn.Module, path: str) -> str:
    _require(type(_part(model, path)) is nn.MultiheadAttention, path)
    return _locate(model, path)


def _give_tables(site: nn.Module, state: dict[str, Any], tables: dict[str, list[int] | None]) -> None:
    like = next(site.parameters())
    for name, shape in tables.items():
        _require(name.isidentifier() and isinstance(getattr(site, name, None), (nn.Embedding, type(None))), name)
        _require(shape is None or (len(shape) == 2 and shape[1] == len(state["query"])), name)
    give_own_tables(site, {name: _table(shape, like) if shape else None for name, shape in tables.items()})


def _set_count(model: nn.Module, record: dict[str, Any], path: str, value: int) -> None:
    """Sets an attribute that now has the count of the full-size site to the same count of the heads that stay."""
    state = _site_state(record, path)
    parent, _, name = path.rpartition(".")
    shared = parent.rpartition(".")[2] == "config"  # set on a view of the config, which belongs to all sites
    owner = _part(model, parent.rpartition(".")[0] if shared else parent)
    old = getattr(owner.config, name, None) if shared and hasattr(owner, "config") else vars(owner).get(name)
    _require(type(old) is int and type(value) is int and _is_count(state, old, value), path)
    set_attribute(owner, f"config.{name}" if shared else name, value)


def _is_count(state: dict[str, Any], old: int, new: int) -> bool:
    """Whether the old number counts all heads of a site, and the new one, in the same way, those that stay."""
    heads, kv, of, of_kv = len(state["query"]), len(state["kv"]), state["of"], state["of_kv"]
    groups = new == heads // kv if kv else 1 <= new <= old  # nothing to share in an empty site
    return (new * of == old * heads) or (old, new) == (of_kv, kv) or (old == of // of_kv and groups)


def _select_output(model: nn.Module, record: dict[str, Any], path: str, features: dict[str, Any]) -> None:
    state, norm = _site_state(record, path), _part(model, path)
    kept = []
    for heads, of in ((state["query"], state["of"]), (state["kv"], state["of_kv"])):
        width = features["of"] // of
        kept.append([head * width + place for head in heads for place in range(width)])
    _require(features["features"] in kept and list(norm.weight.shape) == [features["of"]], path)
    set_hook(norm, SelectOutput(**features))


def _locate(model: nn.Module, path: str) -> str:
    """The path in this model: a bare model lacks the prefix that a model with a task head puts before it."""
    prefix = getattr(model, "base_model_prefix", "")
    if path.partition(".")[0] in model._modules:
        return path
    if prefix and path.startswith(f"{prefix}."):
        return path.removeprefix(f"{prefix}.")
    return f"{prefix}.{path}"


def digest(record: dict[str, Any]) -> str:
    """A fingerprint of the record."""
    text = json.dumps({key: value for key, value in record.items() if key != "checksum"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def pruned_class(base: Any) -> Any:
    """Returns a subclass of a transformers class whose instances have the shapes of their config's record."""

    def build(self: nn.Module, config: Any, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, config, *args, **kwargs)
        record = getattr(config, "kheads", None)
        if record is not None:
            if SEAL and digest(record) != SEAL:
                raise ValueError("The record of heads in config.json is not the one that was exported with this code.")
            rebuild(self, record)

    # The class of the loaded model keeps the name that `config.architectures` states.
    return type(base.__name__, (base,), {"__init__": build, "__module__": __name__, "__doc__": base.__doc__})


def __getattr__(name: str) -> Any:
    """Resolves the class names that `auto_map` gives in an exported folder."""
    if name[:1].isupper():  # import statements ask for `__path__`, which must not load transformers
        import transformers

        base = getattr(transformers, name, None)
        if isinstance(base, type) and issubclass(base, transformers.PreTrainedModel):
            return pruned_class(base)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
