"""Eigenvalues and eigenframe of a symmetric matrix on a desk, largest first."""

from __future__ import annotations

from typing import Any

from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import load, store


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
