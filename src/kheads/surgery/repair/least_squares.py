"""Least squares from sums: what to add to a projection so that it gives what is missing.

min ||X D + b - R||^2 + r ||D||^2, where X is the projection's input, R what is missing in its output, D and b what is
added to its weights and to its bias. The bias is free. Only sums of products are kept, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Of the mean diagonal of X'X. Held-out rows choose, and may choose none.
RIDGES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ABOUT = 1.02  # errors (squares) up to this multiple of the best are about as good


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
        x = torch.cat([x, x.new_ones(len(x), 1)], 1) if self.biased else x
        self.xx.addmm_(x.T, x)
        self.xr.addmm_(x.T, missing)
        rr, yy = float(missing.square().sum()), float(wanted.square().sum())
        return Sums(self.xx, self.xr, self.rr + rr, self.yy + yy, self.biased)

    def absorb(self, other: Sums) -> Sums:
        """The sums over the rows of both; the tensors are changed in place."""
        return Sums(self.xx.add_(other.xx), self.xr.add_(other.xr), self.rr + other.rr, self.yy + other.yy, self.biased)

    def solve(self, ridge: float) -> Tensor | None:
        """The best (D, b), one below the other, (p, d); None where the rows do not determine it."""
        inputs = len(self.xx) - self.biased
        factor = self.xx.clone()
        if inputs:
            factor.diagonal()[:inputs].add_(ridge * float(self.xx.diagonal()[:inputs].mean()))
        lower = cholesky_in_place(factor)
        if lower is None:
            return None
        half = torch.linalg.solve_triangular(lower, self.xr, upper=False)
        whole: Tensor = torch.linalg.solve_triangular(lower.mT, half, upper=True)
        return whole

    def error(self, added: Tensor) -> float:
        """||X D + b - R||^2."""
        products = (self.xx @ added).sub_(self.xr, alpha=2).mul_(added)
        return max(0.0, self.rr + float(products.sum()))

    def relative(self, error: float) -> float:
        """The root of an error, as a share of what the projection should give."""
        return (error / self.yy) ** 0.5 if self.yy > 0 else 0.0


def choose(fitted: Sums, held_out: Sums) -> tuple[float | None, float]:
    """The ridge to take by the held-out rows, or None if leaving the site alone is best; and its error there.

    Of ridges that are about as good as the best, the strongest: other data than these are nearer to the old weights.
    """
    errors = []
    for ridge in RIDGES:
        added = fitted.solve(ridge)
        if added is not None:
            errors.append((ridge, held_out.error(added)))
    best = min((error for _, error in errors), default=held_out.rr)
    good = [(ridge, error) for ridge, error in errors if error <= ABOUT * best and error < held_out.rr]
    return max(good, default=(None, held_out.rr))


def cholesky_in_place(matrix: Tensor) -> Tensor | None:
    """The lower factor of a symmetric matrix, in its memory: of a wide site it takes hundreds of megabytes.

    None, and the matrix is lost, where it is not positive definite.
    """
    lower, failed = matrix.mT, torch.empty(0, dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(lower, out=(lower, failed))
    return None if failed else lower
