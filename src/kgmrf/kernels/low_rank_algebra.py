"""Algebra of the compiled loop for many channels: long rows, and small symmetric matrices.

Rows over channels have a length that is a multiple of eight; small matrices have a stride p that is
one, and are filled up with zeros.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines.low_rank_step import LOST
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import fma, load, spread, store, total


@jit
def dot(w: Any, a: int, v: Any, b: int, n: int) -> float:
    """sum_i w_(a + i) v_(b + i) for n a multiple of eight."""
    acc = spread(0.0)
    for i in range(0, n, 8):
        acc = fma(load(w, a + i), load(v, b + i), acc)
    return total(acc)


@jit
def add(w: Any, a: int, share: float, v: Any, b: int, n: int) -> None:
    """w_a += share v_b for n numbers, a multiple of eight."""
    part = spread(share)
    for i in range(0, n, 8):
        store(w, a + i, fma(part, load(v, b + i), load(w, a + i)))


@jit
def products(w: Any, a: int, v: Any, b: int, c: int, n: int, p: int, s: int) -> None:
    """C = A B^T ``(n, n)``, stride p, in v, symmetric, of rows of length s; four at a time."""
    for i in range(0, n, 2):
        a0 = a + i * s
        a1 = a0 + s if i + 1 < n else a0
        for j in range(0, i + 1, 2):
            b0 = b + j * s
            b1 = b0 + s if j + 1 < n else b0
            c00, c01, c10, c11 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
            for k in range(0, s, 8):
                x0, x1, y0, y1 = load(w, a0 + k), load(w, a1 + k), load(v, b0 + k), load(v, b1 + k)
                c00, c01 = fma(x0, y0, c00), fma(x0, y1, c01)
                c10, c11 = fma(x1, y0, c10), fma(x1, y1, c11)
            put(v, c, i, j, p, total(c00))
            if j + 1 < n:
                put(v, c, i, j + 1, p, total(c01))
            if i + 1 < n:
                put(v, c, i + 1, j, p, total(c10))
                if j + 1 < n:
                    put(v, c, i + 1, j + 1, p, total(c11))


@jit
def put(v: Any, c: int, i: int, j: int, p: int, x: float) -> None:
    """C_ij = C_ji = x."""
    v[c + i * p + j] = x
    v[c + j * p + i] = x


@jit
def cholesky(v: Any, a: int, n: int, p: int) -> float:
    """A = L L^T in place, zeros above; returns log |A|."""
    logs, product = 0.0, 1.0
    for i in range(n):
        row = a + i * p
        whole = v[row + i]
        for j in range(i + 1):
            other, most = a + j * p, 8 * (j // 8)
            acc = v[row + j]
            if most > 0:
                acc -= dot(v, row, v, other, most)
            for k in range(most, j):
                acc -= v[row + k] * v[other + k]
            if i == j:
                # Rounding may leave nothing of a pivot.
                acc = max(acc, max(1e-14 * whole, 1e-300))
                product *= acc
                if not 1e-100 < product < 1e100:
                    logs += math.log(product)
                    product = 1.0
                v[row + i] = math.sqrt(acc)
            else:
                v[row + j] = acc / v[other + j]
        for j in range(i + 1, n):
            v[row + j] = 0.0
    return logs + math.log(product)


@jit
def invert(v: Any, a: int, b: int, n: int, p: int) -> None:
    """B = L^-1 of a lower L, row by row."""
    for i in range(n):
        row = b + i * p
        end = 8 * (i // 8 + 1)
        for j in range(0, p, 8):
            store(v, row + j, spread(0.0))
        for k in range(i):
            add(v, row, -v[a + i * p + k], v, b + k * p, end)
        inverse = 1.0 / v[a + i * p + i]
        for j in range(i):
            v[row + j] *= inverse
        v[row + i] = inverse


@jit
def apply(v: Any, a: int, b: int, out: int, n: int, p: int) -> None:
    """out = A^T A b, for rows of length p that are filled up with zeros, as is b."""
    for j in range(0, p, 8):
        store(v, out + j, spread(0.0))
    for i in range(n):
        add(v, out, dot(v, a + i * p, v, b, p), v, a + i * p, p)


@jit
def project(w: Any, axes: int, j: int, s: int) -> float:
    """Axis j without its part along those before it; returns its squared length."""
    a = axes + j * s
    for k in range(j):
        add(w, a, -dot(w, axes + k * s, w, a, s), w, axes + k * s, s)
    return dot(w, a, w, a, s)


@jit
def polish(w: Any, axes: int, r: int, s: int, level: int) -> None:
    """Gram-Schmidt, in place; an axis of which nothing is left becomes that of a channel."""
    for j in range(r):
        a = axes + j * s
        whole = dot(w, a, w, a, s)
        length = project(w, axes, j, s)
        if not length > LOST * whole:
            channel = 0
            while channel < s and not 2.0 * r * length >= 1.0:
                if w[level + channel] > 0.0:
                    for i in range(s):
                        w[a + i] = 1.0 if i == channel else 0.0
                    length = project(w, axes, j, s)
                channel += 1
        if length > 0.0:
            add(w, a, 1.0 / math.sqrt(length) - 1.0, w, a, s)


@jit
def spread_square(w: Any, a: int, v: Any, b: int, share: float, n: int, p: int) -> None:
    """B = A + share I, from stride n to stride p, filled up with zeros to p rows."""
    for j in range(0, p * p, 8):
        store(v, b + j, spread(0.0))
    for i in range(n):
        for j in range(n):
            v[b + i * p + j] = w[a + i * n + j]
        v[b + i * p + i] += share
