"""Forward passes that stop at every site and go on when they are told to.

All batches wait at a site until it is fitted, and go on with its new weights. So a repair costs one forward pass of
each model, however deep it is, and need not know how a class calls its layers. A pass is a coroutine: it has a thread
of its own, because a forward cannot be left in the middle otherwise, and runs only while somebody waits for it to stop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from kheads.anatomy import LocatedSite
from kheads.surgery.repair.places import Place, argument, watch
from kheads.surgery.repair.proof import Proof


@dataclass
class Stop:
    """A pass at a site.

    Attributes:
        site: path of its output projection.
        input: what went into it.
        output: what came out, with the weights as they are.
        stream: what the output is going to be added to, if that is known.
        masks: which tokens count, by shape, as the attentions so far were told.
        refitted: set before the pass goes on if the projection has new weights.
    """

    site: str
    input: Tensor
    output: Tensor
    stream: Tensor | None
    masks: Mapping[tuple[int, ...], Tensor]
    refitted: bool = False


class _Closed(BaseException):
    """Ends a forward that nobody needs any more."""


class Pass(threading.Thread):
    """One forward of a model on one batch."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any]):
        super().__init__(name="kheads-repair", daemon=True)
        self.model, self.inputs = model, inputs
        self.notes: dict[Place, Tensor] = {}
        self.masks: dict[tuple[int, ...], Tensor] = {}
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._reached: Stop | None = None
        self._error: BaseException | None = None
        self._closed = False

    def advance(self) -> Stop | None:
        """Runs to the next site, or to the end: None."""
        self._reached = None
        if self.ident is None:
            self.start()
        else:
            self._go.release()
        self._waits.acquire()
        if self._error is not None:
            raise self._error
        return self._reached

    def pause(self, stop: Stop) -> None:
        """Called from within the forward: waits until `advance` is called again."""
        self._reached = stop
        self._waits.release()
        self._go.acquire()
        if self._closed:
            raise _Closed

    def close(self) -> None:
        """Leaves the forward where it is."""
        if self.is_alive():
            self._closed = True
            self._go.release()
            self.join()

    def run(self) -> None:
        """Runs the whole forward, with the same random numbers in every pass."""
        try:
            torch.default_generator.manual_seed(0)
            with torch.no_grad():
                self.model(**self.inputs)
        except _Closed:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._reached = None
            self._waits.release()


@contextmanager
def stopping(model: nn.Module, proofs: Mapping[str, Proof], attentions: Iterable[LocatedSite]) -> Iterator[None]:
    """Makes the passes of a model stop at the sites of the proofs while the context is open."""
    handles = [model.get_submodule(site).register_forward_hook(_at(site, proof)) for site, proof in proofs.items()]
    streams = [(proof.layer, proof.stream) for proof in proofs.values() if proof.stream is not None]
    places = {(layer, where) for layer, stream in streams for where in (stream.before, *stream.beside)}
    handles += [watch(model, place, _into(place)) for place in places]
    handles += [_watch_mask(found.module) for found in attentions]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _at(site: str, proof: Proof) -> Any:
    def pause(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        here = threading.current_thread()
        if not isinstance(here, Pass):
            return None
        here.notes = {place: value for place, value in here.notes.items() if place[0] == proof.layer}
        stop = Stop(site, args[0], output, _stream(here.notes, proof), here.masks)
        here.pause(stop)
        if not stop.refitted:
            return None
        torch.clear_autocast_cache()  # the model may run under an autocast, which keeps a copy of the old weights
        refitted: Tensor = module.forward(*args)
        return refitted

    return pause


def _stream(notes: Mapping[Place, Tensor], proof: Proof) -> Tensor | None:
    """What is in the sum already: the stream before, and what ran beside the site before it."""
    if proof.stream is None:
        return None
    before = notes[proof.layer, proof.stream.before]
    beside = [notes[proof.layer, place] for place in proof.stream.beside if (proof.layer, place) in notes]
    return before + torch.stack(beside).sum(0) if beside else before


def _into(place: Place) -> Any:
    def note(value: Tensor) -> None:
        here = threading.current_thread()
        if isinstance(here, Pass):
            here.notes[place] = value

    return note


def _watch_mask(attention: nn.Module) -> RemovableHandle:
    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        here, mask = threading.current_thread(), argument(module, "attention_mask", args, kwargs)
        if isinstance(here, Pass) and isinstance(mask, Tensor) and mask.dim() in (2, 4):
            allowed = mask > -1e4 if mask.is_floating_point() else mask.bool()
            seen = allowed if mask.dim() == 2 else allowed.any(1).any(1)
            here.masks[tuple(seen.shape)] = seen

    return attention.register_forward_pre_hook(note, with_kwargs=True)
