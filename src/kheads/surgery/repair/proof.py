"""Proves on a batch where each site's output goes: the table says it, and the sums must be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from kheads.anatomy import Flow, LocatedSite, Stream, flow
from kheads.surgery.repair.places import Place, watch

Moments = list[tuple[int, Tensor]]  # a tensor and when it passed


@dataclass(frozen=True)
class Proof:
    """What one forward says of a site.

    Attributes:
        runs: how often its output projection ran.
        layer: the layer whose stream it belongs to.
        stream: the entry of the table that adds up, or None.
        why: why there is none.
    """

    runs: int
    layer: str
    stream: Stream | None
    why: str


@torch.no_grad()
def prove(model: nn.Module, located: Sequence[LocatedSite], inputs: Mapping[str, Any]) -> dict[str, Proof]:
    """Runs the model once; returns the proof of each site, by its output projection, in the order in which they ran.

    Sites that did not run come last.
    """
    flows = {found.site.output: flow(model, found) for found in located}
    wanted: dict[Place, Moments] = {
        (there.layer, place): []
        for there in flows.values()
        for stream in there.streams
        for place in (stream.before, stream.after, *stream.beside)
    }
    outputs: dict[str, Moments] = {name: [] for name in flows}
    clock = _Clock()
    handles = [watch(model, place, clock.into(moments)) for place, moments in wanted.items() if _exists(model, place)]
    handles += [watch(model, (name, "out:"), clock.into(moments)) for name, moments in outputs.items()]
    try:
        model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    order = sorted(outputs, key=lambda name: outputs[name][0][0] if outputs[name] else clock.time)
    return {name: _proof(model, flows[name], outputs[name], wanted) for name in order}


def scale_of(model: nn.Module, layer: str, stream: Stream) -> float | Tensor:
    """What the site's output is multiplied with on its way into the stream."""
    if not isinstance(stream.scale, str):
        return stream.scale
    try:
        scale: float | Tensor | None = attrgetter(stream.scale)(model.get_submodule(layer))
    except AttributeError:
        return 1.0
    return 1.0 if scale is None else scale


class _Clock:
    """Counts what passes."""

    def __init__(self) -> None:
        self.time = 0

    def into(self, moments: Moments) -> Any:
        def note(value: Tensor) -> None:
            self.time += 1
            moments.append((self.time, value))

        return note


def _exists(model: nn.Module, place: Place) -> bool:
    layer, where = place
    path = where.partition(":")[2]
    try:
        model.get_submodule(layer).get_submodule(path)
    except AttributeError:
        return False
    return True


def _proof(model: nn.Module, there: Flow, outputs: Moments, noted: Mapping[Place, Moments]) -> Proof:
    if not outputs:
        return Proof(0, there.layer, None, "it did not run")
    for stream in there.streams:
        moments = {where: noted[there.layer, where] for where in (stream.before, stream.after, *stream.beside)}
        if _adds_up(outputs[-1], stream, moments, scale_of(model, there.layer, stream)):
            return Proof(len(outputs), there.layer, stream, "")
    return Proof(len(outputs), there.layer, None, there.why or "what it adds to did not add up on the first batch")


def _adds_up(output: tuple[int, Tensor], stream: Stream, moments: Mapping[str, Moments], scale: float | Tensor) -> bool:
    """Whether before + scale * y + beside is what comes after."""
    time, y = output
    after = next(((when, value) for when, value in moments[stream.after] if when > time), None)
    before = _last(moments[stream.before], time)
    if after is None or before is None:
        return False
    beside = [_last(moments[place], after[0]) for place in stream.beside]
    parts = [part for part in (before, y * scale, *beside) if part is not None and part.shape[-1] == y.shape[-1]]
    if len(parts) < 2 + len(beside) or any(part.numel() != after[1].numel() for part in parts):
        return False
    right = after[1].cpu().double().flatten()
    total = torch.stack([part.cpu().double().flatten() for part in parts]).sum(0)
    return bool((total - right).norm() <= 16 * torch.finfo(y.dtype).eps * right.norm())


def _last(moments: Moments, before: int) -> Tensor | None:
    return next((value for when, value in reversed(moments) if when < before), None)
