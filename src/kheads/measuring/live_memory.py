"""How many bytes of tensors are alive at the worst moment of a computation, on any device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):
    """Counts the storages that operations make while it is entered, and notices when they are freed.

    What a kernel uses only inside itself is not seen.

    Attributes:
        peak: the largest number of bytes alive at once, with those that were there before.
    """

    def __init__(self, before: Iterable[Tensor]) -> None:
        """Starts with the tensors that are there already."""
        super().__init__()
        self._seen: dict[int, Any] = {}
        self._live = self.peak = 0
        for tensor in before:
            self._note(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._note(leaf)
        return result

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


def tensor_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the tensors; one that is named twice counts once."""
    unique = {(t.data_ptr(), t.shape): t for t in tensors if isinstance(t, Tensor)}
    return sum(tensor.numel() * tensor.element_size() for tensor in unique.values())
