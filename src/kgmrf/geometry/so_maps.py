"""Coordinates of so(d) and its maps into SO(d): see `kgmrf.geometry.so`, where they are used."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from kgmrf._types import Array

__all__ = ["cayley", "cayley_neumann", "exp", "hat", "polish", "vee"]


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


def _constant(X: Array) -> Array:
    return X.detach() if hasattr(X, "detach") else X


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

    Parameters
    ----------
    v : array
        Coordinates ``(..., d (d-1)/2)``.

    Examples
    --------
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

    Parameters
    ----------
    W : array
        Skew matrices ``(..., d, d)``.

    Examples
    --------
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

    Parameters
    ----------
    W : array
        Skew matrices ``(..., d, d)``.
    norm_bound : float, default None
        A promise that no absolute column sum of W is larger; None looks at the data.

    Examples
    --------
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
        angle = W[..., 1, 0, None]
        return xp.cos(angle)[..., None] * _eye(W) + hat(xp.sin(angle))
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


_DEGREES = (3, 5, 7, 9, 13)


@lru_cache(maxsize=16)
def _reach(q: int, eps: float) -> float:
    """Largest |x| for which degree q is exact: the error is (q!)^2 x^(2q+1) / ((2q)! (2q+1)!)."""
    return float((eps * math.comb(2 * q, q) * math.factorial(2 * q + 1)) ** (1 / (2 * q + 1)))


def _exp_pade(W: Array, norm_bound: float | None) -> Array:
    xp = array_namespace(W)
    if norm_bound is None:
        norms = xp.sum(xp.abs(_constant(W)), axis=-2)
        # A broken item of the batch (NaN, inf) must not decide for the others.
        norms = xp.where(xp.isfinite(norms), norms, xp.zeros_like(norms))
        norm_bound = float(xp.max(norms)) if math.prod(W.shape) else 0.0
    eps = _eps(W) / 4
    degree = next((q for q in _DEGREES if norm_bound <= _reach(q, eps)), _DEGREES[-1])
    excess = norm_bound / _reach(_DEGREES[-1], eps)
    squarings = max(0, math.ceil(math.log2(excess))) if excess > 0 else 0
    X = W / 2**squarings
    b = [math.comb(degree, k) / math.perm(2 * degree, k) for k in range(degree + 1)]
    eye = _eye(W)
    X2 = X @ X
    power, odd, even = eye, b[1] * eye, b[0] * eye
    for k in range(2, degree, 2):  # every degree is odd
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

    Parameters
    ----------
    W : array
        Skew matrices ``(..., d, d)``.

    Examples
    --------
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

    Parameters
    ----------
    W : array
        Skew matrices ``(..., d, d)``.
    terms : int, default 3
        Terms of the series; the paper has three.

    Examples
    --------
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


def polish(R: Array) -> Array:
    """R (3 I - R^T R) / 2: one Newton-Schulz step towards the nearest rotation.

    Shapes: `(..., d, d)` -> `(..., d, d)`. An orthogonality error e becomes about 3 e^2 / 4, so
    one step now and then holds a product of rotations at rounding level.

    Parameters
    ----------
    R : array
        Matrices ``(..., d, d)`` that are rotations up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> R = polish(np.eye(2) * (1 + 1e-6))
    >>> bool(np.abs(R.T @ R - np.eye(2)).max() < 1e-11)
    True
    """
    return R @ (3 * _eye(R) - _transpose(R) @ R) / 2
