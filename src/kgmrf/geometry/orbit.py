"""The isospectral orbit {Q diag(lam) Q^T}: covariances that share a spectrum.

A point is a pair `(frame, spectrum)`: an orthonormal eigenframe Q `(..., d, d)` with det +1 and
eigenvalues lam `(..., d)`. Observations scatter about M + noise_floor I with eigenvalues
d_i = lam_i + noise_floor.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._types import Array
from kgmrf.constants import RELATIVE_RIDGE as RELATIVE_RIDGE
from kgmrf.geometry import so
from kgmrf.geometry.so_maps import _constant

__all__ = [
    "compose",
    "decompose",
    "distance",
    "gaps",
    "identifiability",
    "inertia",
    "inertia_inverse",
    "innovation",
    "torque",
    "whitened_gap",
]

_ENUMERATED = 8


def compose(frame: Array, spectrum: Array) -> Array:
    """M = Q diag(lam) Q^T.

    Shapes: frame `(..., d, d)`, spectrum `(..., d)` -> `(..., d, d)`, symmetric to the last bit.

    Parameters
    ----------
    frame, spectrum : array
        Eigenvectors Q ``(..., d, d)``, one per column, and eigenvalues lam ``(..., d)``.

    Examples
    --------
    >>> import numpy as np
    >>> compose(np.eye(2), np.array([2.0, 0.5]))
    array([[2. , 0. ],
           [0. , 0.5]])
    """
    xp = array_namespace(frame, spectrum)
    M = (frame * spectrum[..., None, :]) @ xp.matrix_transpose(frame)
    return (M + xp.matrix_transpose(M)) / 2


def decompose(M: Array) -> tuple[Array, Array]:
    """(Q, lam) with M = Q diag(lam) Q^T, lam descending, det Q = +1.

    Shapes: M `(..., d, d)` -> `(..., d, d)`, `(..., d)`. Of a numpy matrix with a NaN in it, which
    is missing, both are NaN. The derivative of the frame exists only
    where eigenvalues differ; planes without a gap get 0. Derivatives are carried up to the second.

    Parameters
    ----------
    M : array
        Symmetric ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> frame, spectrum = decompose(np.diag([0.5, 2.0]))
    >>> spectrum
    array([2. , 0.5])
    >>> float(np.linalg.det(frame))
    1.0
    """
    xp = array_namespace(M)
    M = (M + xp.matrix_transpose(M)) / 2
    fixed = _constant(M)
    missing = None if hasattr(M, "detach") else np.isnan(M).any(axis=(-2, -1))
    if missing is not None and missing.any():
        fixed = np.where(missing[..., None, None], np.eye(M.shape[-1]), M)
    values, vectors = xp.linalg.eigh(fixed)
    spectrum, frame = xp.flip(values, axis=-1), xp.flip(vectors, axis=-1)
    negative = (xp.linalg.det(frame) < 0)[..., None, None]
    last = xp.arange(M.shape[-1], device=device(M)) == M.shape[-1] - 1
    frame = xp.where(negative & last, -frame, frame)
    if missing is not None:
        frame[missing], spectrum[missing] = np.nan, np.nan
        return frame, spectrum
    # Two steps of Newton, of which every term is zero, carry the first two derivatives, which eigh
    # itself loses at equal eigenvalues.
    for _ in range(2):
        w = innovation(frame, spectrum, M)
        frame = frame @ so.exp(w - w.detach(), norm_bound=0.0)
    seen = xp.linalg.diagonal(xp.matrix_transpose(frame) @ M @ frame)
    return frame, spectrum + (seen - seen.detach())


def gaps(spectrum: Array) -> Array:
    """G_ij = lam_i - lam_j.

    Shapes: `(..., d)` -> `(..., d, d)`.

    Parameters
    ----------
    spectrum : array
        Eigenvalues lam ``(..., d)``.

    Examples
    --------
    >>> import numpy as np
    >>> gaps(np.array([2.0, 0.5]))
    array([[ 0. ,  1.5],
           [-1.5,  0. ]])
    """
    return spectrum[..., :, None] - spectrum[..., None, :]


def _scales(spectrum: Array, noise_floor: float | Array) -> Array:
    """d_i d_j with d_i = lam_i + noise_floor."""
    observed = spectrum + _trailing(noise_floor, 1)
    return observed[..., :, None] * observed[..., None, :]


def _trailing(value: Array, axes: int) -> Array:
    """A scalar stays; an array of batch shape gets trailing axes to broadcast against."""
    shape = getattr(value, "shape", ())
    return value[(..., *([None] * axes))] if shape else value


def _observed(M: Array, noise_floor: float | Array) -> Array:
    """S = M + noise_floor I."""
    xp = array_namespace(M)
    return M + _trailing(noise_floor, 2) * xp.eye(M.shape[-1], dtype=M.dtype, device=device(M))


def torque(M: Array, C: Array, noise_floor: float | Array = 0.0) -> Array:
    """tau = S^{-1} [C, M] S^{-1}, S = M + noise_floor I.

    Shapes: M, C `(..., d, d)` -> `(..., d, d)`, skew, in the spatial frame. With
    V = m/2 (log det S + tr S^{-1} C), turning M by Omega changes V at the rate
    -(m/2) <tau, Omega>: +tau is the descent direction (the paper's lemma has the opposite sign).

    Parameters
    ----------
    M, C : array
        Covariances without the noise floor, and observed matrices ``(..., d, d)``.
    noise_floor : float or array, default 0.0
        Measurement-noise variance sigma^2; a number or ``(...)``.

    Examples
    --------
    >>> import numpy as np
    >>> torque(np.diag([2.0, 1.0]), np.array([[2.0, 1.0], [1.0, 1.0]]))
    array([[ 0. , -0.5],
           [ 0.5,  0. ]])
    """
    xp = array_namespace(M, C)
    S = _observed(M, noise_floor)
    X = xp.linalg.solve(S, C @ M - M @ C)
    tau = -xp.matrix_transpose(xp.linalg.solve(S, xp.matrix_transpose(X)))
    return (xp.matrix_transpose(tau) - tau) / 2


def inertia(Omega: Array, frame: Array, spectrum: Array, noise_floor: float | Array = 0.0) -> Array:
    """I_M(Omega) = Q [G^2 / (d_i d_j) * (Q^T Omega Q)] Q^T.

    Shapes: Omega, frame `(..., d, d)`, spectrum `(..., d)` -> `(..., d, d)`; spatial in and out.
    <I_M(Omega), Omega> is the Fisher metric of the motion [Omega, M] for one half sample.

    Parameters
    ----------
    Omega : array
        Skew ``(..., d, d)``, spatial frame.
    frame, spectrum : array
        Eigenvectors Q ``(..., d, d)``, one per column, and eigenvalues lam ``(..., d)``.
    noise_floor : float or array, default 0.0
        Measurement-noise variance sigma^2, in d_i = lam_i + sigma^2; a number or ``(...)``.

    Examples
    --------
    >>> import numpy as np
    >>> Omega = so.hat(np.array([1.0]))
    >>> inertia(Omega, np.eye(2), np.array([2.0, 1.0]))
    array([[ 0. , -0.5],
           [ 0.5,  0. ]])
    """
    xp = array_namespace(Omega, frame, spectrum)
    G = gaps(spectrum)
    body = xp.matrix_transpose(frame) @ Omega @ frame
    body = body * (G * G) / _scales(spectrum, noise_floor)
    return frame @ body @ xp.matrix_transpose(frame)


def inertia_inverse(
    tau: Array,
    frame: Array,
    spectrum: Array,
    noise_floor: float | Array = 0.0,
    ridge: float | Array | None = None,
) -> Array:
    """I_M^{-1}(tau) = Q [d_i d_j / (G^2 + ridge) * (Q^T tau Q)] Q^T.

    Shapes: tau, frame `(..., d, d)`, spectrum `(..., d)` -> `(..., d, d)`; spatial in and out
    (the paper's formula stops in the eigenbasis and omits the rotation back). `ridge` as in
    `innovation`; planes without a gap do not turn.

    Parameters
    ----------
    tau : array
        Skew ``(..., d, d)``, spatial frame.
    frame, spectrum : array
        Eigenvectors Q ``(..., d, d)``, one per column, and eigenvalues lam ``(..., d)``.
    noise_floor : float or array, default 0.0
        Measurement-noise variance sigma^2, in d_i = lam_i + sigma^2; a number or ``(...)``.
    ridge : float or array, default None
        Added to G^2, so that nearly equal eigenvalues turn little; None is 1e-9 of the largest G^2.

    Examples
    --------
    >>> import numpy as np
    >>> Omega, lam = so.hat(np.array([1.0])), np.array([2.0, 1.0])
    >>> inertia_inverse(inertia(Omega, np.eye(2), lam), np.eye(2), lam, ridge=0.0)
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    xp = array_namespace(tau, frame, spectrum)
    divisor, valid = _divisor(spectrum, ridge)
    body = xp.matrix_transpose(frame) @ tau @ frame
    body = xp.where(valid, body * _scales(spectrum, noise_floor) / divisor, 0 * body)
    return frame @ body @ xp.matrix_transpose(frame)


def _divisor(spectrum: Array, ridge: float | Array | None) -> tuple[Array, Array]:
    """G^2 + ridge, with 1 in place of 0, and where it was not 0 off the diagonal."""
    xp = array_namespace(spectrum)
    G = gaps(spectrum)
    square = G * G
    if ridge is None:
        divisor = square + RELATIVE_RIDGE * xp.max(square, axis=(-2, -1), keepdims=True)
    else:
        divisor = square + _trailing(ridge, 2)
    index = xp.arange(spectrum.shape[-1], device=device(spectrum))
    valid = (divisor > 0) & (index[:, None] != index)
    return xp.where(valid, divisor, xp.ones_like(divisor)), valid


def innovation(
    frame: Array, spectrum: Array, C: Array, ridge: float | Array | None = None
) -> Array:
    """w_ij = -C~_ij G_ij / (G_ij^2 + ridge), C~ = Q^T C Q: the natural-gradient step to C.

    Shapes: frame, C `(..., d, d)`, spectrum `(..., d)` -> `(..., d, d)`, skew, in the body frame.
    Equals Q^T I_M^{-1}(torque(M, C)) Q for every noise floor, which cancels. Linear in C, so that
    a rank-deficient C will do. `ridge` defaults to 1e-9 of the largest gap squared; planes
    without a gap get 0. In d = 2 it is sin(2 delta) / 2 for a C turned by delta.

    Parameters
    ----------
    frame, spectrum : array
        Eigenvectors Q ``(..., d, d)``, one per column, and eigenvalues lam ``(..., d)``.
    C : array
        Observed matrices ``(..., d, d)``.
    ridge : float or array, default None
        Added to G^2, so that nearly equal eigenvalues turn little; None is 1e-9 of the largest G^2.

    Examples
    --------
    >>> import numpy as np
    >>> lam, delta = np.array([2.0, 0.5]), 0.1
    >>> C = compose(so.exp(so.hat(np.array([delta]))), lam)
    >>> w = innovation(np.eye(2), lam, C, ridge=0.0)
    >>> bool(np.isclose(w[1, 0], np.sin(2 * delta) / 2))
    True
    """
    xp = array_namespace(frame, spectrum, C)
    body = xp.matrix_transpose(frame) @ C @ frame
    body = (body + xp.matrix_transpose(body)) / 2
    divisor, _ = _divisor(spectrum, ridge)
    return -body * gaps(spectrum) / divisor


def _smallest_pair(values: Array) -> Array:
    """Minimum over pairs i != j of a symmetric table; infinite for d = 1, which has no pair."""
    xp = array_namespace(values)
    index = xp.arange(values.shape[-1], device=device(values))
    outside = xp.full_like(values, math.inf)
    return xp.min(xp.where(index[:, None] == index, outside, values), axis=(-2, -1))


def whitened_gap(spectrum: Array, noise_floor: float | Array = 0.0) -> Array:
    """min_{i != j} sigma^2 |lam_i - lam_j| / (d_i d_j), sigma^2 the noise floor.

    Shapes: `(..., d)` -> `(...)`. Zero without a noise floor: judge by `identifiability` then.

    Parameters
    ----------
    spectrum : array
        Eigenvalues lam ``(..., d)``.
    noise_floor : float or array, default 0.0
        Measurement-noise variance sigma^2, in d_i = lam_i + sigma^2; a number or ``(...)``.

    Examples
    --------
    >>> import numpy as np
    >>> float(whitened_gap(np.array([2.0, 1.0]), noise_floor=1.0).round(6))
    0.166667
    """
    xp = array_namespace(spectrum)
    table = _trailing(noise_floor, 2) * xp.abs(gaps(spectrum)) / _scales(spectrum, noise_floor)
    return _smallest_pair(table)


def identifiability(spectrum: Array, noise_floor: float | Array = 0.0) -> Array:
    """min_{i != j} (lam_i - lam_j)^2 / (d_i d_j): information per sample on the weakest plane.

    Shapes: `(..., d)` -> `(...)`.

    Parameters
    ----------
    spectrum : array
        Eigenvalues lam ``(..., d)``.
    noise_floor : float or array, default 0.0
        Measurement-noise variance sigma^2, in d_i = lam_i + sigma^2; a number or ``(...)``.

    Examples
    --------
    >>> import numpy as np
    >>> float(identifiability(np.array([2.0, 1.0])))
    0.5
    """
    G = gaps(spectrum)
    return _smallest_pair(G * G / _scales(spectrum, noise_floor))


def distance(frame1: Array, frame2: Array) -> Array:
    """min_D angle(Q1, Q2 D), D = diag(+-1) with det(Q1 Q2 D) = +1: the angle between eigenframes.

    Shapes: `(..., d, d)`, `(..., d, d)` -> `(...)`. An eigenvector and its negative are the same.
    Up to d = 8 all sign choices are tried; above, the search starts from the signs that make the
    overlaps q1_i . q2_i positive (flipping the least one if the determinant asks for it) and flips
    pairs of columns while that helps: exact when the frames are near, an upper bound otherwise.

    Parameters
    ----------
    frame1, frame2 : array
        Eigenframes ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> float(distance(np.eye(3), np.diag([-1.0, -1.0, 1.0])))
    0.0
    """
    xp = array_namespace(frame1, frame2)
    R = xp.matrix_transpose(frame1) @ frame2
    d = R.shape[-1]
    # Column signs are chosen on constants; the angle is then taken inside the graph.
    fixed = _constant(R)
    parity = xp.astype(xp.where(xp.linalg.det(fixed) < 0, -1.0, 1.0), R.dtype)
    turned = R * _best_signs(fixed, parity)[..., None, :]
    return so.distance(xp.zeros_like(R) + xp.eye(d, dtype=R.dtype, device=device(R)), turned)


def _square_angle(R: Array) -> Array:
    """|log R|_F^2 / 2 from the eigenvalues cos t of the symmetric part."""
    xp = array_namespace(R)
    cosines = xp.linalg.eigvalsh((R + xp.matrix_transpose(R)) / 2)
    return xp.sum(xp.acos(xp.clip(cosines, -1.0, 1.0)) ** 2, axis=-1) / 2


def _best_signs(R: Array, parity: Array) -> Array:
    """Column signs whose product is ``parity``: all are tried, or in large d flips of pairs."""
    xp = array_namespace(R)
    d = R.shape[-1]
    overlap = xp.linalg.diagonal(R)
    signs = xp.where(overlap < 0, -xp.ones_like(overlap), xp.ones_like(overlap))
    index = xp.arange(d, device=device(R))
    wrong = (xp.prod(signs, axis=-1) * parity < 0)[..., None]
    least = xp.argmin(xp.abs(overlap), axis=-1)[..., None]
    signs = xp.where(wrong & (index == least), -signs, signs)
    most = d if d <= _ENUMERATED else 2
    flipped = [pick for k in range(0, most + 1, 2) for pick in itertools.combinations(range(d), k)]
    table = np.ones((len(flipped), d))
    for row, columns in zip(table, flipped, strict=True):
        row[list(columns)] = -1.0
    flips = xp.asarray(table, dtype=R.dtype, device=device(R))
    for _ in range(d):
        trial = signs[..., None, :] * flips
        scores = _square_angle(R[..., None, :, :] * trial[..., None, :])
        best = xp.arange(len(flipped), device=device(R)) == xp.argmin(scores, axis=-1)[..., None]
        better = xp.sum(trial * xp.astype(best, R.dtype)[..., None], axis=-2)
        if d <= _ENUMERATED or bool(xp.all(better == signs)):
            return better
        signs = better
    return signs
