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
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._types import Array

__all__ = [
    "cayley",
    "cayley_neumann",
    "distance",
    "exp",
    "hat",
    "log",
    "polish",
    "project",
    "vee",
]


def _transpose(X: Array) -> Array:
    return array_namespace(X).matrix_transpose(X)


def _skew(X: Array) -> Array:
    return (X - _transpose(X)) / 2


def _eye(X: Array) -> Array:
    """Identity of the size, type and device of X."""
    xp = array_namespace(X)
    index = xp.arange(X.shape[-1], device=device(X))
    # Not xp.eye, which writes in place where torch is concerned, and cannot go to ONNX for that.
    return xp.astype(index[:, None] == index, X.dtype)


def _eps(X: Array) -> float:
    return float(array_namespace(X).finfo(X.dtype).eps)


def _differentiates(X: Array) -> bool:
    """Whether the array belongs to a library that differentiates (and can cut its graph)."""
    return hasattr(X, "detach")


def _constant(X: Array) -> Array:
    return X.detach() if hasattr(X, "detach") else X


def _matrix22(a: Array, b: Array, c: Array, e: Array) -> Array:
    xp = array_namespace(a)
    rows = [xp.stack([a, b], axis=-1), xp.stack([c, e], axis=-1)]
    return xp.stack(rows, axis=-2)


@lru_cache(maxsize=64)
def _plane_order(d: int) -> tuple[tuple[int, int], ...]:
    """Entries (row, column) of W that hold the coordinates v, in order."""
    if d == 3:
        return ((2, 1), (0, 2), (1, 0))
    return tuple((j, i) for i in range(d) for j in range(i + 1, d))


@lru_cache(maxsize=64)
def _hat_index(d: int) -> np.ndarray[Any, Any]:
    """Where each entry of W, row by row, is found in (v, -v, 0)."""
    order = _plane_order(d)
    n = len(order)
    index = np.full((d, d), 2 * n)
    for k, (row, column) in enumerate(order):
        index[row, column] = k
        index[column, row] = n + k
    return index.reshape(-1)


def hat(v: Array) -> Array:
    """W = sum_k v_k E_k: coordinates to a skew matrix.

    Shapes: v `(..., d (d-1) / 2)` -> `(..., d, d)`. d = 2: `W[1, 0] = v[0]`; d = 3: v is the
    rotation vector, `W x` the cross product of v and x; else v lists `W[j, i]` for i < j in the
    lexicographic order of (i, j). An empty v means d = 1.

    >>> import numpy as np
    >>> hat(np.array([1.0, 2.0, 3.0]))
    array([[ 0., -3.,  2.],
           [ 3.,  0., -1.],
           [-2.,  1.,  0.]])
    """
    xp = array_namespace(v)
    n = v.shape[-1]
    d = (1 + math.isqrt(1 + 8 * n)) // 2
    if d * (d - 1) // 2 != n:
        raise ValueError(f"hat: {n} coordinates fit no dimension d; d (d - 1) / 2 is needed")
    zero = xp.zeros((*v.shape[:-1], 1), dtype=v.dtype, device=device(v))
    index = xp.asarray(_hat_index(d), device=device(v))
    flat = xp.take(xp.concat([v, -v, zero], axis=-1), index, axis=-1)
    return xp.reshape(flat, (*v.shape[:-1], d, d))


def vee(W: Array) -> Array:
    """v with hat(v) = W: a skew matrix to its coordinates.

    Shapes: W `(..., d, d)` -> `(..., d (d-1) / 2)`.

    >>> import numpy as np
    >>> vee(hat(np.array([1.0, 2.0, 3.0])))
    array([1., 2., 3.])
    """
    xp = array_namespace(W)
    d = W.shape[-1]
    index = np.array([row * d + column for row, column in _plane_order(d)], dtype=np.int64)
    flat = xp.reshape(W, (*W.shape[:-2], d * d))
    return xp.take(flat, xp.asarray(index, device=device(W)), axis=-1)


# -- exponential maps ---------------------------------------------------------------------------


def exp(W: Array, *, norm_bound: float | None = None) -> Array:
    """R = e^W = sum_k W^k / k!: the exact exponential, for skew W of any size.

    Shapes: W `(..., d, d)` -> `(..., d, d)`. Closed form for d <= 3; otherwise a diagonal Pade
    approximant (which maps skew to orthogonal) of a degree chosen from the largest norm in the
    batch, with squarings beyond some 5 radians. `norm_bound` promises that no absolute column sum
    of W is larger, and so spares the look at the data (needed to trace d >= 4 into a graph).

    >>> import numpy as np
    >>> exp(hat(np.array([np.pi / 2]))).round(12) + 0.0
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    d = W.shape[-1]
    if d == 1:
        return _eye(W) + 0 * W
    if d == 2:
        xp = array_namespace(W)
        angle = W[..., 1, 0]
        c, s = xp.cos(angle), xp.sin(angle)
        return _matrix22(c, -s, s, c)
    if d == 3:
        return _exp3(W)
    return _exp_pade(W, norm_bound)


def _exp3(W: Array) -> Array:
    """Rodrigues: I + (sin t / t) W + (1 - cos t)/t^2 W^2."""
    xp = array_namespace(W)
    square = xp.sum(W * W, axis=(-2, -1), keepdims=True) / 2
    small = square < 0.01
    # Both branches are evaluated: the root must not see 0, the series not a large number.
    t = xp.sqrt(xp.where(small, xp.ones_like(square), square))
    x = xp.where(small, square, xp.zeros_like(square))
    series_a = (((x / 362880 - 1 / 5040) * x + 1 / 120) * x - 1 / 6) * x + 1
    series_b = (((x / 3628800 - 1 / 40320) * x + 1 / 720) * x - 1 / 24) * x + 1 / 2
    half = xp.sin(t / 2) / t
    a = xp.where(small, series_a, xp.sin(t) / t)
    b = xp.where(small, series_b, 2 * half * half)
    return _eye(W) + a * W + b * (W @ W)


# Degree: numerator coefficients of the diagonal Pade approximant of e^x, constant first.
_PADE = {
    q: tuple(
        math.factorial(2 * q - k)
        * math.factorial(q)
        / (math.factorial(2 * q) * math.factorial(k) * math.factorial(q - k))
        for k in range(q + 1)
    )
    for q in (3, 5, 7, 9, 13)
}
_DOUBLE_EPS = 2.3e-16


@lru_cache(maxsize=8)
def _pade_reach(eps: float) -> dict[int, float]:
    """Largest |x| for which degree q is exact to rounding.

    The leading error is (q!)^2 x^(2q+1) / ((2q)! (2q+1)!).
    """
    reach = {}
    for q in _PADE:
        scale = math.factorial(q) ** 2 / (math.factorial(2 * q) * math.factorial(2 * q + 1))
        reach[q] = (eps / scale) ** (1 / (2 * q + 1))
    return reach


def _exp_pade(W: Array, norm_bound: float | None) -> Array:
    xp = array_namespace(W)
    if norm_bound is None:
        norms = xp.sum(xp.abs(_constant(W)), axis=-2)
        # A broken item of the batch (NaN, inf) must not decide for the others.
        norms = xp.where(xp.isfinite(norms), norms, xp.zeros_like(norms))
        norm_bound = float(xp.max(norms)) if math.prod(W.shape) else 0.0
    reach = _pade_reach(max(_eps(W) / 4, _DOUBLE_EPS / 4))
    degree = next((q for q in _PADE if norm_bound <= reach[q]), 13)
    squarings = max(0, math.ceil(math.log2(norm_bound / reach[13]))) if norm_bound > 0 else 0
    X = W / 2**squarings
    b = _PADE[degree]
    eye = _eye(W)
    X2 = X @ X
    power, odd, even = eye, b[1] * eye, b[0] * eye
    for k in range(2, degree, 2):  # every degree in the table is odd
        power = X2 if k == 2 else power @ X2
        even = even + b[k] * power
        odd = odd + b[k + 1] * power
    odd = X @ odd
    R = xp.linalg.solve(even - odd, even + odd)
    for k in range(squarings):
        R = R @ R
        if k % 8 == 7:  # each squaring doubles the distance from the group
            R = polish(R)
    return polish(R) if squarings else R


def cayley(W: Array) -> Array:
    """R = (I - W/2)^{-1} (I + W/2): the Cayley map, orthogonal, e^W to second order.

    Shapes: `(..., d, d)` -> `(..., d, d)`.

    >>> import numpy as np
    >>> cayley(hat(np.array([2.0]))).round(12) + 0.0
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    eye = _eye(W)
    return array_namespace(W).linalg.solve(eye - W / 2, eye + W / 2)


def cayley_neumann(W: Array, terms: int = 3) -> Array:
    """R = sum_{k < terms} X^k (I + X) = (I - X^terms) cayley(W), X = W/2: a truncated Cayley map.

    Shapes: `(..., d, d)` -> `(..., d, d)`. Not orthogonal: with x the largest plane angle over 2,
    each application scales that plane by about 1 +- x^terms for an even number of terms, and by
    1 + x^(2 terms) / 2 for an odd one (whose first-order error is an angle), so that long
    products leave the group. On a full frame it costs O(terms d^3): matrix products where `cayley`
    has one LU, so more operations, and often less time.

    >>> import numpy as np
    >>> W = hat(np.array([0.2]))
    >>> bool(np.allclose(cayley_neumann(W, terms=2), (np.eye(2) - (W / 2) @ (W / 2)) @ cayley(W)))
    True
    """
    if terms < 1:
        raise ValueError(f"cayley_neumann: terms must be at least 1, got {terms}")
    eye = _eye(W)
    X = W / 2
    series = eye
    for _ in range(terms - 1):
        series = eye + X @ series
    return series @ (eye + X)


# -- logarithm ----------------------------------------------------------------------------------


def log(R: Array) -> Array:
    """W = log R, skew with angles in [-pi, pi]: the principal logarithm, exp(log(R)) = R.

    Shapes: R `(..., d, d)` -> `(..., d, d)`. At an angle of exactly pi the two logarithms are
    equally good and one of them is returned. A matrix off the group by rounding is read as its
    nearest rotation; reflections have no logarithm (use `project` first).

    >>> import numpy as np
    >>> log(np.array([[0.0, -1.0], [1.0, 0.0]])) / np.pi
    array([[ 0. , -0.5],
           [ 0.5,  0. ]])
    """
    d = R.shape[-1]
    if d == 1:
        return 0 * R
    if d == 2:
        angle = _angle2(R)
        return _matrix22(0 * angle, -angle, angle, 0 * angle)
    if d == 3:
        return hat(_rotation_vector(R))
    if not _differentiates(R):
        return _log_value(R)
    W0 = _log_value(R.detach())
    return _chord_steps(R, W0)


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
    joint diagonalisation. Planes near pi, where t / sin t has its pole, are treated apart: on them
    A is small and its unitary factor carries the orientation, t = pi - asin |sin t|.
    """
    xp = array_namespace(R)
    S = (R + _transpose(R)) / 2
    A = _skew(R)
    cosines, V = xp.linalg.eigh(S)
    B = _skew(_transpose(V) @ A @ V)
    near = _near_pi(cosines)
    # acos loses half the digits of a small t, but t / sin t depends on t^2 only.
    one = xp.ones_like(cosines)
    safe = xp.where(near, one, xp.clip(cosines, -0.999, 1.0))
    t = xp.acos(safe)
    tiny = t < 0.05
    u = xp.where(tiny, t * t, 0 * t)
    t = xp.where(tiny, one, t)
    g = xp.where(tiny, 1 + u / 6 * (1 + 7 * u / 60 * (1 + 31 * u / 294)), t / xp.sin(t))
    far = xp.where(near, 0 * one, one)
    W = B * (far[..., :, None] * far[..., None, :]) * (g[..., :, None] + g[..., None, :]) / 2
    some_near = bool(xp.any(near))
    if some_near:
        W = W + _log_near_pi(B, near)
    W = _skew(V @ W @ _transpose(V))
    # The choice of an orientation costs a few digits, which one Newton step brings back.
    return _chord_steps(R, W, steps=1) if some_near else W


def _near_pi(cosines: Array) -> Array:
    """Marks the leading planes as near pi, cut at the widest gap of cos t in [-.995, -.5].

    Cutting at a gap never parts the two vectors of one plane, nor planes of equal angle whose
    eigenvectors come out mixed. cosines ascend and come in pairs.
    """
    xp = array_namespace(cosines)
    d = cosines.shape[-1]
    inside = xp.clip(cosines, -0.995, -0.5)
    low = xp.full_like(inside[..., :1], -0.995)
    high = xp.full_like(inside[..., :1], -0.5)
    gaps = xp.concat([inside, high], axis=-1) - xp.concat([low, inside], axis=-1)
    even = gaps[..., 0 : 2 * (d // 2) + 1 : 2]
    count = 2 * xp.argmax(even, axis=-1)
    return xp.arange(d, device=device(cosines)) < count[..., None]


@lru_cache(maxsize=64)
def _generic_skew(d: int) -> np.ndarray[Any, Any]:
    """A fixed skew matrix to orient planes at exactly pi.

    Neighbouring vectors are paired, as eigh returns a plane; a part without special directions
    serves the case that several planes at pi come out mixed.
    """
    X = np.random.default_rng(d).standard_normal((d, d))
    T = (X - X.T) / (4 * np.linalg.norm(X - X.T, 2))
    for i in range(0, d - 1, 2):
        T[i, i + 1] += 1
        T[i + 1, i] -= 1
    return np.asarray(T)


def _log_near_pi(B: Array, near: Array) -> Array:
    xp = array_namespace(B)
    d = B.shape[-1]
    mark = xp.astype(near, B.dtype)
    block = mark[..., :, None] * mark[..., None, :]
    # At exactly pi A vanishes and any orientation will do, but one must be chosen.
    choice = 16 * d * _eps(B) * xp.asarray(_generic_skew(d), dtype=B.dtype, device=device(B))
    sines, U = xp.linalg.eigh(-1j * (block * (B + choice)))
    # Vectors outside the block have sine 0 and must stay out: weigh by how much lies inside.
    absolute = xp.abs(sines)
    angle = math.pi - xp.asin(xp.clip(absolute, 0.0, 1.0))
    inside = xp.sum(mark[..., :, None] * xp.real(U * xp.conj(U)), axis=-2) > 0.5
    signed = xp.where(inside, xp.where(sines < 0, -angle, angle), 0 * angle)
    return xp.real((U * (1j * signed)[..., None, :]) @ _transpose(xp.conj(U)))


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

    >>> import numpy as np
    >>> float(distance(np.eye(3), exp(hat(np.array([0.0, 0.3, 0.4])))).round(12))
    0.5
    """
    xp = array_namespace(R1, R2)
    W = log(_transpose(R1) @ R2)
    return _root(xp.sum(W * W, axis=(-2, -1)) / 2)


def polish(R: Array) -> Array:
    """R (3 I - R^T R) / 2: one Newton-Schulz step towards the nearest rotation.

    Shapes: `(..., d, d)` -> `(..., d, d)`. An orthogonality error e becomes about 3 e^2 / 4, so
    one step now and then holds a product of rotations at rounding level.

    >>> import numpy as np
    >>> R = polish(np.eye(2) * (1 + 1e-6))
    >>> bool(np.abs(R.T @ R - np.eye(2)).max() < 1e-11)
    True
    """
    return R @ (3 * _eye(R) - _transpose(R) @ R) / 2


def project(M: Array) -> Array:
    """argmin_R |R - M|_F over SO(d): U diag(1, .., 1, det(U V^T)) V^T from M = U D V^T.

    Shapes: `(..., d, d)` -> `(..., d, d)`.

    >>> import numpy as np
    >>> project(np.array([[2.0, 0.0], [0.0, 0.1]]))
    array([[1., 0.],
           [0., 1.]])
    """
    return _nearest(M, proper=True)


def _nearest(M: Array, *, proper: bool) -> Array:
    """Nearest orthogonal matrix; `proper` admits rotations only."""
    xp = array_namespace(M)
    fixed = _constant(M)
    U, singular, Vh = xp.linalg.svd(fixed, full_matrices=False)
    if proper:
        sign = xp.where(xp.linalg.det(U @ Vh) < 0, -1.0, 1.0)
        last = xp.astype(sign, M.dtype)[..., None]
        ones = xp.ones_like(singular[..., :-1])
        flip = xp.concat([ones, last], axis=-1)
        U = U * flip[..., None, :]
        singular = singular * flip
    R0 = U @ Vh
    if not _differentiates(M):
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
