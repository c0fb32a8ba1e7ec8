"""Turns by Exp(X) and back: the part of `adjoint` that works on whole matrices.

d Exp(X) = Exp(X) D with D = phi(-ad_X) dX and phi(z) = (e^z - 1) / z, so that X_bar = phi(ad_X)
D_bar for skew D_bar. Matrices are slots of one flat array w, each s x s and zero beyond d (see
`layout`); m is the same array as (slots, s, s).
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels.compile import jit_views as jit
from kgmrf.kernels.products import REACH, multiply, multiply_transposed
from kgmrf.kernels.products import exponential as series

# Matrices to work with; three are spare.
(X1, E1, ROOT1, X2, E2, ROOT2, X_BAR, C, SEEN, SEEN_BAR, HALF) = range(11)
TURNED, AFTER, FRAME_BAR, ACROSS, SPARE, N_MATRICES = 11, 12, 13, 14, 15, 18


@jit
def product(w: Any, a: int, b: int, c: int, d: int, s: int) -> None:
    """C = A B."""
    n = s * s
    multiply(w, a * n, b * n, c * n, a * n, 0.0, d, s)


@jit
def product_from_left(w: Any, a: int, b: int, c: int, d: int, s: int) -> None:
    """C = A^T B."""
    n = s * s
    multiply_transposed(w, a * n, b * n, c * n, d, s)


@jit
def product_to_right(w: Any, m: Any, a: int, b: int, c: int, d: int, s: int) -> None:
    """C = A B^T."""
    for i in range(d):
        for j in range(d):
            m[ACROSS, i, j] = m[b, j, i]
    product(w, a, ACROSS, c, d, s)


@jit
def exponential(w: Any, m: Any, x: int, e: int, root: int, d: int, s: int) -> int:
    """E = Exp(X) for skew X, by h halvings: X <- X / 2^h, ROOT = Exp(X / 2^h). Returns h."""
    size = math.sqrt(squares(m[x], d))
    halvings = 0
    while REACH < size < math.inf:
        size *= 0.5
        halvings += 1
    share = 0.5**halvings
    for i in range(d):
        for j in range(d):
            m[x, i, j] *= share
    n = s * s
    # Exp(X) - I ends in SPARE.
    series(w, x * n, SPARE * n, (SPARE + 1) * n, (SPARE + 2) * n, root * n, d, s)
    for i in range(d):
        for j in range(d):
            m[root, i, j] = m[SPARE, i, j]
        m[root, i, i] += 1.0
    m[e] = m[root]
    for _ in range(halvings):
        product(w, e, e, SPARE, d, s)
        m[e] = m[SPARE]
    return halvings


@jit
def squares(x: Any, d: int) -> float:
    """Sum of the squares of the plane angles: at least the largest of them."""
    total = 0.0
    for i in range(d):
        for j in range(i):
            total += x[i, j] * x[i, j]
    return total


@jit
def phi(w: Any, m: Any, x: int, root: int, halvings: int, bar: int, d: int, s: int) -> None:
    """BAR <- phi(ad_Y) BAR for skew BAR and Y = 2^h X, with X, ROOT and h of `exponential`."""
    term, work, e = SPARE, SPARE + 1, SPARE + 2
    size = math.sqrt(squares(m[x], d))
    m[term] = m[bar]
    k, left = 1, 1.0
    while left > 1e-17 and k < 20:  # |ad_x| <= 2 |x|
        k += 1
        left *= 2.0 * size / k
        product(w, x, term, work, d, s)
        for i in range(d):
            for j in range(d):
                v = (m[work, i, j] - m[work, j, i]) / k
                m[term, i, j] = v
                m[bar, i, j] += v
    if halvings == 0:
        return
    m[e] = m[root]
    for _ in range(halvings):  # phi(2 z) = phi(z) (1 + e^z) / 2
        product(w, e, bar, term, d, s)
        product_to_right(w, m, term, e, work, d, s)
        for i in range(d):
            for j in range(d):
                m[bar, i, j] = 0.5 * (m[bar, i, j] + m[work, i, j])
        product(w, e, e, work, d, s)
        m[e] = m[work]


@jit
def unturn(
    w: Any, m: Any, after: int, bar: int, x: int, e: int, root: int, halvings: int, d: int, s: int
) -> None:
    """Back through AFTER = before Exp(X): X_BAR, and BAR <- BAR Exp(X)^T."""
    product_from_left(w, after, bar, SPARE, d, s)
    for i in range(d):
        for j in range(d):
            m[X_BAR, i, j] = 0.5 * (m[SPARE, i, j] - m[SPARE, j, i])
    phi(w, m, x, root, halvings, X_BAR, d, s)
    product_to_right(w, m, bar, e, SPARE, d, s)
    m[bar] = m[SPARE]


@jit
def unpolish(w: Any, m: Any, frame: int, bar: int, d: int, s: int) -> None:
    """Back through one Newton-Schulz step, at a frame that is orthonormal to rounding."""
    product_from_left(w, frame, bar, SPARE, d, s)
    for i in range(d):
        for j in range(d):
            m[SPARE + 1, i, j] = 0.5 * (m[SPARE, i, j] + m[SPARE, j, i])
    product(w, frame, SPARE + 1, SPARE, d, s)
    for i in range(d):
        for j in range(d):
            m[bar, i, j] -= m[SPARE, i, j]
