"""Rotations SO(d) and their Lie algebra so(d) of skew matrices, batched over leading axes.

Every function takes numpy or torch arrays, float32 or float64, of shape `(..., d, d)`. A tangent
vector is a skew matrix `W`; `R exp(W)` turns the rotation `R` in its body frame.

Derivatives: `hat`, `vee`, `exp`, `cayley`, `cayley_neumann`, `polish` and, for d <= 3, `log` and
`distance` can be differentiated to any order. `project` and, for d >= 4, `log` and `distance` come
from eigendecompositions, whose own derivatives do not exist at repeated eigenvalues; there the
value is computed outside the graph and followed by two chord-Newton steps inside it, so that first
and second derivatives are exact and finite. Third and higher ones are not.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._types import Array
from kgmrf.geometry.so_maps import (
    _constant,
    _eps,
    _eye,
    _skew,
    _transpose,
    cayley,
    cayley_neumann,
    exp,
    hat,
    polish,
    vee,
)

__all__ = [
    "cayley",
    "cayley_neumann",
    "distance",
    "exp",
    "free_turn",
    "hat",
    "log",
    "polish",
    "project",
    "vee",
]


NEAR_PI = -0.9  # cosine of a plane angle

# -- logarithm ----------------------------------------------------------------------------------


def log(R: Array) -> Array:
    """W = log R, skew with angles in [-pi, pi]: the principal logarithm, exp(log(R)) = R.

    Shapes: R `(..., d, d)` -> `(..., d, d)`. At an angle of exactly pi the two logarithms are
    equally good and one of them is returned. A matrix off the group by rounding is read as its
    nearest rotation; reflections have no logarithm (use `project` first).

    Parameters
    ----------
    R : array
        Rotations ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> log(np.array([[0.0, -1.0], [1.0, 0.0]])) / np.pi
    array([[ 0. , -0.5],
           [ 0.5,  0. ]])
    """
    d = R.shape[-1]
    if d == 1:
        return 0 * R
    if d == 2:
        return hat(_angle2(R)[..., None])
    if d == 3:
        return hat(_rotation_vector(R))
    W = _log_value(_constant(R))
    return _chord_steps(R, W) if hasattr(R, "detach") else W


def _angle2(R: Array) -> Array:
    """Angle of the nearest plane rotation; the zero matrix, which has none, gets angle 0."""
    xp = array_namespace(R)
    sine, cosine = R[..., 1, 0] - R[..., 0, 1], R[..., 0, 0] + R[..., 1, 1]
    nothing = (sine == 0) & (cosine == 0)
    return xp.atan2(sine, xp.where(nothing, xp.ones_like(cosine), cosine))


def _rotation_vector(R: Array) -> Array:
    """Rotation vector by way of the unit quaternion, which is smooth through pi.

    The rows of K below are 4 q_k q, k = w, x, y, z. The row with the largest q_k^2 >= 1/4 is
    divided by its length: no cancellation and no small divisor at any angle.
    """
    xp = array_namespace(R)
    r = [[R[..., i, j] for j in range(3)] for i in range(3)]
    trace = r[0][0] + r[1][1] + r[2][2]
    w = 1 + trace
    x = 1 + 2 * r[0][0] - trace
    y = 1 + 2 * r[1][1] - trace
    z = 1 + 2 * r[2][2] - trace
    wx, wy, wz = r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1]
    xy, yz, zx = r[0][1] + r[1][0], r[1][2] + r[2][1], r[0][2] + r[2][0]
    rows = [(w, wx, wy, wz), (wx, x, xy, zx), (wy, xy, y, yz), (wz, zx, yz, z)]
    q = xp.stack(rows[0], axis=-1)
    best = w
    for own, row in zip((x, y, z), rows[1:], strict=True):
        better = own > best
        q = xp.where(better[..., None], xp.stack(row, axis=-1), q)
        best = xp.where(better, own, best)
    q = xp.where(q[..., :1] < 0, -q, q)
    real, v = q[..., 0], q[..., 1:]
    square = xp.sum(v * v, axis=-1)
    # Relative to the real part: where the series is used, |v| / w < .1 and w is not small.
    small = square < 0.01 * real * real
    one = xp.ones_like(square)
    length = xp.sqrt(xp.where(small, one, square))
    safe_real = xp.where(small, real, one)
    u = xp.where(small, square, 0 * square) / (safe_real * safe_real)
    series = one / 17
    for k in range(15, 0, -2):  # atan(t)/t = 1 - t^2/3 + t^4/5 - ..., t^2 < .01
        series = 1 / k - u * series
    factor = xp.where(small, 2 * series / safe_real, 2 * xp.atan2(length, real) / length)
    return factor[..., None] * v


def _log_value(R: Array) -> Array:
    """Logarithm for d >= 4 as A g(S), with S, A the symmetric and skew parts of R.

    S and A commute, with eigenvalues cos t and i sin t, so that log R = A (t / sin t)(S) needs no
    joint diagonalisation. Rotations with a plane near pi, where t / sin t has its pole, take the
    Schur form; one Newton step makes their small angles exact too.
    """
    xp = array_namespace(R)
    cosines, V = xp.linalg.eigh((R + _transpose(R)) / 2)
    # acos loses half the digits of a small t, but t / sin t depends on t^2 only.
    t = xp.acos(xp.clip(cosines, NEAR_PI, 1.0))
    tiny = t < 0.05
    u = xp.where(tiny, t * t, 0 * t)
    t = xp.where(tiny, xp.ones_like(t), t)
    g = xp.where(tiny, 1 + u / 6 * (1 + 7 * u / 60 * (1 + 31 * u / 294)), t / xp.sin(t))
    B = _skew(_transpose(V) @ _skew(R) @ V)
    W = _skew(V @ (B * (g[..., :, None] + g[..., None, :]) / 2) @ _transpose(V))
    near = cosines[..., 0] < NEAR_PI
    if not bool(xp.any(near)):
        return W
    arrays = (np.asarray(X.cpu() if hasattr(X, "cpu") else X) for X in (W, R, near))
    known, seen, where = (array.copy() for array in arrays)
    for k in np.argwhere(where):
        known[tuple(k)] = _log_by_schur(seen[tuple(k)])
    exact = _chord_steps(R, xp.asarray(known, dtype=R.dtype, device=device(R)), steps=1)
    return xp.where(near[..., None, None], exact, W)


def _log_by_schur(R: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """From the real Schur form R = Z T Z^T, whose blocks are plane rotations."""
    from scipy import linalg

    T, Z = linalg.schur(R)
    W = np.zeros_like(R)
    planes = np.flatnonzero(np.diag(T, -1))
    alone = np.setdiff1d(np.flatnonzero(np.diag(T) < 0), [*planes, *(planes + 1)])
    for i in planes:
        sine, cosine = T[i + 1, i] - T[i, i + 1], T[i, i] + T[i + 1, i + 1]
        W[i + 1, i] = math.atan2(sine, cosine)
    # Eigenvalues -1 come in pairs: planes at pi, of which any orientation will do.
    W[alone[1::2], alone[: len(alone) // 2 * 2 : 2]] = math.pi
    return np.asarray(_skew(2.0 * Z @ W @ Z.T))


def _chord_steps(R: Array, W0: Array, steps: int = 2) -> Array:
    """W <- W + J^{-1} skew(e^{-W} R), with the Jacobian J of exp frozen at the constant W0.

    Moves nothing where e^W0 = R, but k steps carry the first k derivatives of log exactly.
    """
    xp = array_namespace(R)
    rates, U = xp.linalg.eigh(-1j * W0)
    y = rates[..., :, None] - rates[..., None, :]
    # J^{-1} has its poles on the cut locus |y| = 2 pi, where log has no derivative: stay finite.
    y = xp.clip(y, -2 * math.pi + 1e-5, 2 * math.pi - 1e-5)
    small = xp.abs(y) < 1e-3
    half = xp.where(small, xp.ones_like(y), y) / 2
    even = xp.where(small, 1 - y * y / 12, half / xp.tan(half))
    multiplier = even + 0.5j * y
    adjoint = _transpose(xp.conj(U))
    W = W0
    for _ in range(steps):
        E = _skew(exp(-W) @ R)
        E = U @ (multiplier * (adjoint @ xp.astype(E, U.dtype) @ U)) @ adjoint
        W = W + _skew(xp.real(E))
    return W


# -- distances and projections ------------------------------------------------------------------


def _root(square: Array) -> Array:
    """Square root with derivative 0, not infinity, at 0."""
    xp = array_namespace(square)
    positive = square > 0
    return xp.where(positive, xp.sqrt(xp.where(positive, square, xp.ones_like(square))), 0 * square)


def distance(R1: Array, R2: Array) -> Array:
    """|log(R1^T R2)|_F / sqrt(2): the angle between two rotations.

    Shapes: `(..., d, d)`, `(..., d, d)` -> `(...)`. In d = 2 and 3 this is the rotation angle;
    in higher dimensions the root of the summed squares of the plane angles.

    Parameters
    ----------
    R1, R2 : array
        Rotations ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> float(distance(np.eye(3), exp(hat(np.array([0.0, 0.3, 0.4])))).round(12))
    0.5
    """
    xp = array_namespace(R1, R2)
    W = log(_transpose(R1) @ R2)
    return _root(xp.sum(W * W, axis=(-2, -1)) / 2)


def project(M: Array) -> Array:
    """argmin_R |R - M|_F over SO(d): U diag(1, .., 1, det(U V^T)) V^T from M = U D V^T.

    Shapes: `(..., d, d)` -> `(..., d, d)`.

    Parameters
    ----------
    M : array
        Matrices ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> project(np.array([[2.0, 0.0], [0.0, 0.1]]))
    array([[1., 0.],
           [0., 1.]])
    """
    xp = array_namespace(M)
    fixed = _constant(M)
    U, singular, Vh = xp.linalg.svd(fixed, full_matrices=False)
    sign = xp.where(xp.linalg.det(U @ Vh) < 0, -1.0, 1.0)
    last = xp.astype(sign, M.dtype)[..., None]
    flip = xp.concat([xp.ones_like(singular[..., :-1]), last], axis=-1)
    U = U * flip[..., None, :]
    singular = singular * flip
    R0 = U @ Vh
    if not hasattr(M, "detach"):
        return R0
    # As in log: chord-Newton on skew(R^T M) = 0 gives the derivatives that the SVD lacks.
    total = singular[..., :, None] + singular[..., None, :]
    poor = xp.abs(total) < _eps(M) * xp.max(xp.abs(singular), axis=-1)[..., None, None]
    divisor = xp.where(poor | (total == 0), xp.full_like(total, math.inf), total)
    V = _transpose(Vh)
    R = R0
    for _ in range(2):
        K = Vh @ (_transpose(R) @ M - _transpose(M) @ R) @ V
        X = V @ (K / divisor) @ Vh
        R = R @ (_eye(M) + X + X @ X / 2)
    return R


# -- motion -------------------------------------------------------------------------------------


def free_turn(frame: Array, momentum: Array, rate: Array) -> tuple[Array, Array]:
    """Q <- Q R, Pi <- R^T Pi R plane by plane, then in reverse; R turns by rate_ij Pi_ji / 2.

    Shapes: frame, momentum `(..., d, d)`; rate broadcasts to them: time over the inertia a_ij of
    each plane, symmetric. The kinetic energy sum Pi_ij^2 / 2 a_ij splits into planes; the motion of
    each summand is a rotation that carries the momentum along, so that every part is exact, and the
    whole explicit, symplectic and of second order. The spatial momentum Q Pi Q^T is kept.

    Parameters
    ----------
    frame : array
        Q ``(..., d, d)``.
    momentum : array
        Pi ``(..., d, d)``, skew, in the body frame.
    rate : array
        Time over the inertia a_ij of each plane, symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> turn, momentum = free_turn(np.eye(2), np.array([[0.0, -0.3], [0.3, 0.0]]), np.ones((2, 2)))
    >>> round(float(np.arcsin(turn[1, 0])), 12)
    0.3
    """
    xp = array_namespace(frame, momentum)
    pairs = list(combinations(range(frame.shape[-1]), 2))
    rate = rate + xp.zeros_like(momentum)
    like = {"dtype": momentum.dtype, "device": device(momentum)}
    eye, planes, turns = (xp.asarray(v, **like) for v in _bases(frame.shape[-1]))
    for k in [*range(len(pairs)), *reversed(range(len(pairs)))]:
        i, j = pairs[k]
        angle = (0.5 * rate[..., j, i] * momentum[..., j, i])[..., None, None]
        R = eye + (xp.cos(angle) - 1.0) * planes[k] + xp.sin(angle) * turns[k]
        frame, momentum = frame @ R, xp.matrix_transpose(R) @ momentum @ R
    return frame, momentum


@lru_cache(maxsize=64)
def _bases(d: int) -> tuple[Any, Any, Any]:
    """Identity, projector and generator of every plane i < j."""
    eye = np.eye(d)
    pairs = list(combinations(range(d), 2))
    planes = [np.diag(eye[i] + eye[j]) for i, j in pairs]
    turns = [np.outer(eye[j], eye[i]) - np.outer(eye[i], eye[j]) for i, j in pairs]
    return eye, np.reshape(planes, (-1, d, d)), np.reshape(turns, (-1, d, d))
