"""Finds every site of a model, or refuses by name what it does not understand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch import nn

from kheads.anatomy.feed_forwards import FEEDS, MIXTURES, REFUSED_FEEDS
from kheads.anatomy.layout import Layout, segments, total_rows
from kheads.anatomy.patterns import Table
from kheads.anatomy.table import LAYOUTS, NOT_SITES, REFUSED
from kheads.blocks.site import Site, unwrap

UNITS = ("group", "query")
PARTS = ("heads", "ffn", "all")
PROJECTIONS = ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear", "FalconLinear")

_CROSS_NAMES = frozenset(
    {"crossattention", "encoder_attn", "EncDecAttention", "cross_attention", "cross_attn", "multihead_attn"}
)
# Names of projections by which an attention is recognised: apart, or all in one.
APART = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
    ("query_proj", "key_proj", "value_proj"),
    ("linear_q", "linear_k", "linear_v"),
    ("to_q", "to_k", "to_v"),
    ("wq", "wk", "wv"),
)
TOGETHER = ("qkv_proj", "qkv", "Wqkv", "query_key_value", "c_attn")


class UnsupportedModelError(ValueError):
    """The model has an attention that kheads does not understand, or a wrapper that it cannot look through."""


@dataclass(frozen=True)
class LocatedSite:
    """A site with what gates and surgery need to work on it.

    Attributes:
        site: the public record.
        module: the attention, or what holds the projections of a feed-forward.
        layout: where its heads or neurons are.
        head_dim: width of one query head.
        heads: its query heads, a ghost included.
        kv: its key-value heads.
        heads_per_block: query heads that go together; 1 unless the unit is "group".
        keeps_time: whether a key-value cache reads its length from this site, so that it must never be empty.
    """

    site: Site
    module: Any  # an nn.Module, with the attributes that its layout names
    layout: Layout
    head_dim: int
    heads: int
    kv: int
    heads_per_block: int
    keeps_time: bool

    @property
    def output(self) -> Any:
        """The output projection, at whose input the heads lie side by side."""
        return self.module.get_submodule(self.layout.o)

    @property
    def ghost(self) -> bool:
        """Whether its only head is a placeholder whose output is zero."""
        return is_ghost(self.module)


def locate(model: nn.Module, unit: str = "group", parts: str = "heads") -> tuple[LocatedSite, ...]:
    """Finds the sites of a model, as `discover` does, with modules and layouts."""
    if unit not in UNITS:
        raise ValueError(f"`unit` must be one of {', '.join(map(repr, UNITS))}; got {unit!r}.")
    if parts not in PARTS:
        raise ValueError(f"`parts` must be one of {', '.join(map(repr, PARTS))}; got {parts!r}.")
    heads = _heads(unwrap(model), unit)
    if parts == "heads":
        return heads
    feeds = locate_feeds(model)
    _refuse_feeds(unwrap(model), heads, feeds)
    return feeds if parts == "ffn" else in_forward_order(model, [*heads, *feeds])


def _heads(model: nn.Module, unit: str) -> tuple[LocatedSite, ...]:
    modules = dict(model.named_modules())
    _refuse_wrappers(model, modules.values())
    matched = {name: (module, layout) for name, module in modules.items() if (layout := _layout(module))}
    _refuse_unknown(modules, set(matched))
    if not matched:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no attention heads that kheads could find. {_advice()}"
        )
    timekeepers = _timekeepers(matched)
    return tuple(
        _located(name, module, layout, unit, name in timekeepers) for name, (module, layout) in matched.items()
    )


def parts_named(model: nn.Module, names: Iterable[str]) -> str:
    """Which parts of the model sites of these names are: "heads", "ffn" or "all". What is no feed-forward is a head's.

    A mixture of experts counts as a feed-forward, so that `locate` refuses it by name.
    """
    modules = dict(unwrap(model).named_modules())
    feeds = FEEDS.keys() | REFUSED_FEEDS.keys()
    found = {name in modules and table_key(modules[name]) in feeds for name in names}
    return "all" if len(found) > 1 else "ffn" if True in found else "heads"


def locate_feeds(model: nn.Module, only_cut: bool = False) -> tuple[LocatedSite, ...]:
    """The feed-forward layers that kheads knows, mixtures of experts left out, in the order of a forward pass.

    With `only_cut`, those from which neurons were removed; nothing else of the model is looked at then.
    """
    mixtures = set(MIXTURES.values())
    modules = dict(unwrap(model).named_modules())
    whole = {name for name, module in modules.items() if table_key(module) in mixtures}
    located = [
        _located(name, module, layout, "group", False)
        for name, module in modules.items()
        if ("kheads_state" in module.__dict__ or not only_cut)
        and (layout := _layout(module, FEEDS))
        and whole.isdisjoint(_outside(name))
    ]
    return in_forward_order(model, located)


def in_forward_order(model: nn.Module, located: Sequence[LocatedSite]) -> tuple[LocatedSite, ...]:
    """Sorts sites by where their modules end: a layer that is itself a site runs what it holds first.

    Some classes make their feed-forward before an attention that runs before it. Only a conformer's first one is first.
    """
    ends = {name: place for place, name in enumerate(_endings(unwrap(model), ""))}
    attended = {_around(found): ends[found.site.name] for found in located if found.site.kind != "ffn"}

    def place(found: LocatedSite) -> tuple[int, int]:
        name = found.site.name
        first = found.site.kind != "ffn" or name.endswith(".ffn1")
        return (ends[name], 0) if first else (max(ends[name], attended.get(_around(found), 0)), 1)

    return tuple(sorted(located, key=place))


def _around(found: LocatedSite) -> str:
    return found.site.name.rpartition(".")[0]


def _endings(module: nn.Module, name: str) -> Iterator[str]:
    """The names of the modules inside, then that of the module itself."""
    for part, inner in module.named_children():
        yield from _endings(inner, f"{name}.{part}" if name else part)
    yield name


def is_ghost(module: nn.Module) -> bool:
    """Whether an emptied site keeps one head whose output is zero."""
    return bool(getattr(module, "kheads_state", {}).get("ghost", False))


def is_gated(model: nn.Module) -> bool:
    """Whether gates are in force on any part of the model."""
    return any(getattr(hook, "is_gate", False) for part in model.modules() for hook in part._forward_pre_hooks.values())


def _layout(module: nn.Module, table: Table = LAYOUTS) -> Layout | None:
    if table is LAYOUTS and (own := module.__dict__.get("kheads_layout")) is not None:  # written by `kheads.adopt`
        return Layout(**own)
    for layout in table.get(table_key(module), ()):
        if layout.when is None or layout.when(module):
            return layout
    return None


def table_key(module: nn.Module) -> str:
    """A class of transformers goes by its name; any other by its full name, so that a namesake is not mistaken."""
    cls = type(module)
    return cls.__name__ if cls.__module__.startswith("transformers.") else f"{cls.__module__}.{cls.__name__}"


def _located(name: str, module: nn.Module, layout: Layout, unit: str, keeps_time: bool) -> LocatedSite:
    output = child(module, layout.o)
    _refuse_projection(f"{name}.{layout.o}", output)
    head_dim = layout.size(module, "o")
    heads = _inputs(output) // head_dim
    kv = _kv_heads(name, module, layout, heads)
    group = heads // kv if kv else 1
    unit = "neuron" if layout.kind == "ffn" else unit if group > 1 else "head"
    together = group if unit == "group" else 1
    site = Site(
        name=name,
        kind=_kind(name, module, layout),
        count=0 if is_ghost(module) else heads // together,
        width=head_dim * together,
        unit=unit,
        output=f"{name}.{layout.o}" if name else layout.o,
        never_empty=keeps_time or not layout.empty,
    )
    return LocatedSite(site, module, layout, head_dim, heads, kv, together, keeps_time)


def _kv_heads(name: str, module: nn.Module, layout: Layout, heads: int) -> int:
    """Counts the key-value heads from the weights, and checks that every projection has the rows it should."""
    present = {path: text for path, text in layout.rows.items() if child(module, path) is not None}
    found = {part for text in present.values() for _, names in segments(text) for part in names}
    found |= set(layout.selected.values())
    if len(present) < len(layout.rows) if layout.kind == "ffn" else not {"q", "k", "v"} <= found:
        raise UnsupportedModelError(
            f"{name} ({type(module).__name__}) lacks one of the projections {', '.join(layout.rows)}; "
            f"this version of the class is not supported. {_advice()}"
        )

    def size(part: str) -> int:
        return layout.size(module, part)

    shared = [(path, text) for path, text in present.items() if any(over != "query" for over, _ in segments(text))]
    kv = heads
    for path, text in shared[:1]:
        per_kv = sum(size(part) for over, parts in segments(text) for part in parts if over != "query" and part != "q")
        kv = (_outputs(child(module, path)) - total_rows_of_queries(text, size, heads)) // per_kv
    for path, text in present.items():
        projection = child(module, path)
        _refuse_projection(f"{name}.{path}", projection)
        if _outputs(projection) != total_rows(text, size, heads, kv) or (kv and heads % kv):
            raise UnsupportedModelError(
                f"{name}.{path} has {_outputs(projection)} rows, which do not fit {_fit(layout, heads, size('q'))}; "
                f"{type(module).__name__} is laid out in a way kheads does not know. {_advice()}"
            )
    return kv


def _fit(layout: Layout, heads: int, width: int) -> str:
    return f"{heads} neurons" if layout.kind == "ffn" else f"{heads} heads of {width}"


def total_rows_of_queries(text: str, size: Any, heads: int) -> int:
    """Rows of a projection that belong to query heads, whether they stand apart or inside groups."""
    rows = 0
    for over, parts in segments(text):
        rows += heads * sum(size(part) for part in parts if over == "query" or part == "q")
    return rows


def _kind(name: str, module: nn.Module, layout: Layout) -> str:
    if layout.kind == "ffn":
        return "ffn"
    if name.rpartition(".")[2] in _CROSS_NAMES or getattr(module, "is_cross_attention", False):
        return "cross"
    if layout.kind is not None:
        return layout.kind
    inner = getattr(module, "self", module)
    causal = getattr(inner, "is_causal", False) or getattr(inner, "is_decoder", False)
    return "decoder" if causal or "decoder" in name.split(".") else "encoder"


def _timekeepers(matched: dict[str, tuple[nn.Module, Layout]]) -> set[str]:
    """Sites from which a cache takes its length: the first decoder self-attention of a stack, and the first full one.

    `DynamicCache` reports length 0 for an empty key tensor, and positions and masks are made from that length.
    """
    names: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for name, (module, layout) in matched.items():
        if _kind(name, module, layout) != "decoder":
            continue
        stack = next((name.split(f".{part}.")[0] for part in name.split(".") if part.isdigit()), name)
        marks = {(stack, "any")} | ({(stack, "full")} if getattr(module, "sliding_window", None) is None else set())
        if marks - seen:
            names.add(name)
        seen |= marks
    return names


def _refuse_wrappers(model: nn.Module, modules: Iterable[nn.Module]) -> None:
    for module in modules:
        package = type(module).__module__.partition(".")[0]
        if package == "peft":
            raise UnsupportedModelError(
                f"The model is wrapped by PEFT ({type(module).__name__}); merge the adapter first: "
                "`model = model.merge_and_unload()`. A pruned model can take a new adapter afterwards."
            )
        if type(module).__name__ == "FullyShardedDataParallel":
            raise UnsupportedModelError("The model is sharded by FSDP; prune it before sharding.")
    if getattr(model, "hf_quantizer", None) is not None or getattr(model, "is_quantized", False):
        raise UnsupportedModelError("The model is quantised; prune the unquantised model and quantise the result.")
    if any(hasattr(parameter, "device_mesh") for parameter in model.parameters()):
        raise UnsupportedModelError("The model is tensor-parallel; prune it before splitting it over devices.")


def unknown(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that look like attention and have no layout, by name; those around known sites are left out.

    Raises:
        UnsupportedModelError: one of them is on the list of refusals.
    """
    modules = dict(model.named_modules())
    return _unknown(modules, {name for name, module in modules.items() if _layout(module)})


def _unknown(modules: Mapping[str, nn.Module], matched: set[str]) -> dict[str, nn.Module]:
    found = {}
    around = {name for site in matched for name in _outside(site)}
    for name, module in modules.items():
        if name in matched or not matched.isdisjoint(_outside(name)):
            continue
        cls = type(module).__name__
        if cls in REFUSED and type(module).__module__.partition(".")[0] in ("transformers", "torch"):
            raise UnsupportedModelError(f"{name or 'The model'} is a {cls}, which kheads cannot prune: {REFUSED[cls]}")
        if name not in around and cls not in NOT_SITES and _looks_like_attention(module):
            found[name] = module
    return found


def _outside(name: str) -> Iterator[str]:
    """The names of the modules around the one of that name, from the nearest to the model itself, ""."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def _refuse_unknown(modules: Mapping[str, nn.Module], matched: set[str]) -> None:
    for name, module in _unknown(modules, matched).items():
        raise UnsupportedModelError(
            f"{name or 'The model'} is a {type(module).__module__}.{type(module).__name__}, an attention that kheads "
            f"does not know. {_advice()}"
        )


def _refuse_feeds(model: nn.Module, heads: Sequence[LocatedSite], feeds: Sequence[LocatedSite]) -> None:
    """Refuses a model of whose feed-forward layers some are not understood: those of every attention must be known."""
    for name, module in model.named_modules():
        key = table_key(module)
        if key in REFUSED_FEEDS and _layout(module, FEEDS) is None:
            raise UnsupportedModelError(
                f"{name} is a {key}, whose neurons kheads cannot remove: {REFUSED_FEEDS[key]}. {_only_heads()}"
            )
    known = {around for feed in feeds for around in (feed.site.name, *_outside(feed.site.name))}
    for found in heads:
        if (layer := _layer(found.site.name)) not in known:
            raise UnsupportedModelError(
                f"{layer or 'The model'} has an attention and no feed-forward that kheads knows. {_only_heads()}"
            )


def _layer(name: str) -> str:
    """The layer that an attention is part of: up to the first number in its name, or what is around it."""
    parts = name.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdigit()), len(parts) - 2)
    return ".".join(parts[: number + 1])


def _only_heads() -> str:
    return 'Use `parts="heads"`, or describe the class in `kheads.anatomy.FEEDS` (docs/your-own-model.md).'


def _looks_like_attention(module: nn.Module) -> bool:
    cls = type(module).__name__.lower()
    children = {name for name, _ in module.named_children()}
    named = ("attention" in cls or "attn" in cls) and any(True for _ in module.parameters())
    return named or not children.isdisjoint(TOGETHER) or any(children.issuperset(names) for names in APART)


def _refuse_projection(name: str, projection: Any) -> None:
    if isinstance(projection, nn.Parameter) or type(projection).__name__ in PROJECTIONS:
        return
    if projection is None:
        raise UnsupportedModelError(f"{name} does not exist in this version of the class. {_advice()}")
    raise UnsupportedModelError(
        f"{name} is a {type(projection).__module__}.{type(projection).__name__}, not a plain linear layer; "
        "prune the plain model first (unquantised, adapters merged, no parametrisations), then wrap the result."
    )


def child(module: nn.Module, path: str) -> Any:
    """The part at that path, or None."""
    try:
        return attrgetter(path)(module)
    except AttributeError:
        return None


def _outputs(projection: Any) -> int:
    if isinstance(projection, nn.Parameter):
        return projection.shape[0]
    return int(projection.nf if hasattr(projection, "nf") else projection.out_features)


def _inputs(projection: Any) -> int:
    return int(projection.nx if hasattr(projection, "nx") else projection.in_features)


def _advice() -> str:
    return (
        "`kheads.adopt(model, inputs)` checks on a batch whether its structure says enough; otherwise describe its "
        "layout in `kheads.anatomy.LAYOUTS` (docs/your-own-model.md shows how; docs/models.md lists the models kheads "
        "knows)."
    )
