"""Cells as matrices, and the divergence between two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

__all__ = ["cell_matrices", "jbld", "stein_costs"]

_FAST: dict[str, Any] = {"cache": True, "fastmath": True, "nogil": True, "error_model": "numpy"}
Maps = NDArray[np.float32]


@njit(**_FAST)
def _log_det_of(matrix):  # type: ignore[no-untyped-def]
    # the matrix is destroyed
    d, total = matrix.shape[0], 0.0
    for k in range(d):
        pivot = matrix[k, k]
        total += np.log(pivot)
        for i in range(k + 1, d):
            f = matrix[i, k] / pivot
            for j in range(k + 1, i + 1):
                matrix[i, j] -= f * matrix[j, k]
    return total


@njit(**_FAST)
def stein_costs(first, second):  # type: ignore[no-untyped-def]
    """log det B and :func:`jbld` (A, B) of pairs of matrices (n, d, d): (n,), (n,)."""
    n, d, _ = first.shape
    log_dets, costs = np.empty(n), np.empty(n)
    work = np.empty((d, d))
    for k in range(n):
        work[:] = second[k]
        log_dets[k] = _log_det_of(work)
        work[:] = first[k]
        own = _log_det_of(work)
        for i in range(d):
            for j in range(i + 1):
                work[i, j] = 0.5 * (first[k, i, j] + second[k, i, j])
        costs[k] = max(_log_det_of(work) - 0.5 * (own + log_dets[k]), 0.0)
    return log_dets, costs


@njit(**_FAST)
def _fill(maps, d):  # type: ignore[no-untyped-def]
    _, high, wide = maps.shape
    out = np.zeros((high * wide, d + 3, d + 3))
    for i in range(high):
        for j in range(wide):
            m = out[i * wide + j]
            m[0, 0] = m[1, 1] = m[2, 2] = 1.0
            q = 3 * d
            for a in range(d):
                for r in range(3):
                    m[r, 3 + a] = m[3 + a, r] = maps[r * d + a, i, j]
                for b in range(a + 1):
                    m[3 + a, 3 + b] = m[3 + b, 3 + a] = maps[q, i, j]
                    q += 1
    return out


def cell_matrices(maps: Maps, d: int) -> NDArray[np.float64]:
    """The SPD matrices mean(z z^T), z = (1, x, y, f), of all places of ``maps`` in reading order.

    Returns (h w, d+3, d+3).

    >>> from kgmrf.vision.cells import cell_moments
    >>> cell_matrices(cell_moments(np.zeros((1, 8, 16), np.float32), 8, 8, 0.01), 1).shape
    (2, 4, 4)
    """
    found: NDArray[np.float64] = _fill(maps, d)
    return found


def jbld(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """J(A, B) = log det((A + B)/2) - (log det A + log det B)/2, the Stein divergence.

    Shapes (..., d, d) -> (...). Zero only for A = B, unchanged under A, B -> G A G^T, G B G^T.

    >>> round(float(jbld(np.eye(2), 3 * np.eye(2))), 6)
    0.287682
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)

    def log_det(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return 2 * np.log(np.diagonal(np.linalg.cholesky(x), axis1=-2, axis2=-1)).sum(-1)

    return log_det((a + b) / 2) - (log_det(a) + log_det(b)) / 2
