"""Notes what passes the places of a residual stream: inputs and outputs of modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Place = tuple[str, str]  # a layer, and a place in it as `Stream` names it
Note = Callable[[Tensor], None]


def watch(model: nn.Module, place: Place, note: Note) -> RemovableHandle:
    """Calls `note` with the tensor at that place, in every forward, until the handle is removed."""
    layer, where = place
    what, _, path = where.partition(":")
    module = model.get_submodule(".".join(part for part in (layer, path) if part))
    if what == "out":
        return module.register_forward_hook(lambda _, args, output: _tell(note, _first(output)))
    number = int(what.removeprefix("in") or 0)

    def noted(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        _tell(note, argument(module, number, args, kwargs))

    return module.register_forward_pre_hook(noted, with_kwargs=True)


def argument(module: nn.Module, which: int | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An argument of a call by its place or name, however it was passed; None if it was not."""
    names = list(inspect.signature(module.forward).parameters)
    if isinstance(which, str) and which not in names:
        return kwargs.get(which)
    number = names.index(which) if isinstance(which, str) else which
    if number < len(args):
        return args[number]
    return kwargs.get(names[number]) if number < len(names) else None


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, (tuple, list)) else output


def _tell(note: Note, value: Any) -> None:
    if isinstance(value, Tensor):
        note(value.clone())  # Falcon adds to it in place afterwards
