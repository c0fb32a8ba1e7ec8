"""The density of a forecast: a mixture of Student-t densities with one scale.

    p(x) = sum_j pi_j t_{nu_j}(x; scale)

Its second moment is scale times sum_j pi_j nu_j/(nu_j - 2). With no tails it is the Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._types import Numbers
from kgmrf.constants import TAILS as TAILS

GAUSSIAN = 1e8
"""Degrees of freedom that stand for a Gaussian."""


def as_vectors(x: Any, d: int) -> Numbers:
    """Vectors ``(..., d)``, checked."""
    vectors = np.asarray(x, dtype=float)
    if vectors.ndim < 1 or vectors.shape[-1] != d:
        raise ObservationError(f"x must have shape (..., {d}), got {vectors.shape}")
    return vectors


class Mixture:
    """What densities share: weights ``tails`` ``(..., J)`` of degrees of freedom ``dofs`` ``(J,)``.

    A subclass has a scale, of which it tells d and how far vectors are away.
    """

    tails: Numbers
    dofs: Numbers

    @property
    def d(self) -> int:
        """Number of channels."""
        raise NotImplementedError

    def _compare(self, x: Any) -> tuple[Numbers, Numbers, Numbers]:
        """x^T scale^-1 x, log |scale| and how many values, over the channels that are not NaN."""
        raise NotImplementedError

    def mahalanobis(self, x: Numbers) -> Numbers:
        """x^T scale^-1 x over the channels that are not NaN, ``(...)``."""
        return self._compare(x)[0]

    def log_density(self, x: Numbers) -> Numbers:
        """log p(x) of vectors ``(..., d)``; NaN cells are integrated out, all NaN gives NaN."""
        from scipy import special  # slow to import, and only densities need it

        distance, log_det, n = self._compare(x)
        n, q = n[..., None], distance[..., None]
        rise = special.gammaln(0.5 * (self.dofs + n)) - special.gammaln(0.5 * self.dofs)
        each = rise - 0.5 * n * np.log(np.pi * self.dofs) - 0.5 * log_det[..., None]
        each = each - 0.5 * (self.dofs + n) * np.log1p(q / self.dofs)
        mixed = special.logsumexp(each, axis=-1, b=np.broadcast_to(self.tails, each.shape))
        return np.where(n[..., 0] > 0, mixed, np.nan)[()]

    def cdf(self, distance: Numbers, values: Numbers | float | None = None) -> Numbers:
        """P(x^T scale^-1 x <= distance) for N values, default all d of them."""
        from scipy import special

        n = np.asarray(self.d if values is None else values, dtype=float)[..., None]
        ratio = np.asarray(distance, dtype=float)[..., None] / n
        return (self.tails * special.fdtr(n, self.dofs, ratio)).sum(axis=-1)

    def region(self, level: float) -> Numbers:
        """The squared distance within which an observation falls with this probability, ``(...)``.

        The region {x: mahalanobis(x) <= region(level)} is an ellipsoid.
        """
        from scipy import special

        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        d = self.d
        bounds = d * special.fdtri(d, self.dofs, level)
        shape = self.tails.shape[:-1]
        low, high = np.full(shape, bounds.min()), np.full(shape, bounds.max())
        for _ in range(60):
            middle = 0.5 * (low + high)
            inside = self.cdf(middle) < level
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return (0.5 * (low + high))[()]


@dataclass(frozen=True)
class Density(Mixture):
    """Zero-mean density of a vector; scale ``(..., d, d)``, tails ``(..., J)``, dofs ``(J,)``.

    >>> import numpy as np
    >>> normal = Density(np.eye(2), np.ones(1), np.array([GAUSSIAN]))
    >>> normal.log_density([0.0, 0.0]).round(3), normal.region(0.95).round(2)
    (np.float64(-1.838), np.float64(5.99))
    """

    scale: Numbers
    tails: Numbers
    dofs: Numbers

    @property
    def d(self) -> int:
        """Number of channels."""
        return int(self.scale.shape[-1])

    def _compare(self, x: Any) -> tuple[Numbers, Numbers, Numbers]:
        vectors, d = as_vectors(x, self.d), self.d
        here = ~np.isnan(vectors)
        scale = np.where(np.isnan(self.scale), np.eye(d), self.scale)
        here = here & ~np.isnan(np.diagonal(self.scale, axis1=-2, axis2=-1))
        # Missing channels become independent of variance 1 and 0: they add nothing to either sum.
        both = here[..., :, None] & here[..., None, :]
        block = np.where(both, scale, np.eye(d))
        safe = np.where(here, vectors, 0.0)
        factor = np.linalg.cholesky(block)
        white = np.linalg.solve(factor, safe[..., None])[..., 0]
        log_det = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        return (white**2).sum(axis=-1), log_det, here.sum(axis=-1).astype(float)
