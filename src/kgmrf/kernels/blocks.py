"""Eight tracks side by side: products and checks, the ground of :mod:`kgmrf.kernels.law`.

The eight lanes of :mod:`kgmrf.kernels.lanes` are eight tracks. The work space ``w`` begins with
their rows (:mod:`kgmrf.kernels.layout`; P is there for every law): number k of a row is the eight
numbers from 8 k. Then come matrices and vectors to work with; the number (i, j) of a matrix is the
eight numbers from ``matrix + 8 (i d + j)``. ``lane`` holds one number per track, eight to a name.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf._check import LARGEST, SMALLEST
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, div, fma, load, spread, store, strip
from kgmrf.kernels.layout import N_CLOCKS

# Where the parts of a row begin, eight times: the frame right behind the clocks, then vectors
# (spectrum, its variance) and planes (velocity, P).
FRAME = 8 * N_CLOCKS
SPECTRUM, SPECTRUM_VAR = range(2)
VELOCITY, P11, P12, P22 = range(4)
# Matrices and vectors to work with.
SEEN, TURNING, SQUARE, B, C, E = range(6)
LEVEL, POWER = range(2)

# Numbers of the lanes.
THERE, MOVES, STARTS, TURN, DECAY, ANGLE, CROSS, RATE, DT = (8 * k for k in range(9))
STRENGTH, SIZE, FINE, LOGS, PRODUCT, RATIOS, SQUARES, DUE, NORM = (8 * k for k in range(9, 18))
GAIN, HALVINGS = 8 * 18, 8 * 19
N_LANES = 8 * 20


@jit
def at_vector(k: int, d: int) -> int:
    """Where the k-th vector of a row begins."""
    return FRAME + 8 * (d * d + k * d)


@jit
def at_planes(k: int, d: int) -> int:
    """Where the k-th set of planes begins."""
    return FRAME + 8 * (d * d + 2 * d + k * (d * (d - 1) // 2))


@jit
def at_matrix(k: int, d: int) -> int:
    """Where the k-th matrix to work with begins; the pool is just before the first."""
    return at_planes(4, d) + 8 * (d * (d + 1) // 2 + k * d * d)


@jit
def at_work(k: int, d: int) -> int:
    """Where the k-th vector to work with begins."""
    return at_matrix(6, d) + 8 * k * d


# ----------------------------------------------------------------------- products


@jit
def multiply(
    w: Any, a: int, turned: bool, b: int, c: int, plus: int, share: float, mirror: bool, d: int
) -> None:
    """C = share PLUS + A B (A^T B if turned); mirror: the result is symmetric, do half of it."""
    along, across = (8 * d, 8) if turned else (8, 8 * d)
    for i in range(d):
        left = a + across * i
        j = i if mirror else 0
        while j < d:
            at = 8 * (i * d + j)
            right, out, old = b + 8 * j, c + at, plus + at
            if d - j >= 8:  # sums of so many columns stay in registers
                strip(w, left, along, right, 8 * d, out, old, share, d, 8)
                j += 8
            elif d - j >= 4:
                strip(w, left, along, right, 8 * d, out, old, share, d, 4)
                j += 4
            elif d - j >= 2:
                strip(w, left, along, right, 8 * d, out, old, share, d, 2)
                j += 2
            else:
                strip(w, left, along, right, 8 * d, out, old, share, d, 1)
                j += 1
        if mirror:
            for k in range(i + 1, d):
                store(w, c + 8 * (k * d + i), load(w, c + 8 * (i * d + k)))


@jit
def copy(w: Any, a: int, b: int, d: int) -> None:
    """B = A."""
    for at in range(0, 8 * d * d, 8):
        store(w, b + at, load(w, a + at))


@jit
def polish(w: Any, q: int, d: int) -> None:
    """C <- Q + Q (I - Q^T Q) / 2."""
    g = at_matrix(SQUARE, d)
    multiply(w, q, True, q, g, q, 0.0, True, d)
    for at in range(0, 8 * d * d, 8):
        store(w, g + at, spread(-0.5) * load(w, g + at))
    for i in range(d):
        at = g + 8 * (i * d + i)
        store(w, at, load(w, at) + spread(0.5))
    multiply(w, q, False, g, at_matrix(C, d), q, 1.0, False, d)


# ----------------------------------------------------------------------- at the door


@jit
def check_covariances(w: Any, lane: Any, d: int, tolerance: float) -> None:
    """FINE: 1 where SEEN is a covariance, else 0; symmetrises it."""
    seen, work = at_matrix(SEEN, d), at_matrix(B, d)
    zero, one = spread(0.0), spread(1.0)
    largest, skewness, fault = zero, zero, zero
    for i in range(d):
        for j in range(i, d):
            x, y = load(w, seen + 8 * (i * d + j)), load(w, seen + 8 * (j * d + i))
            fault = fma(x, zero, fma(y, zero, fault))
            difference = x - y
            largest = above(x, largest, x, largest)
            largest = above(zero - x, largest, zero - x, largest)
            largest = above(y, largest, y, largest)
            largest = above(zero - y, largest, zero - y, largest)
            skewness = above(difference, skewness, difference, skewness)
            skewness = above(zero - difference, skewness, zero - difference, skewness)
            mean = spread(0.5) * (x + y)
            store(w, seen + 8 * (i * d + j), mean)
            store(w, seen + 8 * (j * d + i), mean)
    if tolerance < 0.0:
        return
    margin = spread(tolerance) * largest
    fine = above(one, fault, one, zero)  # false for NaN
    fine = above(spread(SMALLEST), largest, zero, fine)
    fine = above(largest, spread(LARGEST), zero, fine)
    fine = above(skewness, margin, zero, fine)
    for i in range(d):
        for j in range(i, d):
            v = load(w, seen + 8 * (i * d + j))
            store(w, work + 8 * (i * d + j), v + margin if i == j else v)
    for k in range(d):
        pivot = load(w, work + 8 * (k * d + k))
        fine = above(pivot, zero, fine, zero)
        inverse = div(spread(-1.0), above(pivot, zero, pivot, one))
        for i in range(k + 1, d):
            factor = inverse * load(w, work + 8 * (k * d + i))
            for j in range(i, d):
                at = work + 8 * (i * d + j)
                store(w, at, fma(factor, load(w, work + 8 * (k * d + j)), load(w, at)))
    store(lane, FINE, fine)


@jit
def check_rotations(w: Any, lane: Any, d: int, tolerance: float) -> None:
    """FINE: 1 where SEEN is a rotation, else 0; projects it."""
    seen, gram = at_matrix(SEEN, d), at_matrix(SQUARE, d)
    zero, one = spread(0.0), spread(1.0)
    if tolerance >= 0.0:
        multiply(w, seen, True, seen, gram, seen, 0.0, True, d)
        defect, fault = zero, zero
        for i in range(d):
            for j in range(d):
                v = load(w, gram + 8 * (i * d + j))
                if i == j:
                    v = v - one
                fault = fma(v, zero, fault)
                defect = above(v, defect, v, defect)
                defect = above(zero - v, defect, zero - v, defect)
        fine = above(one, fault, one, zero)
        fine = above(defect, spread(tolerance), zero, fine)
        r = seen
        if d == 2:
            sign = load(w, r) * load(w, r + 24) - load(w, r + 8) * load(w, r + 16)
        else:
            sign = (
                load(w, r) * (load(w, r + 32) * load(w, r + 64) - load(w, r + 40) * load(w, r + 56))
                - load(w, r + 8)
                * (load(w, r + 24) * load(w, r + 64) - load(w, r + 40) * load(w, r + 48))
                + load(w, r + 16)
                * (load(w, r + 24) * load(w, r + 56) - load(w, r + 32) * load(w, r + 48))
            )
        fine = above(zero, sign, zero, fine)
        store(lane, FINE, fine)
    for _ in range(2):
        polish(w, seen, d)
        copy(w, at_matrix(C, d), seen, d)


@jit
def take(seen: Any, line: int, w: Any, k: int, d: int) -> None:
    """Observation ``line`` of ``(N, d, d)`` into lane k of SEEN; the identity for line -1."""
    at = at_matrix(SEEN, d) + k
    for i in range(d):
        for j in range(d):
            w[at] = seen[line, i, j] if line >= 0 else (1.0 if i == j else 0.0)
            at += 8


@jit
def judged(seen: Any, line: int, w: Any, lane: Any, k: int, d: int, trusted: bool) -> int:
    """OBSERVED, or MISSING (all NaN), or INVALID; then lane k of SEEN becomes the identity."""
    if lane[FINE + k] > 0.5 and not (trusted and math.isnan(seen[line, 0, 0])):
        return OBSERVED
    found = MISSING
    for i in range(d):
        for j in range(d):
            if not math.isnan(seen[line, i, j]):
                found = INVALID
    take(seen, -1, w, k, d)
    return found
