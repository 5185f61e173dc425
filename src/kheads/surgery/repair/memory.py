"""Memory that a repair can do without while it works."""

from __future__ import annotations

import contextlib
import ctypes
import tempfile

import torch
from torch import Tensor

IN_MEMORY = 64 << 20  # bytes of old weights that are not worth a file


class Aside:
    """Weights as they were, in case a repair fails; once they are many, in a file without a name."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        self._kept: list[tuple[Tensor, int]] = []

    def keep(self, *weights: Tensor) -> None:
        """Notes how weights are now."""
        for weight in weights:
            start = self._file.tell()
            self._file.write(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
            self._kept.append((weight, start))

    def restore(self) -> None:
        """Makes them so again."""
        for weight, start in self._kept:
            self._file.seek(start)
            data = bytearray(self._file.read(weight.numel() * weight.element_size()))
            if data:
                weight.copy_(torch.frombuffer(data, dtype=weight.dtype).view(weight.shape))

    def close(self) -> None:
        """Forgets them."""
        self._kept.clear()
        self._file.close()


def give_back() -> None:
    """Hands freed memory back to the system, where the C library is glibc, which keeps what many threads have freed."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        ctypes.CDLL(None).malloc_trim(0)
