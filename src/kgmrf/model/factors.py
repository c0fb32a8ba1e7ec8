"""Covariances of few factors plus a diagonal, S = F F^T + diag N, without a d x d array.

Shapes: F ``(..., d, k)``, N ``(..., d)``; NaN for channels that were never seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import SIZE_NODES
from kgmrf.geometry import orbit
from kgmrf.model.density import TAILS, Mixture, as_vectors

DENSE = ("covariance", "scale", "frame", "spectrum", "velocity", "angle_std")
"""Fields that are worked out from loadings and noise when somebody asks for them; of the last two
factors know nothing."""


def compose(loadings: Numbers, noise: Numbers) -> Numbers:
    """F F^T + diag N, ``(..., d, d)``.

    >>> compose(np.array([[1.0], [2.0]]), np.array([0.5, 1.0]))
    array([[1.5, 2. ],
           [2. , 5. ]])
    """
    whole = loadings @ np.swapaxes(loadings, -1, -2)
    index = np.arange(noise.shape[-1])
    whole[..., index, index] += noise
    return whole


def solve(loadings: Numbers, noise: Numbers, x: Any) -> Numbers:
    """(F F^T + diag N)^-1 x of vectors ``(..., d)``, by Woodbury's identity.

    >>> f, n = np.array([[1.0], [2.0]]), np.array([0.5, 1.0])
    >>> (compose(f, n) @ solve(f, n, [3.0, 4.0])).round(9).tolist()
    [3.0, 4.0]
    """
    vectors = as_vectors(x, noise.shape[-1])
    scaled = loadings / noise[..., None]
    inner = np.eye(loadings.shape[-1]) + np.swapaxes(loadings, -1, -2) @ scaled
    b = np.einsum("...ik,...i->...k", scaled, vectors)
    along = np.linalg.solve(inner, b[..., None])[..., 0]
    return np.asarray(vectors / noise - np.einsum("...ik,...k->...i", scaled, along))


HEAVY = tuple(nu / (nu - 2.0) for nu in TAILS)


def heaviness(tails: Numbers, size_std: Any = 0.0) -> Numbers:
    """The second moment of the density over its scale.

    sum_j pi_j nu_j/(nu_j - 2) times sum_i omega_i e^(z_i sigma) = (2 + cosh(sqrt 3 sigma))/3.
    """
    parts = [tails[..., j] * heavy for j, heavy in enumerate(HEAVY)]
    whole = parts[0] + parts[1] + parts[2] + parts[3]  # in this order, whatever the batch
    return np.asarray(whole * ((2.0 + np.cosh(SIZE_NODES[-1] * np.asarray(size_std))) / 3.0))[()]


def derived(name: str, loadings: Numbers, noise: Numbers, heavy: Numbers) -> Numbers:
    """One of the fields `DENSE`; heavy: see `heaviness`."""
    if name in ("velocity", "angle_std"):
        return np.broadcast_to(np.nan, (*noise.shape, noise.shape[-1]))  # takes no memory
    if name == "covariance":
        return compose(loadings, noise)
    if name == "scale":
        return compose(loadings, noise) / heavy[..., None, None]
    out = np.empty((*noise.shape, noise.shape[-1])) if name == "frame" else np.empty(noise.shape)
    for at in np.ndindex(noise.shape[:-1]):  # one at a time: eigenvectors are larger than factors
        out[at] = orbit.decompose(compose(loadings[at], noise[at]))[name == "spectrum"]
    return out


@dataclass(frozen=True)
class FactorDensity(Mixture):
    """As `Density`, of the scale F F^T + diag N.

    Parameters
    ----------
    loadings : array
        F ``(..., d, k)``.
    noise : array
        N ``(..., d)``, variances beside F F^T.
    tails : array
        Weights pi_k, ``(..., K)``.
    dofs : array
        nu_k, ``(K,)`` or ``(..., K)``.
    factors : array or float, default 1.0
        f_k, what the scale is multiplied by, ``(..., K)``.
    channels : tuple[str, ...], default None
        Names of the channels, if there are any.

    Examples
    --------
    >>> one = FactorDensity(np.zeros((2, 1)), np.ones(2), np.ones(1), np.array([1e8]))
    >>> one.log_density([0.0, 0.0]).round(3), one.region(0.95).round(2)
    (np.float64(-1.838), np.float64(5.99))
    """

    loadings: Numbers
    noise: Numbers
    tails: Numbers
    dofs: Numbers
    factors: Numbers | float = 1.0
    channels: tuple[str, ...] | None = None

    @property
    def scale(self) -> Numbers:
        """F F^T + diag N, ``(..., d, d)``."""
        return compose(self.loadings, self.noise)

    @property
    def d(self) -> int:
        """Number of channels."""
        return int(self.noise.shape[-1])

    def _compare(self, x: Any) -> tuple[Numbers, Numbers, Numbers]:
        vectors = as_vectors(x, self.d)
        here: Mask = ~np.isnan(vectors) & ~np.isnan(self.noise)
        noise = np.where(here, self.noise, 1.0)
        loadings = np.where(here[..., None], self.loadings, 0.0)
        safe = np.where(here, vectors, 0.0)
        scaled = loadings / noise[..., None]
        inner = np.eye(loadings.shape[-1]) + np.swapaxes(loadings, -1, -2) @ scaled
        factor = np.linalg.cholesky(inner)
        b = np.einsum("...ik,...i->...k", scaled, safe)
        half = np.linalg.solve(factor, b[..., None])[..., 0]
        distance = (safe**2 / noise).sum(axis=-1) - (half**2).sum(axis=-1)
        log_det = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        log_det = log_det + np.log(noise).sum(axis=-1)
        return np.maximum(distance, 0.0), log_det, here.sum(axis=-1).astype(float)

    def _solved(self, x: Numbers) -> tuple[Numbers, Numbers]:
        here: Mask = ~np.isnan(x) & ~np.isnan(self.noise)
        noise = np.where(here, self.noise, 1.0)
        loadings = np.where(here[..., None], self.loadings, 0.0)
        scaled = loadings / noise[..., None]
        inner = np.eye(loadings.shape[-1]) + np.swapaxes(loadings, -1, -2) @ scaled
        share = np.linalg.solve(inner, np.swapaxes(scaled, -1, -2))  # (..., k, d)
        safe = np.where(here, x, 0.0)
        y = safe / noise - np.einsum("...ki,...ij,...j->...k", scaled, share, safe)
        diagonal = 1.0 / noise - np.einsum("...ki,...ik->...k", scaled, share)
        return np.where(here, y, np.nan), np.where(here, diagonal, np.nan)

    def _variance(self, weights: Numbers) -> Numbers:
        known = ~np.isnan(self.noise)
        noise = np.where(known, self.noise, 0.0)
        loadings = np.where(known[..., None], self.loadings, 0.0)
        along = np.einsum("...ik,...i->...k", loadings, weights)
        found = (along**2).sum(axis=-1) + (noise * weights**2).sum(axis=-1)
        return np.where((known | (weights == 0.0)).all(axis=-1), found, np.nan)

    def _gaussian(self, shape: tuple[int, ...], rng: np.random.Generator) -> Numbers:
        common = rng.standard_normal((*shape, self.loadings.shape[-1], 1))
        own = rng.standard_normal((*shape, self.d))
        return np.asarray((self.loadings @ common)[..., 0] + np.sqrt(self.noise) * own)
