"""How observations arise: m C ~ W_d(m, S), S = M + noise_floor I, from m zero-mean samples.

Densities and information take numpy or torch arrays with any leading batch axes; `n_samples` (m)
is a number or an array of the batch shape.
"""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._types import Array, Numbers
from kgmrf.geometry.orbit import _observed, _scales, _trailing, gaps

__all__ = [
    "cramer_rao",
    "expected_outer",
    "fisher_information",
    "negative_log_likelihood",
    "predictive_log_likelihood",
    "sample",
]


def sample(
    covariance: Array,
    n_samples: int | Array,
    rng: np.random.Generator | int,
    noise_floor: float | Array = 0.0,
) -> Array:
    """C = X^T X / m, rows of X drawn from N(0, M + noise_floor I): one observation of M.

    Shapes: covariance `(..., d, d)`, n_samples a whole number >= 1 or an array of them that
    broadcasts with the batch -> `(..., d, d)`. Rank min(m, d). The cost does not grow with m:
    instead of X its triangular factor is drawn (Bartlett; its first m columns when m < d).

    Parameters
    ----------
    covariance : array
        Covariances ``(..., d, d)`` to draw from.
    n_samples : int or float or array
        Samples n behind each drawn matrix.
    rng : np.random.Generator or int
        Generator or seed.
    noise_floor : float or float or array, default 0.0
        Measurement-noise variance sigma^2, added to the covariance.

    Examples
    --------
    >>> import numpy as np
    >>> C = sample(np.diag([2.0, 0.5]), 100_000, np.random.default_rng(0))
    >>> bool(np.allclose(C, np.diag([2.0, 0.5]), atol=0.03))
    True
    >>> int(np.linalg.matrix_rank(sample(np.eye(5), 2, np.random.default_rng(0))))
    2
    """
    xp = array_namespace(covariance)
    rng = np.random.default_rng(rng)
    detached = covariance.detach().cpu() if hasattr(covariance, "detach") else covariance
    M = np.asarray(detached, dtype=np.float64)
    d = M.shape[-1]
    m = np.asarray(n_samples)
    if m.size and not (np.all(m >= 1) and np.all(m == np.floor(m))):
        raise ValueError(f"n_samples must be whole numbers of at least 1, got {n_samples!r}")
    m = m.astype(np.int64)
    S = np.asarray(_observed(M, np.asarray(noise_floor)))
    shape = np.broadcast_shapes(S.shape[:-2], m.shape)
    # eigh, not Cholesky: a singular covariance has samples too.
    values, V = np.linalg.eigh((S + S.swapaxes(-1, -2)) / 2)
    root = V * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    freedom = np.broadcast_to(m[..., None] - np.arange(d), (*shape, d))
    alive = freedom > 0
    diagonal = np.sqrt(rng.chisquare(np.maximum(freedom, 1)))
    T = np.tril(rng.standard_normal((*shape, d, d)), -1)
    T[..., np.arange(d), np.arange(d)] = diagonal
    T = T * alive[..., None, :]
    factor = root @ T
    C = factor @ factor.swapaxes(-1, -2) / m[..., None, None]
    C = (C + C.swapaxes(-1, -2)) / 2
    return xp.asarray(C, dtype=covariance.dtype, device=device(covariance))


def _log_det_and_trace(S: Array, C: Array) -> tuple[Array, Array]:
    """log det S and tr S^{-1} C."""
    xp = array_namespace(S, C)
    L = xp.linalg.cholesky(S)
    log_det = 2 * xp.sum(xp.log(xp.linalg.diagonal(L)), axis=-1)
    Y = xp.linalg.solve(L, C + 0 * S)
    Z = xp.linalg.solve(xp.matrix_transpose(L), Y)
    return log_det, xp.sum(xp.linalg.diagonal(Z), axis=-1)


def negative_log_likelihood(
    M: Array, C: Array, n_samples: float | Array, noise_floor: float | Array = 0.0
) -> Array:
    """V(M; C) = m/2 (log det S + tr S^{-1} C), S = M + noise_floor I: up to terms without M.

    Shapes: M, C `(..., d, d)` -> `(...)`.

    Parameters
    ----------
    M : array
        Covariances ``(..., d, d)`` without the noise floor.
    C : array
        Observed matrices ``(..., d, d)``.
    n_samples : float or float or array
        Samples n behind each of them.
    noise_floor : float or float or array, default 0.0
        Measurement-noise variance sigma^2.

    Examples
    --------
    >>> import numpy as np
    >>> float(negative_log_likelihood(np.eye(2), np.eye(2), 8))
    8.0
    """
    log_det, trace = _log_det_and_trace(_observed(M, noise_floor), C)
    return n_samples / 2 * (log_det + trace)


def predictive_log_likelihood(S: Array, C: Array, n_samples: float | Array) -> Array:
    """log p(x_1 .. x_m) = -(m/2)(d log 2 pi + log det S + tr S^{-1} C), x ~ N(0, S).

    Shapes: S, C `(..., d, d)` -> `(...)`. The density of the samples, not of C: it exists for
    m < d too, where the Wishart density does not.

    Parameters
    ----------
    S : array
        Forecast covariances ``(..., d, d)``.
    C : array
        Means ``(..., d, d)`` of x x^T over the samples.
    n_samples : float or float or array
        m, how many samples those are.

    Examples
    --------
    >>> import numpy as np
    >>> float(predictive_log_likelihood(np.eye(1) / (2 * np.pi), np.eye(1) / np.pi, 1).round(12))
    -1.0
    """
    log_det, trace = _log_det_and_trace(S, C)
    return -n_samples / 2 * (S.shape[-1] * math.log(2 * math.pi) + log_det + trace)


def fisher_information(
    spectrum: Array, n_samples: float | Array, noise_floor: float | Array = 0.0
) -> Array:
    """F_ij = m (lam_i - lam_j)^2 / (d_i d_j), d_i = lam_i + noise_floor.

    Shapes: spectrum `(..., d)` -> `(..., d, d)`: the information of one observation on the angle of
    plane (i, j), per squared radian; zero on the diagonal.

    Parameters
    ----------
    spectrum : array
        Eigenvalues ``(..., d)``.
    n_samples : float or float or array
        Samples n behind a matrix.
    noise_floor : float or float or array, default 0.0
        Measurement-noise variance sigma^2.

    Examples
    --------
    >>> import numpy as np
    >>> fisher_information(np.array([2.0, 1.0]), 8)
    array([[0., 4.],
           [4., 0.]])
    """
    G = gaps(spectrum)
    return _trailing(n_samples, 2) * (G * G) / _scales(spectrum, noise_floor)


def cramer_rao(
    spectrum: Array, n_samples: float | Array, noise_floor: float | Array = 0.0
) -> Array:
    """std_ij >= F_ij^{-1/2} = (d_i d_j / m)^{1/2} / |lam_i - lam_j|, in radians.

    Shapes: spectrum `(..., d)` -> `(..., d, d)`: no unbiased estimate of the angle of plane (i, j)
    from one observation is better. Infinite where eigenvalues agree, and on the diagonal.

    Parameters
    ----------
    spectrum : array
        Eigenvalues ``(..., d)``.
    n_samples : float or float or array
        Samples n behind a matrix.
    noise_floor : float or float or array, default 0.0
        Measurement-noise variance sigma^2.

    Examples
    --------
    >>> import numpy as np
    >>> cramer_rao(np.array([2.0, 1.0]), 8)
    array([[inf, 0.5],
           [0.5, inf]])
    """
    F = fisher_information(spectrum, n_samples, noise_floor)
    xp = array_namespace(F)
    known = F > 0
    return xp.where(known, 1 / xp.sqrt(xp.where(known, F, xp.ones_like(F))), math.inf)


def second_moments(block: Numbers, outer: Numbers | None = None) -> tuple[Numbers, Numbers]:
    """C = (1/m) sum x x^T over the samples that are there, and their number m.

    Shapes: block `(..., m, d)`, NaN where nothing is; -> `(..., d, d)`, `(...)`.
    outer: x x^T of each sample ``(..., m, d, d)``, as expected where it has holes.

    >>> moment, count = second_moments(np.array([[1.0], [3.0], [np.nan]]))
    >>> moment.item(), count.item()
    (5.0, 2.0)
    """
    there = ~np.all(np.isnan(block), axis=-1)
    counts = there.sum(axis=-1).astype(float)
    if outer is None:
        rows = np.where(there[..., None], block, 0.0)
        total = np.swapaxes(rows, -1, -2) @ rows
    else:
        total = np.where(there[..., None, None], outer, 0.0).sum(axis=-3)
    return total / np.maximum(counts, 1.0)[..., None, None], counts


UNRELATED = 1e-9
"""Data never show a correlation as small as this: such a channel has not been seen yet."""


def plain_guess(x: Array) -> Array:
    """(mean of the squares that are there) I: channels without relation, as large as one another.

    Shapes: x `(..., m, d)`, NaN marking what is missing, -> `(..., d, d)`; I where nothing is there
    or all of it is zero. The covariance of samples about which nothing else is known.

    >>> import numpy as np
    >>> plain_guess(np.array([[2.0, np.nan]]))
    array([[4., 0.],
           [0., 4.]])
    """
    xp = array_namespace(x)
    there = ~xp.isnan(x)
    known = xp.where(there, x, xp.zeros_like(x))
    count = xp.sum(xp.astype(there, x.dtype), axis=(-2, -1))
    one = xp.ones_like(count)
    size = xp.sum(known * known, axis=(-2, -1)) / xp.where(count > 0, count, one)
    size = xp.where(size > 0, size, one)
    return size[..., None, None] * xp.eye(x.shape[-1], dtype=x.dtype, device=device(x))


def expected_outer(x: Array, S: Array, n_samples: float | Array = math.inf) -> Array:
    """E[x x^T | observed part of x] for x ~ N(0, S), NaN marking what is missing.

    Shapes: x `(..., d)`, S `(..., d, d)` -> `(..., d, d)`. With o observed and u missing:
    mu = S_uo S_oo^{-1} x_o takes the place of x_u, and S_uu - S_uo S_oo^{-1} S_ou is added to the
    missing block. Nothing missing gives x x^T, everything missing S.

    Parameters
    ----------
    x : array
        Vectors ``(..., d)``, NaN where missing.
    S : array
        Covariances ``(..., d, d)``.
    n_samples : float or float or array, default math.inf
        `(...)`, how many samples n S was estimated from. A regression learned from few of them is
        worth little, from fewer than d nothing, so S_oo gets a ridge: r S_ii + r^2 times the mean
        of the diagonal, r = d / n. A missing channel that is related to no other, as one that was
        never seen, is taken to be as large as those that are there.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> expected_outer(np.array([2.0, np.nan]), S)
    array([[4. , 2. ],
           [2. , 2.5]])
    >>> expected_outer(np.array([2.0, np.nan]), S, n_samples=2).round(3)
    array([[4.   , 0.667],
           [0.667, 1.944]])
    """
    xp = array_namespace(x, S)
    missing = xp.isnan(x)
    known = xp.where(missing, xp.zeros_like(x), x)
    u = xp.astype(missing, S.dtype)
    o = 1 - u
    eye = xp.eye(S.shape[-1], dtype=S.dtype, device=device(S))
    level = xp.linalg.diagonal(S)
    count = xp.sum(o * xp.ones_like(level), axis=-1, keepdims=True)
    usual = xp.sum(o * level, axis=-1, keepdims=True) / xp.maximum(count, xp.ones_like(count))
    r = xp.asarray(S.shape[-1] / n_samples, dtype=S.dtype, device=device(S))[..., None]
    ridge = r * level + r * r * xp.mean(level, axis=-1, keepdims=True)
    ridge = xp.where(ridge + level > 0, ridge, xp.ones_like(ridge))
    # Missing rows and columns become those of the identity: one solve for every pattern at once.
    S_oo = S * o[..., :, None] * o[..., None, :] + eye * (u + o * ridge)[..., None, :]
    S_ou = S * o[..., :, None] * u[..., None, :]
    regression = xp.linalg.solve(S_oo, S_ou)
    mean = known + (known[..., None, :] @ regression)[..., 0, :]
    off = S * (1 - eye)
    alone = xp.all(off * off <= UNRELATED**2 * level[..., :, None] * level[..., None, :], axis=-1)
    S_uu = off + eye * xp.where(alone & (count > 0), usual, level)[..., None, :]
    S_uu = S_uu * u[..., :, None] * u[..., None, :]
    rest = S_uu - xp.matrix_transpose(S_ou) @ regression
    rest = (rest + xp.matrix_transpose(rest)) / 2
    return mean[..., :, None] * mean[..., None, :] + rest
