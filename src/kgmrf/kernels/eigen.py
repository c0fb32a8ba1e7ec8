"""Eigenvalues and eigenframe of a symmetric matrix, largest first."""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import fma, load, spread, store


@jit
def sort_rows(w: Any, a: int, v: int, d: int, s: int) -> float:
    """Diagonal of A descending, rows of V with it; returns the sign of the permutation."""
    sign = 1.0
    for i in range(d):
        best = i
        for k in range(i + 1, d):
            if w[a + k * s + k] > w[a + best * s + best]:
                best = k
        if best != i:
            w[a + i * s + i], w[a + best * s + best] = w[a + best * s + best], w[a + i * s + i]
            for k in range(0, s, 8):
                x, y = load(w, v + i * s + k), load(w, v + best * s + k)
                store(w, v + i * s + k, y)
                store(w, v + best * s + k, x)
            sign = -sign
    return sign


@jit
def jacobi(w: Any, a: int, v: int, d: int, s: int) -> None:
    """A <- J A J^T diagonal, V <- J V, by cyclic plane rotations of whole rows.

    Columns of A follow by symmetry; the rows of V end as the eigenvectors.
    """
    for _ in range(40):
        off, on = 0.0, 0.0
        for i in range(d):
            on += w[a + i * s + i] ** 2
            for j in range(i + 1, d):
                off += w[a + i * s + j] ** 2
        if off <= 1e-36 * on:
            return
        least = 1e-36 * on / (d * d)
        for p in range(d - 1):
            for q in range(p + 1, d):
                ap, aq, vp, vq = a + p * s, a + q * s, v + p * s, v + q * s
                apq = w[ap + q]
                if apq * apq <= least:
                    continue
                app, aqq = w[ap + p], w[aq + q]
                half = 0.5 * (aqq - app) / apq
                t = 1.0 / (abs(half) + math.sqrt(1.0 + half * half))
                if half < 0.0:
                    t = -t
                cosine = 1.0 / math.sqrt(1.0 + t * t)
                c, sn = spread(cosine), spread(t * cosine)
                for k in range(0, s, 8):
                    x, y = load(w, ap + k), load(w, aq + k)
                    store(w, ap + k, c * x - sn * y)
                    store(w, aq + k, fma(sn, x, c * y))
                    x, y = load(w, vp + k), load(w, vq + k)
                    store(w, vp + k, c * x - sn * y)
                    store(w, vq + k, fma(sn, x, c * y))
                for k in range(d):
                    w[a + k * s + p] = w[ap + k]
                    w[a + k * s + q] = w[aq + k]
                w[ap + p], w[aq + q] = app - t * apq, aqq + t * apq
                w[ap + q], w[aq + p] = 0.0, 0.0
