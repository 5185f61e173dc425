"""What blocks cost in milliseconds: the time of each kind of site against the number of its blocks, on this device.

One site stands for all that are alike. It is timed alone, on the inputs that it really gets, cut to several numbers of
blocks which take turns. A module that runs alone finds its weights in the cache, so the curves are scaled by what the
whole model gains when all of its blocks go, measured in the same run.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from kheads.anatomy import LocatedSite, locate
from kheads.blocks.costs import Costs
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, part, parts_of, unwrap
from kheads.measuring import latency_tables
from kheads.measuring.measurement import cut_copy, ready, shared_copy
from kheads.measuring.timing import interleaved, speedup
from kheads.surgery.removal import Tables, cut_to, position_tables

Tell = Callable[[str], None]
SECONDS = 1.5  # for the table of one kind of site
FEWEST, MOST = 5, 200  # rounds
MOST_COUNTS = 16  # numbers of heads that are timed
SMALL = (0, 16, 32, 64)  # numbers of neurons where a curve is still steep for its size
PARTS = 8  # and equal shares of all
STEADY = 0.1  # disorder of times up to which their table is worth keeping


@dataclass(frozen=True, eq=False)
class Alike:
    """Sites that take the same time: one stands for all.

    Attributes:
        found: the one that is timed.
        inner: further sites inside its module, which are emptied so that they do not disturb.
        args: what its module is called with.
        kwargs: the same, by name.
        about: all that its time depends on, as plain data.
    """

    found: LocatedSite
    inner: tuple[LocatedSite, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    about: dict[str, Any]


@dataclass(frozen=True)
class Pass:
    """What one forward pass of a model calls.

    Attributes:
        kinds: the kinds of sites, by a digest of what they are.
        of: the kind of each site that was called, by its name.
        calls: how often each site was called, by its name.
    """

    kinds: dict[str, Alike]
    of: dict[str, str]
    calls: dict[str, int]


def times(model: nn.Module, sites: Sequence[Site], inputs: Mapping[str, Any], threads: int | None, tell: Tell) -> Costs:
    """Milliseconds of the blocks of a model.

    Args:
        model: the model; it is left as it was.
        sites: its sites.
        inputs: what `forward` takes, on the model's device.
        threads: threads of the CPU; as many as torch uses now if not given.
        tell: is called with a line of text before anything that takes a while.
    """
    model = unwrap(model)
    given = uncached(model, inputs)
    emptied = cut_copy(model, Kept(tuple((site.name, ()) for site in sites)))
    threads = threads or torch.get_num_threads()
    with ready([model, emptied], threads), torch.inference_mode():
        seen = one_pass(model, sites, given, threads)
        tables = position_tables(locate(model))
        curves = {kind: _curve(alike, tables, tell) for kind, alike in seen.kinds.items()}
        tell("timing the whole model and the model without blocks")
        device = next(model.parameters()).device
        found = timed([lambda: model(**given), lambda: emptied(**given)], device)
    whole = 1e3 * float(found[0].quantile(0.5))
    rest = whole / speedup(found[0], found[1]).ratio
    return calibrated({site.name: _of_site(site, seen, curves) for site in sites}, whole, rest)


def uncached(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, and that no key-value cache is to be made, where the model can be told."""
    known = inspect.signature(model.forward).parameters
    hands_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    asked = "use_cache" in known or (
        hands_on and getattr(getattr(model, "config", None), "use_cache", None) is not None
    )
    return {**inputs, "use_cache": False} if asked else dict(inputs)


def calibrated(curves: Mapping[str, Tensor], whole: float, rest: float) -> Costs:
    """Costs whose blocks take, together, what the model gains when they all go.

    Args:
        curves: milliseconds of each site, timed alone, against the number of its blocks, from 0 up.
        whole: milliseconds of the model.
        rest: milliseconds of the model without blocks.
    """
    alone = sum(float(curve[-1]) for curve in curves.values())
    scale = max(whole - rest, 0.0) / alone if alone else 0.0
    scaled = {name: curve * scale for name, curve in curves.items()}
    each = [curve[-1:].expand(len(curve) - 1) / max(len(curve) - 1, 1) for curve in scaled.values()]
    return Costs("ms", torch.cat(each), whole, whole - alone * scale, scaled)


def timed(calls: Sequence[Callable[[], Any]], device: torch.device, seconds: float = SECONDS) -> Tensor:
    """Seconds of every call in every round, (calls, rounds), in as many rounds as the time allows.

    One thread of a CPU is timed by what it works itself: other jobs would add to long calls more than to short ones.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time if alone else time.perf_counter
    begin = time.perf_counter()
    first = interleaved(calls, 1, device, warmup=1, clock=clock)
    once = (time.perf_counter() - begin) / 2
    rounds = min(max(int(seconds / max(once, 1e-9)), FEWEST), MOST)
    return torch.cat([first, interleaved(calls, rounds - 1, device, warmup=0, clock=clock)], dim=1)


# ------------------------------------------------------------------------------------------------ what a model calls


def one_pass(model: nn.Module, sites: Sequence[Site], inputs: Mapping[str, Any], threads: int) -> Pass:
    """Runs the model once and notes what each site is called with, one of each kind."""
    # A feed-forward may be a whole layer, with an attention inside.
    located = locate(model, parts="heads" if parts_of(sites) == "heads" else "all")
    wanted = {site.name for site in sites}
    seen = Pass({}, {}, {})
    around = latency_tables.surroundings(next(model.parameters()).device, threads)
    with ExitStack() as undo:
        for found in (found for found in located if found.site.name in wanted):
            inner = tuple(other for other in located if other.site.name.startswith(f"{found.site.name}."))
            hook = _noting(seen, found, inner, around)
            undo.callback(found.module.register_forward_pre_hook(hook, with_kwargs=True, prepend=True).remove)
        model(**inputs)
    return seen


def _noting(seen: Pass, found: LocatedSite, inner: tuple[LocatedSite, ...], around: Mapping[str, Any]) -> Any:
    name = found.site.name

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.calls[name] = seen.calls.get(name, 0) + 1
        if name not in seen.of:
            about = {**around, **_about(found, inner), "inputs": _shapes((args, kwargs))}
            seen.of[name] = repr(about)
            seen.kinds.setdefault(repr(about), Alike(found, inner, args, kwargs, about))

    return hook


def _about(found: LocatedSite, inner: Sequence[LocatedSite]) -> dict[str, Any]:
    """What a site is, as far as its time depends on it; where it lies in the model is left out."""
    site, module = found.site, found.module
    start = len(site.name) + 1 if site.name else 0
    hidden = tuple(f"{other.site.name[start:]}." for other in inner)
    configs = [getattr(inside, "config", None) for inside in module.modules()]
    return {
        "class": f"{type(module).__module__}.{type(module).__name__}",
        "site": [site.kind, site.unit, site.count, site.width, site.never_empty, found.heads, found.kv],
        "attention": sorted({str(getattr(config, "_attn_implementation", None)) for config in configs}),
        "window": str(getattr(module, "sliding_window", None)),
        "modules": [
            [name, type(inside).__name__] for name, inside in module.named_modules() if name + "." not in hidden
        ],
        "weights": [
            [name, str(value.dtype), list(value.shape)]
            for name, value in module.named_parameters()
            if not name.startswith(hidden)
        ],
    }


def _shapes(arguments: Any) -> list[str]:
    """What arguments look like: tensors by type and shape, anything else by its type."""
    leaves, tree = tree_flatten(arguments)
    return [_shape(leaf) for leaf in leaves] + [str(tree)]


def _shape(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"{leaf.dtype} {tuple(leaf.shape)}"
    return repr(leaf) if isinstance(leaf, (bool, str, type(None))) else type(leaf).__name__


# ------------------------------------------------------------------------------------------------- time against count


def _of_site(site: Site, seen: Pass, curves: Mapping[str, Tensor]) -> Tensor:
    """A site's curve: that of its kind, as often as it is called."""
    if site.name not in seen.of:  # what does not run costs nothing
        return torch.zeros(site.count + 1, dtype=torch.float64)
    return curves[seen.of[site.name]] * seen.calls[site.name]


def _curve(alike: Alike, tables: Tables, tell: Tell) -> Tensor:
    """Milliseconds of 0, 1, 2 ... blocks, (count + 1,), from 0 up; from the table on disk if there is one."""
    site = alike.found.site
    counts = measured_counts(site)
    ms = latency_tables.read(alike.about, counts)
    if ms is None:
        tell(f"timing {type(alike.found.module).__name__} with {len(counts)} numbers of blocks, 0 to {site.count}")
        taken = _milliseconds(alike, counts, tables)
        ms = isotonic(taken)
        if disorder(taken, ms) <= STEADY:
            latency_tables.write(alike.about, counts, ms)
        else:
            tell("other work on this machine disturbs the timing; its table is not kept")
    return interpolated(counts, [value - ms[0] for value in ms])


def measured_counts(site: Site) -> list[int]:
    """The numbers of blocks that are timed: all where there are few, else small ones and equal shares."""
    if site.count <= MOST_COUNTS:
        return list(range(site.count + 1))
    shares = PARTS if part(site) == "ffn" else MOST_COUNTS
    small = SMALL if part(site) == "ffn" else (0,)
    return sorted({*(n for n in small if n < site.count), *(site.count * n // shares for n in range(1, shares + 1))})


def _milliseconds(alike: Alike, counts: Sequence[int], tables: Tables) -> list[float]:
    modules = [_cut(alike, count, tables) for count in counts]
    device = next(alike.found.module.parameters()).device
    found = timed([_call(module, alike) for module in modules], device)
    return [1e3 * float(value) for value in found.quantile(0.5, dim=1)]


def _call(module: nn.Module, alike: Alike) -> Callable[[], Any]:
    return lambda: module(*alike.args, **alike.kwargs)


def _cut(alike: Alike, count: int, tables: Tables) -> nn.Module:
    """A copy of the module with so many blocks, and none in the sites inside."""
    old, name = alike.found.module, alike.found.site.name
    module = shared_copy(old)
    for other in alike.inner:
        path = other.site.name.removeprefix(f"{name}.")
        cut_to(replace(other, module=module.get_submodule(path)), (), {})
    own = {(id(module), table): value for (of, table), value in tables.items() if of == id(old)}
    cut_to(replace(alike.found, module=module), range(count), own)
    return module


def disorder(values: Sequence[float], rising: Sequence[float]) -> float:
    """How far times are from what rises with the number of blocks, as a share of their range."""
    most = max(abs(value - nearest) for value, nearest in zip(values, rising, strict=True))
    return most / max(rising[-1] - rising[0], 1e-300) if most else 0.0


def isotonic(values: Sequence[float]) -> list[float]:
    """The numbers nearest to these, by squares, that never fall: neighbours in the wrong order share their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]


def interpolated(counts: Sequence[int], values: Sequence[float]) -> Tensor:
    """Values at every number from 0 to the last count, on straight lines between those that are given."""
    at, known = torch.arange(counts[-1] + 1), torch.tensor(counts)
    if len(counts) == 1:
        return torch.tensor(values, dtype=torch.float64)
    right = torch.searchsorted(known, at).clamp(min=1)
    left = right - 1
    share = (at - known[left]).double() / (known[right] - known[left])
    level = torch.tensor(values, dtype=torch.float64)
    return level[left] + share * (level[right] - level[left])
