"""The lemmas about the torque tau = S^-1 [C, M] S^-1 = [S^-1, C], with their exact constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.geometry import orbit
from kgmrf.theory._arrays import number

__all__ = ["torque_lipschitz", "torque_variance", "wishart_second_moment"]


def wishart_second_moment(
    left: ArrayLike, covariance: ArrayLike, right: ArrayLike, n_samples: ArrayLike
) -> Any:
    """E |A (C - S) B|_F^2 = [tr(A S A^T) tr(B^T S B) + |A S B|_F^2] / m for m C ~ W(m, S).

    Shapes: left A (..., k, d), covariance S (..., d, d), right B (..., d, l), m (...) -> (...).

    Parameters
    ----------
    left : array
        A ``(..., k, d)``.
    covariance : array
        S ``(..., d, d)``.
    right : array
        B ``(..., d, l)``.
    n_samples : array
        m ``(...)``, samples behind C.

    Examples
    --------
    >>> wishart_second_moment(np.eye(2), np.diag([2.0, 1.0]), np.eye(2), 7)
    2.0
    """
    a, s, b = (np.asarray(v, dtype=np.float64) for v in (left, covariance, right))
    before = np.einsum("...ij,...jk,...ik->...", a, s, a)
    after = np.einsum("...ji,...jk,...ki->...", b, s, b)
    both = ((a @ s @ b) ** 2).sum((-1, -2))
    return number((before * after + both) / np.asarray(n_samples, dtype=np.float64))


def torque_variance(
    spectrum: ArrayLike,
    n_samples: ArrayLike,
    *,
    noise_floor: float = 0.0,
    truth: ArrayLike | None = None,
) -> Any:
    """E |tau - E tau|_F^2 = (1/m) sum_{i != j} (G_ij / (d_i d_j))^2 (S_ii S_jj + S_ij^2).

    Parameters
    ----------
    spectrum : array
        Eigenvalues lam ``(..., d)`` of the estimate.
    n_samples : array
        m, samples behind an observation.
    noise_floor : float, default 0.0
        sigma^2, in d_i = lam_i + sigma^2.
    truth : array, default None
        S ``(..., d, d)``, the covariance of the samples in the estimate's eigenframe; None where
        the estimate is right.

    Examples
    --------
    >>> torque_variance((2.0, 1.0), 8)
    0.125
    """
    d = np.asarray(spectrum, dtype=np.float64) + noise_floor
    product = d[..., :, None] * d[..., None, :]
    entry = product
    if truth is not None:
        s = np.asarray(truth, dtype=np.float64)
        level = np.diagonal(s, axis1=-2, axis2=-1)
        entry = level[..., :, None] * level[..., None, :] + s**2
    # The diagonal has no gap and adds nothing.
    total = ((orbit.gaps(d) / product) ** 2 * entry).sum((-1, -2))
    return number(total / np.asarray(n_samples, dtype=np.float64))


def torque_lipschitz(
    observation: ArrayLike, spectrum: ArrayLike, *, noise_floor: float = 0.0
) -> Any:
    """L = (c_max - c_min)(1/d_min - 1/d_max): |tau(M_1, C) - tau(M_2, C)|_F <= L |Log|_F.

    |Log|_F is the length of the rotation from M_1 to M_2. Sharp for d = 2.

    Parameters
    ----------
    observation : array
        C ``(..., d, d)`` with eigenvalues c.
    spectrum : array
        Eigenvalues lam ``(..., d)``.
    noise_floor : float, default 0.0
        sigma^2, in d_i = lam_i + sigma^2.

    Examples
    --------
    >>> torque_lipschitz(np.diag([3.0, 1.0]), (2.0, 1.0))
    1.0
    """
    c = np.linalg.eigvalsh(np.asarray(observation, dtype=np.float64))
    d = np.asarray(spectrum, dtype=np.float64) + noise_floor
    return number((c[..., -1] - c[..., 0]) * (1 / d.min(-1) - 1 / d.max(-1)))
