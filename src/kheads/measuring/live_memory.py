"""How many bytes of tensors are alive at the worst moment of a computation, on any device."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Self

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory:
    """Counts the storages that operations make while it is entered, and notices when they are freed.

    What a kernel uses only inside itself is not seen.

    Attributes:
        peak: the largest number of bytes alive at once, with those that were there before.
    """

    def __init__(self, before: Iterable[Tensor]) -> None:
        """Starts with the tensors that are there already."""
        self._mode = _watching(self._note)
        self._seen: dict[int, Any] = {}
        self._live = self.peak = 0
        for tensor in before:
            self._note(tensor)

    def __enter__(self) -> Self:
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address, count = storage._cdata, storage.nbytes()
        if address in self._seen:
            return

        def freed(_: Any) -> None:
            if self._seen.pop(address, None) is not None:
                self._live -= count

        self._seen[address] = weakref.ref(storage, freed)
        self._live += count
        self.peak = max(self.peak, self._live)


def _watching(note: Callable[[Tensor], None]) -> Any:
    """A mode of torch that hands on every tensor that an operation makes.

    torch leaves its modes untyped; a class made by `type` needs no exception from strict types.
    """

    def dispatch(mode: object, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                note(leaf)
        return result

    watching: Any = type("Watching", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})
    return watching()


def tensor_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the tensors; one that is named twice counts once."""
    unique = {(t.data_ptr(), t.shape): t for t in tensors if isinstance(t, Tensor)}
    return sum(tensor.numel() * tensor.element_size() for tensor in unique.values())
