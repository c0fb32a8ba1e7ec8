"""The density of a forecast: a mixture of Student-t densities, all with one shape.

    p(x) = sum_k pi_k t_{nu_k}(x; f_k scale)

Its second moment is scale times sum_k pi_k f_k nu_k/(nu_k - 2). With no tails it is the Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._types import Numbers
from kgmrf.constants import SIZE_NODES, SIZE_SHARES
from kgmrf.constants import TAILS as TAILS
from kgmrf.model.contribution import conditional_p_values
from kgmrf.model.tail import tail_probability
from kgmrf.portfolio import PortfolioDensity, as_weights

GAUSSIAN = 1e8
"""Degrees of freedom that stand for a Gaussian."""


def components(
    tails: Numbers, size_std: Any, steps: Any = 1.0, doubt: Any = 0.0, wide: Any = 1.0
) -> tuple[Numbers, Numbers, Numbers | float]:
    """Weights, degrees of freedom and sizes of the components of a self-tuned tracker's density.

    Parameters
    ----------
    tails : array
        Weights of the tails, ``(..., 4)``.
    size_std
        sigma, standard deviation of the log size ``(...)``. One step ahead it is 0 and the
        components are those of the tails; further ahead there are three sizes e^(z_i sigma) of
        each.
    steps : default 1.0
        h, of the sum of h observations: nu_j sqrt(h) degrees of freedom, for sums are nearer to a
        Gaussian, and the second moment that the tails have.
    doubt : default 0.0
        Of a young track, ``(...)``.
    wide : default 1.0
        What that multiplies the sizes by (`kgmrf.youth`).

    Examples
    --------
    >>> [np.shape(part) for part in components(np.full(4, 0.25), 0.5)]
    [(12,), (12,), (12,)]
    """
    sigma, h = np.asarray(size_std, dtype=float), float(np.max(steps))
    nu = np.array(TAILS) * np.sqrt(h)
    heavy: Any = np.array(TAILS) / (np.array(TAILS) - 2.0) * (nu - 2.0) / nu if h > 1.0 else 1.0
    unsure = np.asarray(doubt, dtype=float)[..., None]
    if (unsure > 0.0).any():
        nu = nu / (1.0 + unsure * nu)
        heavy = heavy * np.asarray(wide)[..., None] * np.ones(len(TAILS))
    if not (sigma > 0.0).any():
        return tails, nu, heavy
    shape = (*tails.shape[:-1], len(SIZE_NODES), nu.shape[-1])
    sizes = np.exp(sigma[..., None] * np.array(SIZE_NODES))[..., None]
    sizes = sizes * (heavy[..., None, :] if np.ndim(heavy) else heavy)
    weights = np.array(SIZE_SHARES)[:, None] * tails[..., None, :]
    flat = (*tails.shape[:-1], -1)
    dofs = np.tile(nu, len(SIZE_NODES))
    return weights.reshape(flat), dofs, np.broadcast_to(sizes, shape).reshape(flat)


def as_vectors(x: Any, d: int) -> Numbers:
    """Vectors ``(..., d)``, checked.

    Parameters
    ----------
    x
        Anything that is an array ``(..., d)``.
    d : int
        The dimension that it must have.
    """
    vectors = np.asarray(x, dtype=float)
    if vectors.ndim < 1 or vectors.shape[-1] != d:
        raise ObservationError(f"x must have shape (..., {d}), got {vectors.shape}")
    return vectors


class Mixture:
    """What densities share: components with weights, degrees of freedom and sizes.

    tails: weights pi_k, ``(..., K)``. dofs: nu_k, ``(K,)`` or ``(..., K)``. factors: f_k, what the
    scale is multiplied by, ``(..., K)``, default 1. channels: names, if there are any.

    A subclass has a scale. It tells d, how far vectors are away and what a portfolio's variance is,
    and draws vectors.
    """

    tails: Numbers
    dofs: Numbers
    factors: Numbers | float
    channels: tuple[str, ...] | None
    mean: Numbers | float = 0.0

    def _off_mean(self, x: Any) -> Numbers:
        """Vectors ``(..., d)`` less the mean."""
        return as_vectors(x, self.d)

    @property
    def d(self) -> int:
        """Number of channels."""
        raise NotImplementedError

    def _compare(self, x: Any) -> tuple[Numbers, Numbers, Numbers]:
        """x^T scale^-1 x, log |scale| and how many values, over the channels that are not NaN."""
        raise NotImplementedError

    def _solved(self, x: Numbers) -> tuple[Numbers, Numbers]:
        """scale^-1 x and the diagonal of scale^-1, over the channels that are not NaN; NaN where
        they are, ``(..., d)``."""
        raise NotImplementedError

    def _variance(self, weights: Numbers) -> Numbers:
        """w^T scale w of weights that broadcast; NaN where a channel that is held is unknown."""
        raise NotImplementedError

    def _gaussian(self, shape: tuple[int, ...], rng: np.random.Generator) -> Numbers:
        """Vectors ``(*shape, ..., d)`` of the Gaussian N(0, scale)."""
        raise NotImplementedError

    def mahalanobis(self, x: Numbers) -> Numbers:
        """x^T scale^-1 x over the channels that are not NaN, ``(...)``."""
        return self._compare(x)[0]

    def log_density(self, x: Numbers) -> Numbers:
        """log p(x) of vectors ``(..., d)``; NaN cells are integrated out, all NaN gives NaN."""
        from scipy import special  # slow to import, and only densities need it

        distance, log_det, n = self._compare(x)
        n, q = n[..., None], distance[..., None] / self.factors
        rise = special.gammaln(0.5 * (self.dofs + n)) - special.gammaln(0.5 * self.dofs)
        size = log_det[..., None] + n * np.log(self.factors)
        each = rise - 0.5 * n * np.log(np.pi * self.dofs) - 0.5 * size
        each = each - 0.5 * (self.dofs + n) * np.log1p(q / self.dofs)
        # Beyond, gammaln rounds and a large q^2/nu counts: the Gaussian itself.
        normal = -0.5 * (n * np.log(2.0 * np.pi) + size + q)
        each = np.where(np.asarray(self.dofs) < GAUSSIAN, each, normal)
        mixed = special.logsumexp(each, axis=-1, b=np.broadcast_to(self.tails, each.shape))
        return np.where(n[..., 0] > 0, mixed, np.nan)[()]

    def p_value(self, x: Any) -> Numbers:
        """P(an observation at least as far out as x), ``(...)``; NaN cells are integrated out.

        The probability of the region beyond the ellipsoid through x, of all components of the
        mixture: see :func:`kgmrf.model.tail.tail_probability`. Uniform if x comes from the density.

        >>> one = Density(np.eye(2), np.ones(1), np.array([GAUSSIAN]))
        >>> one.p_value([[0.0, 0.0], [2.0, 1.41]]).round(2)
        array([1.  , 0.05])
        """
        distance, _, n = self._compare(x)
        return tail_probability(distance, n, self.tails, self.dofs, self.factors)

    def channel_p_value(self, x: Any) -> Numbers:
        """Two-sided p-value of each channel of x given all others, ``(..., d)``; NaN where x is.

        Small where a channel is not what the others promise; see :mod:`kgmrf.model.contribution`.

        >>> pair = Density(np.array([[1.0, 0.9], [0.9, 1.0]]), np.ones(1), np.array([GAUSSIAN]))
        >>> pair.channel_p_value([1.0, -1.0]).round(5)
        array([1.e-05, 1.e-05])
        """
        y, precision = self._solved(self._off_mean(x))
        distance, _, n = self._compare(x)
        own = y * y / precision
        return conditional_p_values(own, distance, n, self.tails, self.dofs, self.factors)

    def contribution(self, x: Any) -> Numbers:
        """What each channel adds to the squared distance of x, ``(..., d)``; NaN where x is.

        phi_i = x_i (scale^-1 x)_i, the Shapley value: its sum is ``mahalanobis(x)``. See
        :mod:`kgmrf.model.contribution`.

        >>> one = Density(np.diag([1.0, 4.0]), np.ones(1), np.array([GAUSSIAN]))
        >>> one.contribution([1.0, 4.0]).tolist()
        [1.0, 4.0]
        """
        vectors = self._off_mean(x)
        return np.asarray(vectors * self._solved(vectors)[0])

    def cdf(self, distance: Numbers, values: Numbers | float | None = None) -> Numbers:
        """P(x^T scale^-1 x <= distance) for N values, default all d of them."""
        from scipy import special

        n = np.asarray(self.d if values is None else values, dtype=float)[..., None]
        ratio = np.asarray(distance, dtype=float)[..., None] / (n * self.factors)
        return (self.tails * special.fdtr(n, self.dofs, ratio)).sum(axis=-1)

    def region(self, level: float) -> Numbers:
        """The squared distance within which an observation falls with this probability, ``(...)``.

        The region {x: mahalanobis(x) <= region(level)} is an ellipsoid.
        """
        from scipy import special

        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        d = self.d
        bounds = self.factors * d * special.fdtri(d, self.dofs, level) + 0.0 * self.tails
        low, high = bounds.min(axis=-1), bounds.max(axis=-1)
        for _ in range(60):
            middle = 0.5 * (low + high)
            inside = self.cdf(middle) < level
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return (0.5 * (low + high))[()]

    def project(self, weights: Any) -> PortfolioDensity:
        """The density of w^T x: a portfolio, or any weighted sum of the channels.

        weights: ``(..., d)``, broadcast against the density: ``(d,)`` is one portfolio for all
        times, ``(T, d)`` one for each of T times, ``(P, d)`` a table of portfolios under one
        forecast. A dict, a series or a table with a row for each portfolio is read by the names of
        the channels; those that are not named have the weight 0.

        >>> one = Density(np.diag([1.0, 4.0]), np.ones(1), np.array([GAUSSIAN]))
        >>> one.project([[1.0, 0.0], [0.5, 0.5]]).value_at_risk(0.99).round(2)
        array([2.33, 2.6 ])
        """
        array, names = as_weights(weights, self.d, self.channels)
        variance = self._variance(array)
        return PortfolioDensity(variance, self.tails, self.dofs, self.factors, names)

    def sample(self, size: int, rng: np.random.Generator | int | None = None) -> Numbers:
        """Vectors drawn from it, ``(size, ..., d)``."""
        draw = np.random.default_rng(rng)
        shape = (int(size), *self.tails.shape[:-1])
        # Of each vector: its component, then sqrt(f nu/chi2) times a Gaussian.
        edges = np.cumsum(self.tails, axis=-1)
        which = (draw.random(shape)[..., None] > edges[..., :-1]).sum(axis=-1)[..., None]
        full = (*shape, self.tails.shape[-1])
        nu, factor = (
            np.take_along_axis(np.broadcast_to(v, full), which, axis=-1)[..., 0]
            for v in (self.dofs, self.factors)
        )
        size_of = np.sqrt(factor * nu / draw.chisquare(nu))
        return np.asarray(size_of[..., None] * self._gaussian(shape, draw)) + self.mean


@dataclass(frozen=True)
class Density(Mixture):
    """Density of a vector; scale ``(..., d, d)``, mean ``(..., d)``, the rest as for `Mixture`.

    Parameters
    ----------
    scale : array
        Scale of the density, ``(..., d, d)``; its covariance where all is Gaussian.
    tails : array
        Weights pi_k, ``(..., K)``.
    dofs : array
        nu_k, ``(K,)`` or ``(..., K)``.
    factors : array or float, default 1.0
        f_k, what the scale is multiplied by, ``(..., K)``.
    channels : tuple[str, ...], default None
        Names of the channels, if there are any.
    mean : array or float, default 0.0
        Mean of the vector, ``(..., d)``.

    Examples
    --------
    >>> import numpy as np
    >>> normal = Density(np.eye(2), np.ones(1), np.array([GAUSSIAN]))
    >>> normal.log_density([0.0, 0.0]).round(3), normal.region(0.95).round(2)
    (np.float64(-1.838), np.float64(5.99))
    """

    scale: Numbers
    tails: Numbers
    dofs: Numbers
    factors: Numbers | float = 1.0
    channels: tuple[str, ...] | None = None
    mean: Numbers | float = 0.0

    @property
    def d(self) -> int:
        """Number of channels."""
        return int(self.scale.shape[-1])

    def _off_mean(self, x: Any) -> Numbers:
        return np.asarray(as_vectors(x, self.d) - self.mean)

    def project(self, weights: Any) -> PortfolioDensity:
        """As for `Mixture`; of a density whose mean is zero."""
        if np.any(self.mean):
            raise ValueError(
                'a portfolio needs a density whose mean is zero; use a tracker with mean="zero"'
            )
        return super().project(weights)

    def _compare(self, x: Any) -> tuple[Numbers, Numbers, Numbers]:
        vectors, d = self._off_mean(x), self.d
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

    def _solved(self, x: Numbers) -> tuple[Numbers, Numbers]:
        d = self.d
        here = ~np.isnan(x) & ~np.isnan(np.diagonal(self.scale, axis1=-2, axis2=-1))
        both = here[..., :, None] & here[..., None, :]
        inverse = np.linalg.inv(np.where(both, self.scale, np.eye(d)))
        y = (inverse @ np.where(here, x, 0.0)[..., None])[..., 0]
        diagonal = np.diagonal(inverse, axis1=-2, axis2=-1)
        return np.where(here, y, np.nan), np.where(here, diagonal, np.nan)

    def pair_contribution(self, x: Any) -> Numbers:
        """x_i (scale^-1)_ij x_j, ``(..., d, d)``: of a pair off the diagonal; NaN where x is.

        Its rows sum to `contribution`. The largest pair off the diagonal is the one whose
        correlation did not hold.
        """
        vectors, d = self._off_mean(x), self.d
        here = ~np.isnan(vectors) & ~np.isnan(np.diagonal(self.scale, axis1=-2, axis2=-1))
        both = here[..., :, None] & here[..., None, :]
        inverse = np.linalg.inv(np.where(both, self.scale, np.eye(d)))
        found = vectors[..., :, None] * inverse * vectors[..., None, :]
        return np.where(both, found, np.nan)

    def _variance(self, weights: Numbers) -> Numbers:
        known = ~np.isnan(np.diagonal(self.scale, axis1=-2, axis2=-1))
        both = known[..., :, None] & known[..., None, :]
        found = np.einsum("...i,...ij,...j->...", weights, np.where(both, self.scale, 0.0), weights)
        return np.where((known | (weights == 0.0)).all(axis=-1), found, np.nan)

    def _gaussian(self, shape: tuple[int, ...], rng: np.random.Generator) -> Numbers:
        factor = np.linalg.cholesky(self.scale)
        return np.asarray((factor @ rng.standard_normal((*shape, self.d, 1)))[..., 0])
