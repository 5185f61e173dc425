"""What each block costs in FLOPs: what a model computes with it and without, counted inside the module of its site."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from kheads.blocks.costs import Costs
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, part, unwrap
from kheads.measuring.measurement import counting, cut_copy


def work(model: nn.Module, sites: Sequence[Site], inputs: Mapping[str, Any]) -> Costs:
    """FLOPs of every block in one forward pass.

    Three passes are counted: the whole model, one without any head, one without any neuron. A block costs the
    difference inside its site, divided by the number of blocks: the work of a site is linear in them. A site that is
    never empty keeps one block in all passes.

    Args:
        model: the model.
        sites: its sites.
        inputs: what `forward` takes.
    """
    names = [site.name for site in sites]
    whole, inside = counted_inside(model, names, inputs)
    gone: dict[str, int] = {}
    for name in sorted({part(site) for site in sites}):
        own = [site for site in sites if part(site) == name]
        _, left = counted_inside(cut_copy(model, least(own)), names, inputs)
        gone |= _exclusive({site.name: inside[site.name] - left[site.name] for site in own})
    prices = {site.name: _price(site, gone[site.name]) for site in sites}
    each = torch.tensor([prices[site.name] for site in sites for _ in range(site.count)], dtype=torch.float64)
    return Costs("flops", each, float(whole), float(whole) - float(each.sum()))


def least(sites: Sequence[Site]) -> Kept:
    """No block, but one where the site is never empty."""
    return Kept(tuple((site.name, (0,) if site.never_empty and site.count else ()) for site in sites))


def counted_inside(model: nn.Module, names: Iterable[str], inputs: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """FLOPs of one forward pass, and those inside the modules of these names, over all of their calls."""
    model = unwrap(model)
    found: dict[str, int] = defaultdict(int)
    with ExitStack() as undo, counting(model) as counter:
        for name in names:
            module = model.get_submodule(name)
            before, after = _counting(found, name, counter)
            undo.callback(module.register_forward_pre_hook(before, prepend=True).remove)
            undo.callback(module.register_forward_hook(after).remove)
        model(**inputs)
    return int(counter.get_total_flops()), found


def _counting(found: dict[str, int], name: str, counter: FlopCounterMode) -> tuple[Any, Any]:
    """Hooks that add what is counted between them."""

    def before(*_: Any) -> None:
        found[name] -= int(counter.get_total_flops())

    def after(*_: Any) -> None:
        found[name] += int(counter.get_total_flops())

    return before, after


def _exclusive(gone: Mapping[str, int]) -> dict[str, int]:
    """What went in each site alone: some feed-forwards lie inside the module of another one."""
    found: dict[str, int] = {}
    for name in sorted(gone, key=len, reverse=True):
        inner = sum(count for other, count in found.items() if other.startswith(f"{name}."))
        found[name] = gone[name] - inner
    return found


def _price(site: Site, gone: int) -> float:
    """What one block costs; of a site that is never empty one was left."""
    count = site.count - int(site.never_empty)
    return gone / count if count > 0 else 0.0
