"""What scoring has seen of a site, its inputs and gradients: sums, or rows on disk where sums take too much memory."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kheads.blocks.site import Site

WIDE = 1024  # inputs above which a site is wide
MANY = 12  # tokens for each input of a wide site
FEW = 4  # rows on disk for each column
TOGETHER = 1024  # rows that are read from disk at once
IN_MEMORY = 4 << 30  # bytes that the sums of all sites may take together


class Seen(Protocol):
    """What was seen of a site.

    Attributes:
        rows: tokens.
    """

    rows: int

    def add(self, x: Tensor, gradient: Tensor) -> None:
        """Takes in what some tokens sent into the site, (n, p), and the gradient of what came out, (n, d)."""

    def minded(self) -> Tensor:
        """The mean of g g' over tokens, as a share of all tokens, (d, d)."""

    def spread(self) -> Tensor:
        """The sum of the products of inputs about their mean, (p, p); can be asked for once."""


class Sums:
    """Sums of products.

    Inputs are looked at until there are many for each of them: the products of wide sites are most of the work.
    """

    def __init__(self) -> None:
        self.rows = self.looked = 0
        self.gg: Any = 0
        self.x: Any = 0
        self.xx: Any = 0

    def add(self, x: Tensor, gradient: Tensor) -> None:
        """Takes in some tokens."""
        x, gradient = x.double(), gradient.double()
        self.rows += len(x)
        self.gg = self.gg + gradient.T @ gradient
        wide = x.shape[1] > WIDE
        if wide and self.looked > MANY * x.shape[1]:
            return
        # A batch is small, so float32 does for its products, if not for their sum.
        products = (x.float().T @ x.float()).double() if wide else x.T @ x
        self.looked, self.x, self.xx = self.looked + len(x), self.x + x.sum(0), self.xx + products

    def minded(self) -> Tensor:
        """The mean of g g' over tokens, as a share of all tokens."""
        found: Tensor = self.gg / max(self.rows, 1) ** 2
        return found

    def spread(self) -> Tensor:
        """The products about the mean, for as many tokens as there were."""
        looked, xx = max(self.looked, 1), self.xx
        self.xx = 0
        centred: Tensor = xx.addr_(self.x, self.x, alpha=-1 / looked).mul_(self.rows / looked)
        return centred


class RowsOnDisk:
    """The rows themselves, in files without a name; sums are made when they are asked for, one site at a time."""

    def __init__(self) -> None:
        self.rows = 0
        self._x, self._gradients = _Rows(), _Rows()

    def add(self, x: Tensor, gradient: Tensor) -> None:
        """Takes in some tokens."""
        self.rows += len(x)
        self._x.add(x)
        self._gradients.add(gradient)

    def minded(self) -> Tensor:
        """The mean of g g' over tokens, as a share of all tokens."""
        products, _ = self._gradients.sums()
        return products.div_(max(self._gradients.count, 1) * max(self.rows, 1))

    def spread(self) -> Tensor:
        """The products about the mean, for as many tokens as there were."""
        products, sums = self._x.sums()
        count = max(self._x.count, 1)
        return products.addr_(sums, sums, alpha=-1 / count).mul_(self.rows / count)


class _Rows:
    """A file of rows; those beyond a few for each of their columns are left out."""

    def __init__(self) -> None:
        self.count = self.width = 0
        self.dtype = torch.float32
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def add(self, rows: Tensor) -> None:
        self.width, self.dtype = rows.shape[1], rows.dtype
        if self.count < FEW * self.width:
            self.count += len(rows)
            self._file.write(rows.contiguous().view(torch.uint8).numpy().data)

    def sums(self) -> tuple[Tensor, Tensor]:
        """The sum of products, which float32 does for as a ridge is far above its rounding, and the sum."""
        wide = torch.zeros(self.width, self.width, dtype=torch.float64)
        total = torch.zeros(self.width, dtype=torch.float64)
        # In the second half of the memory in which they become float64: row by row from the first on, none is written
        # over before it was read.
        products = wide.view(-1).view(torch.float32)[self.width**2 :].view(self.width, self.width)
        for rows in self._read():
            products.addmm_(rows.T, rows)
            total += rows.sum(0, dtype=torch.float64)
        for wider, part in zip(torch.split(wide, TOGETHER), torch.split(products, TOGETHER), strict=True):
            wider.copy_(part.double())
        return wide, total

    def _read(self) -> Iterator[Tensor]:
        """Some rows after the others, all in the same memory: new pieces each time would leave holes in it."""
        self._file.seek(0)
        size = min(TOGETHER, self.count), self.width
        found, plain = torch.empty(size, dtype=self.dtype), torch.empty(size)
        while count := self._file.readinto(found.view(-1).view(torch.uint8).numpy().data):
            rows = count // (self.width * self.dtype.itemsize)
            yield plain[:rows].copy_(found[:rows])


def start(sites: Sequence[Site], model: nn.Module) -> list[Seen]:
    """What has been seen of each site so far, which is nothing: sums, or rows on disk if all sums were too large."""
    return [RowsOnDisk() if spills(sites, model) else Sums() for _ in sites]


def spills(sites: Sequence[Site], model: nn.Module) -> bool:
    """Whether the sums of all sites would take too much memory."""
    sizes = [((site.count * site.width) ** 2, site.weight(model).shape[0] ** 2) for site in sites]
    return sum(8 * (inputs + outputs) for inputs, outputs in sizes) > IN_MEMORY
