"""Gates: every block times its value, at the input of the site's output projection (eq. 4).

A gate there equals removal of the block exactly; for heads, whatever computes the attention (eager, sdpa, flash).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from kheads.anatomy import LocatedSite, is_gated, locate, unwrap
from kheads.blocks.budget import Budget
from kheads.blocks.constraints import Constraints
from kheads.blocks.costs import Costs
from kheads.blocks.kept import Kept
from kheads.blocks.selection import select
from kheads.blocks.site import Site, Sites, noun, parts_of, total

NAME = "kheads_gates"

P = ParamSpec("P")
R = TypeVar("R")


def _untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Keeps torch.compile out of the function, and torch._dynamo unloaded for as long as nothing is compiled.

    `torch.compiler.disable` itself would load it where the function is defined, which takes longer than all of kheads.
    """
    disabled: Callable[P, R] | None = None

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        if not torch.compiler.is_dynamo_compiling() and "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if disabled is None:
            disable: Any = torch.compiler.disable
            disabled = disable(function)
        return disabled(*args, **kwargs)

    return call


class _Examples:
    """Forward pre-hook of the whole model: notes how many examples it is given."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim())
        self.count = next((len(value) for value in given), 0)


class _GateHook:
    """Forward pre-hook of one output projection: multiplies each block of the input by its value."""

    is_gate = True  # how `anatomy.is_gated` recognises it

    def __init__(self, site: Site, start: int, values: Callable[[], Tensor], examples: _Examples | None = None):
        self.site, self.start, self.values, self.examples = site, start, values, examples

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, *rest = args
        values = self.values()[..., self.start : self.start + self.site.count].to(hidden.device, hidden.dtype)
        if values.dim() == 2:
            values = self._per_example(values, hidden)
        blocks = hidden.unflatten(-1, (self.site.count, self.site.width))
        return ((blocks * values.unsqueeze(-1)).flatten(-2), *rest)

    def _per_example(self, values: Tensor, hidden: Tensor) -> Tensor:
        if hidden.shape[0] != values.shape[0]:
            if hidden.dim() == 2 and self.examples is not None and self.examples.count == values.shape[0]:
                # OPT's feed-forward sees the tokens of all examples in one row, an example after the other.
                return values.repeat_interleave(hidden.shape[0] // values.shape[0], 0)
            raise ValueError(
                f"`values` has {values.shape[0]} rows, one per example, but {self.site.name} sees a batch of "
                f"{hidden.shape[0]}. Pass one row per example, or a vector for the whole batch."
            )
        return values.reshape(values.shape[0], *[1] * (hidden.dim() - 2), self.site.count)


class _Redraw:
    """Forward pre-hook of the whole model: one draw per forward."""

    def __init__(self, gates: Gates):
        self.gates = gates

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.gates.redraw()


@contextmanager
def gated(model: nn.Module, values: Tensor, unit: str = "group", parts: str = "heads") -> Iterator[nn.Module]:
    """Multiplies every block by its value while the context is open.

    Args:
        model: a supported model; nothing in it is changed.
        values: (N,) for the whole batch, or (B, N) with one row per example; differentiable.
        unit: what counts as a head where query heads share keys and values, as in `discover`.
        parts: what has gates, as in `discover`: "heads", "ffn" (neurons of feed-forward layers) or "all".
    """
    model = unwrap(model)
    located = locate(model, unit, parts)
    _check_values(values, located)
    examples = _Examples()
    _hook(model, located, lambda: values, examples)
    if values.dim() == 2:
        model.register_forward_pre_hook(examples, with_kwargs=True)
    try:
        yield model
    finally:
        _unhook(model)


class Gates(nn.Module):
    """Learnable gates of a whole model: one weight per block, drawn once per forward, hard in eval mode.

    In training mode the values come from `draw`, called once at the start of every forward of the model. In eval mode
    they are the ones and zeros of the blocks that `select` keeps, also inside `generate()`: what is evaluated is
    what is shipped.

    The weights stay float64 whatever the model is cast to: rounding them would make blocks tie.
    """

    w: nn.Parameter

    def __init__(
        self,
        sites: Sequence[Site],
        budget: int | Budget,
        draw: Callable[[Tensor], Tensor],
        w: Tensor | None = None,
        constraints: Constraints | None = None,
        costs: Costs | None = None,
    ):
        super().__init__()
        self.sites = sites if isinstance(sites, Sites) else tuple(sites)
        self.budget, self.draw, self.constraints, self.costs = budget, draw, constraints, costs
        start = torch.zeros(total(self.sites)) if w is None else w
        self.w = nn.Parameter(start.detach().to(torch.float64).clone())
        self._drawn: Tensor | None = None
        self._hard: tuple[tuple[int, int], Tensor] | None = None
        self._draws = 0  # since the last backward that recomputed a forward
        self._recomputed = False
        self._grad = True  # whether the draw was made with gradients on

    def kept(self) -> Kept:
        """The blocks of highest weight that fit into the budget."""
        return select(self.w, self.budget, self.sites, self.constraints, costs=self.costs)

    def values(self) -> Tensor:
        """The (N,) values in force: the last draw in training mode, the hard subset in eval mode."""
        if not self.training:
            return self._hard_values()
        if self._drawn is None:
            raise RuntimeError(
                "Gates are drawn at the start of a forward of the whole model; call the model, not a part of it, "
                "or switch to eval mode."
            )
        self._check_recomputation()
        return self._drawn

    @_untraced
    def redraw(self) -> None:
        """Draws new values; called before every forward of the model."""
        if not self.training:
            return
        self._drawn = self.draw(self.w)
        self._draws = 1 if self._recomputed else self._draws + 1
        self._recomputed = False
        self._grad = torch.is_grad_enabled()

    def _hard_values(self) -> Tensor:
        state = (id(self.w), self.w._version)
        if self._hard is None or self._hard[0] != state:
            self._hard = (state, self.kept().mask(self.sites, device=self.w.device))
        return self._hard[1]

    def _check_recomputation(self) -> None:
        """Refuses what gradient checkpointing would get wrong: recomputing a forward with the draw of a later one."""
        if torch._C._current_graph_task_id() == -1:
            if self._grad and not torch.is_grad_enabled():
                raise RuntimeError(
                    "A part of the model runs without gradients (reentrant gradient checkpointing?), so its gates "
                    'would learn nothing; pass gradient_checkpointing_kwargs={"use_reentrant": False}.'
                )
            return
        if self._draws > 1:
            raise RuntimeError(
                "Gradient checkpointing recomputes a forward whose gates have been drawn again since; run one backward "
                "for every forward, or switch gradient checkpointing off."
            )
        self._recomputed = True

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Gates:
        """Follows the model to its device, never to its dtype."""
        device = fn(torch.empty(0, dtype=torch.float32, device=self.w.device)).device
        device = torch.device("cpu") if device.type in ("mps", "meta") else device
        if device != self.w.device:
            self.w.data = self.w.data.to(device)
        self._drawn = self._hard = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the last draw behind: it belongs to one forward, and a graph cannot be copied."""
        return {**self.__dict__, "_drawn": None, "_hard": None}


def attach(model: nn.Module, gates: Gates, unit: str = "group") -> Gates:
    """Makes `gates` a submodule of the model, seen by optimizers, DDP and state dicts, and puts them in force.

    Their sites tell which parts of the model they gate.
    """
    model = unwrap(model)
    located = locate(model, unit, parts_of(gates.sites))
    if tuple(found.site for found in located) != gates.sites:
        raise ValueError("The gates were made for other sites than this model's; make them from `discover(model)`.")
    _hook(model, located, gates.values)
    model.register_forward_pre_hook(_Redraw(gates))
    gates.to(located[0].output.weight.device)
    gates.train(model.training)
    model.add_module(NAME, gates)
    return gates


def detach(model: nn.Module) -> Gates:
    """Takes the gates off the model again and returns them."""
    model = unwrap(model)
    gates: Gates | None = getattr(model, NAME, None)
    if gates is None:
        raise ValueError("The model has no gates attached.")
    _unhook(model)
    delattr(model, NAME)
    return gates


def _hook(
    model: nn.Module,
    located: Sequence[LocatedSite],
    values: Callable[[], Tensor],
    examples: _Examples | None = None,
) -> None:
    if is_gated(model):
        raise RuntimeError("The model is gated already; leave the inner `gated(...)` or `detach` its gates first.")
    start = 0
    for found in located:
        if found.site.count:
            found.output.register_forward_pre_hook(_GateHook(found.site, start, values, examples))
        start += found.site.count


def _unhook(model: nn.Module) -> None:
    for part in model.modules():
        for key, hook in list(part._forward_pre_hooks.items()):
            if isinstance(hook, (_GateHook, _Redraw, _Examples)):
                del part._forward_pre_hooks[key]
                part._forward_pre_hooks_with_kwargs.pop(key, None)


def _check_values(values: Tensor, located: Sequence[LocatedSite]) -> None:
    sites = [found.site for found in located]
    most, what = total(sites), noun(sites).removesuffix("s")
    if not isinstance(values, Tensor) or not values.is_floating_point():
        given = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"`values` must be a floating-point tensor of shape ({most},) or (batch, {most}); got {given}.")
    if values.dim() not in (1, 2) or values.shape[-1] != most:
        raise ValueError(
            f"`values` must have shape ({most},) or (batch, {most}), one value per {what}; got {tuple(values.shape)}."
        )
    device = located[0].output.weight.device
    if values.device != device:
        raise ValueError(f"`values` must be on the model's device {device}; got {values.device}.")
