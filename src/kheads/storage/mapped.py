"""A copy of a model whose weights lie on disk and come into memory only where they are used."""

from __future__ import annotations

import copy
import mmap
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from kheads.storage.disk import check_room, told

ALIGNED = 64  # bytes; where a tensor may begin


class MappedCopy:
    """A copy of a model in eval mode; its file has no name, so that nothing stays behind.

    Attributes:
        model: the copy. It is not to be trained: its weights are those of the file.
    """

    def __init__(self, model: nn.Module, folder: Path):
        """Writes the weights of a model on the CPU.

        Args:
            model: the model, which stays as it is.
            folder: on which disk; it must be there.
        """
        tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.numel()}
        check_room(folder, sum(_room(tensor) for tensor in tensors.values()))
        with told(folder), tempfile.TemporaryFile(dir=folder) as file:
            starts = _written(file, tensors.values())
            self._map = mmap.mmap(file.fileno(), file.tell(), access=mmap.ACCESS_COPY)
        memo: dict[int, Any] = {
            key: _like(tensor, self._map, start) for (key, tensor), start in zip(tensors.items(), starts, strict=True)
        }
        self.model = copy.deepcopy(model, memo).eval()

    def forget(self) -> None:
        """Gives back the memory of weights that were used; they are read again when they are needed."""
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows, which does so by itself
            self._map.madvise(mmap.MADV_DONTNEED)


def _room(tensor: Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // ALIGNED) * ALIGNED


def _written(file: IO[bytes], tensors: Iterable[Tensor]) -> list[int]:
    """Writes tensors one behind the other and returns where each begins."""
    starts = []
    for tensor in tensors:
        starts.append(file.tell())
        plain = tensor.detach().contiguous().flatten().view(torch.uint8)
        file.write(plain.numpy().data)
        file.write(bytes(_room(tensor) - len(plain)))
    file.flush()
    return starts


def _like(tensor: Tensor, source: mmap.mmap, start: int) -> Tensor:
    """The same tensor from the file, a parameter if it was one."""
    data = torch.frombuffer(source, dtype=tensor.dtype, count=tensor.numel(), offset=start).view(tensor.shape)
    return nn.Parameter(data, requires_grad=False) if isinstance(tensor, nn.Parameter) else data
