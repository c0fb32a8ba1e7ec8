"""Symmetric positive definite matrices SPD(d): functions, geodesics and distances.

Arrays of shape `(..., d, d)`, numpy or torch, float32 or float64. First derivatives of the matrix
functions are exact and finite at repeated eigenvalues too (divided differences instead of the
derivative of an eigendecomposition); second derivatives are not carried.
"""

from __future__ import annotations

from collections.abc import Callable

from array_api_compat import array_namespace

from kgmrf._types import Array
from kgmrf.geometry.so import _root
from kgmrf.geometry.so_maps import _constant, _transpose

__all__ = ["distance", "exp", "geodesic", "log", "power", "sqrt"]


def _symmetric(X: Array) -> Array:
    return (X + _transpose(X)) / 2


def _spectral(
    M: Array, function: Callable[[Array], Array], slope: Callable[[Array, Array], Array]
) -> Array:
    """f(M) = V f(lam) V^T; `slope(a, b)` = (f(a) - f(b)) / (a - b), read as f'(a) at a = b."""
    xp = array_namespace(M)
    M = _symmetric(M)
    constant = _constant(M)
    values, V = xp.linalg.eigh(constant)
    Vt = _transpose(V)
    value = _symmetric((V * function(values)[..., None, :]) @ Vt)
    if constant is M:
        return value
    # Daleckii-Krein: M - constant is zero, but carries the derivative.
    table = slope(values[..., :, None], values[..., None, :])
    return value + V @ (table * (Vt @ (M - constant) @ V)) @ Vt


def _sinhc(h: Array) -> Array:
    """sinh(h) / h, 1 at 0."""
    xp = array_namespace(h)
    small = xp.abs(h) < 0.05
    safe = xp.where(small, xp.ones_like(h), h)
    u = xp.where(small, h * h, xp.zeros_like(h))
    return xp.where(small, 1 + u / 6 * (1 + u / 20 * (1 + u / 42)), xp.sinh(safe) / safe)


def log(M: Array) -> Array:
    """log M = V diag(log lam) V^T.

    Shapes: SPD `(..., d, d)` -> symmetric `(..., d, d)`. Singular matrices have no logarithm.

    Parameters
    ----------
    M : array
        Positive definite ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> log(np.diag([1.0, np.e]))
    array([[0., 0.],
           [0., 1.]])
    """
    xp = array_namespace(M)

    def slope(a: Array, b: Array) -> Array:
        half = (xp.log(a) - xp.log(b)) / 2
        return 1 / (xp.sqrt(a) * xp.sqrt(b) * _sinhc(half))

    return _spectral(M, xp.log, slope)


def exp(X: Array) -> Array:
    """e^X = V diag(e^x) V^T.

    Shapes: symmetric `(..., d, d)` -> SPD `(..., d, d)`.

    Parameters
    ----------
    X : array
        Symmetric ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> exp(np.zeros((2, 2)))
    array([[1., 0.],
           [0., 1.]])
    """
    xp = array_namespace(X)

    def slope(a: Array, b: Array) -> Array:
        return xp.exp((a + b) / 2) * _sinhc((a - b) / 2)

    return _spectral(X, xp.exp, slope)


def power(M: Array, exponent: float) -> Array:
    """M^p = V diag(lam^p) V^T.

    Shapes: SPD `(..., d, d)` -> `(..., d, d)`. For p >= 0 also positive semidefinite M, with
    eigenvalues below zero by rounding read as zero.

    Parameters
    ----------
    M : array
        Positive definite ``(..., d, d)``; semidefinite for an exponent of 0 or more.
    exponent : float
        p.

    Examples
    --------
    >>> import numpy as np
    >>> power(np.diag([4.0, 9.0]), -0.5).round(6)
    array([[0.5     , 0.      ],
           [0.      , 0.333333]])
    """
    xp = array_namespace(M)
    tiny = float(xp.finfo(M.dtype).smallest_normal)

    def function(values: Array) -> Array:
        return (xp.clip(values, 0.0, None) if exponent >= 0 else values) ** exponent

    def slope(a: Array, b: Array) -> Array:
        log_a, log_b = xp.log(xp.clip(a, tiny, None)), xp.log(xp.clip(b, tiny, None))
        half = (log_a - log_b) / 2
        ratio = _sinhc(exponent * half) / _sinhc(half)
        return exponent * xp.exp((exponent - 1) * (log_a + log_b) / 2) * ratio

    return _spectral(M, function, slope)


def sqrt(M: Array) -> Array:
    """M^{1/2} = V diag(sqrt lam) V^T.

    Shapes: positive semidefinite `(..., d, d)` -> `(..., d, d)`.

    Parameters
    ----------
    M : array
        Positive semidefinite ``(..., d, d)``.

    Examples
    --------
    >>> import numpy as np
    >>> sqrt(np.diag([4.0, 9.0]))
    array([[2., 0.],
           [0., 3.]])
    """
    return power(M, 0.5)


def _relative(A: Array, B: Array) -> tuple[Array, Array]:
    """(L, L^{-1} B L^{-T}) with A = L L^T: B seen from A."""
    xp = array_namespace(A, B)
    L = xp.linalg.cholesky(_symmetric(A))
    X = xp.linalg.solve(L, _symmetric(B))
    return L, _symmetric(xp.linalg.solve(L, _transpose(X)))


def geodesic(A: Array, B: Array, t: float | Array) -> Array:
    """A^{1/2} (A^{-1/2} B A^{-1/2})^t A^{1/2}: the curve of constant speed from A (t = 0) to B.

    That of the log-Euclidean metric is ``exp((1 - t) * log(A) + t * log(B))``.

    Shapes: A, B `(..., d, d)`, t a number or `(...)` -> `(..., d, d)`.

    Parameters
    ----------
    A, B : array
        Positive definite ``(..., d, d)``: the ends.
    t : float or array
        Place on the curve, a number or ``(...)``; 0 is A, 1 is B.

    References
    ----------
    Pennec, Fillard and Ayache (2006), A Riemannian framework for tensor computing, IJCV 66(1).

    Examples
    --------
    >>> import numpy as np
    >>> geodesic(np.eye(2), 4 * np.eye(2), 0.5)
    array([[2., 0.],
           [0., 2.]])
    """
    if getattr(t, "shape", ()):
        t = t[..., None, None]  # type: ignore[index]
    L, relative = _relative(A, B)
    return _symmetric(L @ exp(t * log(relative)) @ _transpose(L))


def distance(A: Array, B: Array) -> Array:
    """(sum log^2 mu)^{1/2}, mu the eigenvalues of A^{-1} B: affine-invariant.

    Does not cancel for A near B; the derivative at A = B is 0.

    Shapes: `(..., d, d)`, `(..., d, d)` -> `(...)`.

    Parameters
    ----------
    A, B : array
        Positive definite ``(..., d, d)``.

    References
    ----------
    Pennec, Fillard and Ayache (2006), A Riemannian framework for tensor computing, IJCV 66(1).

    Examples
    --------
    >>> import numpy as np
    >>> float(distance(np.eye(2), np.diag([np.exp(3.0), np.exp(4.0)])).round(12))
    5.0
    """
    xp = array_namespace(A, B)
    _, relative = _relative(A, B)
    x = xp.log(xp.linalg.eigvalsh(relative))
    return _root(xp.sum(x * x, axis=-1))
