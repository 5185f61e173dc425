"""Least squares from sums: what to add to a projection so that it gives what is missing.

min ||X D + b - R||^2 + r ||D||^2, where X is the projection's input, R what is missing in its output, D and b what is
added to its weights and to its bias. The bias is free. Sums of products are kept, in float64. Those of a wide site take
hundreds of megabytes, so no more than two matrices of (inputs, inputs) are alive at once: X'X and its factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Of the mean diagonal of X'X. Held-out rows choose, and may choose none.
RIDGES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ABOUT = 1.02  # errors (squares) up to this multiple of the best are about as good
TOGETHER = 256  # outputs that are solved for at once

Added = tuple[slice, Tensor]  # some outputs, and (D, b) of these, one below the other


@dataclass(frozen=True)
class Sums:
    """Sums over rows.

    Attributes:
        xx: X'X, (p, p), the last column of ones if there is a bias.
        xr: X'R, (p, d).
        rr: sum of the squares of R.
        yy: sum of the squares of what the projection should give.
        biased: whether the last column of X is that of the bias.
    """

    xx: Tensor
    xr: Tensor
    rr: float
    yy: float
    biased: bool

    @classmethod
    def none(cls, inputs: int, outputs: int, biased: bool, device: torch.device) -> Sums:
        """The sums over no rows."""
        size = inputs + biased
        zeros = [torch.zeros(size, width, dtype=torch.float64, device=device) for width in (size, outputs)]
        return cls(zeros[0], zeros[1], 0.0, 0.0, biased)

    def add(self, x: Tensor, missing: Tensor, wanted: Tensor) -> Sums:
        """The sums with these rows (n, ...) in them; the tensors are changed in place."""
        x = _with_ones(x, self.biased)
        self.xx.addmm_(x.T, x)
        self.xr.addmm_(x.T, missing)
        return Sums(self.xx, self.xr, self.rr + _squares(missing), self.yy + _squares(wanted), self.biased)

    def into(self, sums: Sums) -> Sums:
        """The sums over these rows and those of others, whose tensors are changed in place."""
        return Sums(sums.xx.add_(self.xx), sums.xr.add_(self.xr), sums.rr + self.rr, sums.yy + self.yy, sums.biased)

    def factor(self, ridge: float) -> Tensor | None:
        """The lower factor of X'X with a ridge; None where the rows do not determine the best (D, b)."""
        inputs = len(self.xx) - self.biased
        factor = self.xx.clone()
        if inputs:
            factor.diagonal()[:inputs].add_(ridge * float(self.xx.diagonal()[:inputs].mean()))
        return cholesky_in_place(factor)

    def solved(self, lower: Tensor) -> Iterator[Added]:
        """The best (D, b) by a factor, some outputs after the others."""
        for start in range(0, self.xr.shape[1], TOGETHER):
            outputs = slice(start, start + TOGETHER)
            half = torch.linalg.solve_triangular(lower, self.xr[:, outputs], upper=False)
            yield outputs, torch.linalg.solve_triangular(lower.mT, half, upper=True)

    def error(self, added: Iterable[Added]) -> float:
        """||X D + b - R||^2."""
        changes = (
            float((self.xx @ part).sub_(self.xr[:, outputs], alpha=2).mul_(part).sum()) for outputs, part in added
        )
        return max(0.0, self.rr + sum(changes))

    def relative(self, error: float) -> float:
        """The root of an error, as a share of what the projection should give."""
        return _relative(error, self.yy)


@dataclass(frozen=True)
class Rows:
    """Rows as they are: where they are fewer than inputs, they take less memory than their sums, and less work.

    Attributes:
        x: X, (most rows, p), the last column of ones if there is a bias; only the first rows are there.
        missing: R, (most rows, d).
        count: how many rows are there.
        rr: sum of the squares of R.
        yy: sum of the squares of what the projection should give.
        biased: whether the last column of X is that of the bias.
    """

    x: Tensor
    missing: Tensor
    count: int
    rr: float
    yy: float
    biased: bool

    @classmethod
    def none(cls, most: int, inputs: int, outputs: int, biased: bool, device: torch.device) -> Rows:
        """Room for so many rows."""
        widths = (inputs + biased, outputs)
        room = [torch.empty(most, width, dtype=torch.float64, device=device) for width in widths]
        return cls(room[0], room[1], 0, 0.0, 0.0, biased)

    def add(self, x: Tensor, missing: Tensor, wanted: Tensor) -> Rows:
        """These rows (n, ...) behind the others; the tensors are changed in place."""
        count = self.count + len(x)
        self.x[self.count : count] = _with_ones(x, self.biased)
        self.missing[self.count : count] = missing
        return Rows(self.x, self.missing, count, self.rr + _squares(missing), self.yy + _squares(wanted), self.biased)

    def into(self, sums: Sums) -> Sums:
        """The sums over these rows and those of others, whose tensors are changed in place."""
        x, missing = self.x[: self.count], self.missing[: self.count]
        xx, xr = sums.xx.addmm_(x.T, x), sums.xr.addmm_(x.T, missing)
        return Sums(xx, xr, sums.rr + self.rr, sums.yy + self.yy, sums.biased)

    def error(self, added: Iterable[Added]) -> float:
        """||X D + b - R||^2."""
        x, missing = self.x[: self.count], self.missing[: self.count]
        return sum((_squares(missing[:, outputs] - x @ part) for outputs, part in added), 0.0)

    def relative(self, error: float) -> float:
        """The root of an error, as a share of what the projection should give."""
        return _relative(error, self.yy)


def _relative(error: float, yy: float) -> float:
    """The root of an error, as a share of what should be given, of which `yy` is the sum of the squares."""
    return (error / yy) ** 0.5 if yy > 0 else 0.0


def choose(fitted: Sums, held_out: Sums | Rows) -> tuple[float | None, float]:
    """The ridge to take by the held-out rows, or None if leaving the site alone is best; and its error there.

    Of ridges that are about as good as the best, the strongest: other data than these are nearer to the old weights.
    """
    tried = [(ridge, _tried(fitted, held_out, ridge)) for ridge in RIDGES]
    best = min(error for _, error in tried)
    good = [(ridge, error) for ridge, error in tried if error <= ABOUT * best and error < held_out.rr]
    return max(good, default=(None, held_out.rr))


def _tried(fitted: Sums, held_out: Sums | Rows, ridge: float) -> float:
    """The error that a ridge leaves; the factor is gone before the next one is made."""
    lower = fitted.factor(ridge)
    return math.inf if lower is None else held_out.error(fitted.solved(lower))


def _with_ones(x: Tensor, biased: bool) -> Tensor:
    return torch.cat([x, x.new_ones(len(x), 1)], 1) if biased else x


def _squares(values: Tensor) -> float:
    return float(values.square().sum())


def cholesky_in_place(matrix: Tensor) -> Tensor | None:
    """The lower factor of a symmetric matrix, in its memory: of a wide site it takes hundreds of megabytes.

    None, and the matrix is lost, where it is not positive definite.
    """
    lower, failed = matrix.mT, torch.empty(0, dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(lower, out=(lower, failed))
    return None if failed else lower
