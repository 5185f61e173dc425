"""The methods by name: ours, and any class that a user names as `module:Class`.

Nothing here needs torch, so that the command line can list the methods at once; a class is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kheads.methods.phases import Outline

if TYPE_CHECKING:
    from kheads.methods.base import Method

# File, class and key have the same name.
BUILT_IN = {
    "dsp": "kheads.methods.dsp:DSP",
    "ste": "kheads.methods.ste:STE",
    "voita": "kheads.methods.voita:Voita",
    "michel": "kheads.methods.michel:Michel",
    "surgeon": "kheads.methods.surgeon:Surgeon",
    "retrain": "kheads.methods.retrain:Retrain",
    "random": "kheads.methods.random:Random",
}
DEFAULT = "dsp"
DEFAULT_TRAINED = "surgeon"  # where the model can do the task already
UNPRUNED = "none"


class Methods(Mapping[str, "type[Method]"]):
    """The built-in methods by key; a class is imported when it is asked for."""

    def __getitem__(self, key: str) -> type[Method]:
        return _loaded(BUILT_IN[key])

    def __iter__(self) -> Iterator[str]:
        return iter(BUILT_IN)

    def __len__(self) -> int:
        return len(BUILT_IN)


METHODS = Methods()


def find(name: str) -> type[Method]:
    """The class of a method by its key, or by `module:Class` where it is not ours.

    A module of the working directory is found, too, as `python -m` would find it.
    """
    if name in BUILT_IN:
        return METHODS[name]
    if ":" not in name:
        raise ValueError(
            f"The method must be one of {', '.join([*BUILT_IN, UNPRUNED])}, or one of yours as module:Class; "
            f"got {name!r}."
        )
    return _loaded(name)


def key_of(method: Method | type[Method]) -> str:
    """The name by which `find` finds its class."""
    cls = method if isinstance(method, type) else type(method)
    path = f"{cls.__module__}:{cls.__qualname__}"
    return next((key for key, place in BUILT_IN.items() if place == path), path)


def default(trained: bool) -> str:
    """The method to take unless one is named."""
    return DEFAULT_TRAINED if trained else DEFAULT


def as_method(given: Any, task: str | None = None, outline: Outline | None = None) -> Method:
    """A method from what a user gave: a key, a class, or an instance, which is taken as it is."""
    from kheads.methods.base import Method

    if isinstance(given, Method):
        return given
    cls = find(given) if isinstance(given, str) else given
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise TypeError(
            f"`method` must be one of {', '.join(BUILT_IN)}, a class or an instance of a method; "
            f"got {type(given).__name__}."
        )
    return cls.configured(task=task, outline=outline or Outline())


def _loaded(path: str) -> type[Method]:
    from kheads.methods.base import Method

    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"The method must be named as module:Class; got {path!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        cls = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(f"The method {path!r} cannot be loaded: {error}.") from error
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise ValueError(
            f"The method {path!r} must name a class that inherits from kheads.Learned or kheads.Estimated; "
            f"{module} has {'no' if cls is None else 'another kind of'} {name!r}."
        )
    return cls
