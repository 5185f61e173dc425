"""Unknown attention classes: layouts guessed from their structure, and accepted only if a batch proves them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from kheads.anatomy import Layout, UnsupportedModelError, discover, guesses, unknown, unwrap
from kheads.blocks.kept import Kept
from kheads.blocks.site import Site, total
from kheads.surgery.gates import gated
from kheads.surgery.removal import remove

TOLERANCE = 1e-3  # of the effect of the gates; a wrong layout is off by about the effect itself


def adopt(model: nn.Module, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Learns how the heads lie in attention classes that kheads does not know, if a batch proves it.

    The names and sizes of a module's projections allow a few layouts. One is accepted if, on a copy of the model with
    every norm and bias disturbed, all gates act on the outputs and removing heads equals gating them, for uneven sets
    of heads and for emptied sites. It is then written on the modules of this model, and saved with them.

    Args:
        model: a model that `discover` refuses because of an unknown class. Its weights are not changed.
        inputs: keyword arguments of one forward.

    Returns:
        The names of the modules that were adopted; none if there was nothing unknown.

    Raises:
        UnsupportedModelError: no layout passed the check; nothing was adopted.
    """
    model = unwrap(model)
    strangers = unknown(model)
    if not strangers:
        return ()
    modules = _outermost(strangers)
    options = {type(module): list(guesses(module)) for module in modules.values()}
    reason = "its projections have no names or widths that kheads could read"
    twin = _disturbed(model)
    for chosen in product(*options.values()) if options else ():
        layouts = dict(zip(options, chosen, strict=True))
        _write(twin, modules, layouts)
        try:
            _prove(twin, inputs)
        except UnsupportedModelError as error:
            reason = str(error).split(". ")[0]
        else:
            _write(model, modules, layouts)
            return tuple(modules)
    names = sorted({type(module).__name__ for module in strangers.values()})
    raise UnsupportedModelError(
        f"{', '.join(names)} cannot be adopted: {reason.rstrip('.')}. "
        "Describe its layout in `kheads.anatomy.LAYOUTS`; docs/your-own-model.md shows how."
    )


class _UnprovenError(UnsupportedModelError):
    """A layout that failed the check."""


def _outermost(strangers: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Those that could be sites, without what lies inside another one."""
    able = {name: module for name, module in strangers.items() if any(True for _ in guesses(module))}
    return {
        name: module
        for name, module in able.items()
        if not any(name.startswith(f"{outer}." if outer else "") for outer in able if outer != name)
    }


def _write(model: nn.Module, modules: Mapping[str, nn.Module], layouts: Mapping[type, Layout]) -> None:
    for name, module in modules.items():
        layout = layouts[type(module)]
        part: Any = model.get_submodule(name)
        part.kheads_layout = as_record(layout)


def as_record(layout: Layout) -> dict[str, Any]:
    """A layout as plain data, as it is saved with a model."""
    return {
        "o": layout.o,
        "rows": dict(layout.rows),
        "width": layout.width,
        "counts": dict(layout.counts),
        "empty": layout.empty,
    }


def _prove(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raises unless every gate acts, and removal equals gating."""
    _check_gates(model, inputs)
    for unit in ("query", "group"):
        sites = discover(model, unit)
        for mask in _masks(sites):
            _check_removal(model, inputs, mask, unit)


def _disturbed(model: nn.Module) -> nn.Module:
    """A copy whose norms and biases are random: zero biases and unit norms would hide mistakes."""
    twin = copy.deepcopy(model).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in twin.parameters():
            if parameter.dim() == 1 and parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.2 * noise.to(parameter.device, parameter.dtype))
    return twin


@torch.enable_grad()
def _check_gates(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    sites = discover(model)
    device = next(model.parameters()).device
    values = torch.full((total(sites),), 0.9, device=device, requires_grad=True)
    with gated(model, values):
        outputs = _outputs(model, inputs)
    if not outputs.isfinite().all():
        raise _UnprovenError("the model's outputs on these inputs are not finite")
    if outputs.requires_grad:
        torch.autograd.backward(outputs.square().mean())
    start = 0
    for site in sites:
        gradient = None if values.grad is None else values.grad[start : start + site.count]
        if gradient is None or not gradient.all():
            raise _UnprovenError(f"the gates of {site.name} have no effect on the outputs for these inputs")
        start += site.count


def _masks(sites: tuple[Site, ...]) -> list[Tensor]:
    """Uneven sets of heads, other ones in each site, and every second site emptied."""
    masks = [torch.rand(total(sites), generator=torch.Generator().manual_seed(seed)) < 0.5 for seed in (0, 1)]
    for parity in (0, 1):
        kept = [torch.full((site.count,), number % 2 == parity) for number, site in enumerate(sites)]
        masks.append(torch.cat(kept))
    return masks


@torch.no_grad()
def _check_removal(model: nn.Module, inputs: Mapping[str, Any], mask: Tensor, unit: str) -> None:
    device = next(model.parameters()).device
    sites = discover(model, unit)
    whole = _outputs(model, inputs)
    with gated(model, mask.to(device, torch.float32), unit):
        masked = _outputs(model, inputs)
    effect = (masked - whole).abs().max()
    try:
        pruned = remove(copy.deepcopy(model), Kept.from_mask(mask.double(), sites), unit)
        difference = (_outputs(pruned, inputs) - masked).abs().max()
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise _UnprovenError(f"it fails with heads removed ({str(error).splitlines()[0]})") from error
    if not difference <= TOLERANCE * effect:
        raise _UnprovenError(
            f"removing heads is not gating them (off by {difference:.1e}, where gating moves {effect:.1e})"
        )


def _outputs(model: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    """Every floating-point tensor that the model gives, as one vector."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # some models draw at random in eval mode too
        given = model(**inputs)
    values = list(given.values()) if isinstance(given, Mapping) else given
    tensors = [values] if isinstance(values, Tensor) else [value for value in values if isinstance(value, Tensor)]
    return torch.cat([value.float().flatten() for value in tensors if value.is_floating_point()])
