"""Rotations as unit quaternions (w, x, y, z) inside rows of numbers, for compiled loops.

A quaternion that has been normalised is a rotation, whatever was added to it: nothing drifts off
the group. Everything is written to arrays of the caller: a hot loop allocates nothing.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels.check import INVALID, MISSING, OBSERVED
from kgmrf.kernels.compile import jit


@jit
def turn(x: Any, q: int, a: float, b: float, c: float) -> None:
    """x[q : q + 4] <- x[q : q + 4] Exp(a, b, c), normalised."""
    t2 = a * a + b * b + c * c
    f = 0.5 - t2 / 48.0
    d = 1.0 - t2 / 8.0
    if t2 > 1e-6:
        t = math.sqrt(t2)
        f = math.sin(0.5 * t) / t
        d = math.cos(0.5 * t)
    a *= f
    b *= f
    c *= f
    w = x[q] * d - x[q + 1] * a - x[q + 2] * b - x[q + 3] * c
    i = x[q] * a + x[q + 1] * d + x[q + 2] * c - x[q + 3] * b
    j = x[q] * b - x[q + 1] * c + x[q + 2] * d + x[q + 3] * a
    k = x[q] * c + x[q + 1] * b - x[q + 2] * a + x[q + 3] * d
    f = 1.0 / math.sqrt(w * w + i * i + j * j + k * k)
    x[q] = f * w
    x[q + 1] = f * i
    x[q + 2] = f * j
    x[q + 3] = f * k


@jit
def logarithm(w: float, i: float, j: float, k: float) -> Any:
    """The rotation vector of a quaternion of any length, principal, and its angle."""
    n = math.sqrt(i * i + j * j + k * k)
    t = 2.0 * math.atan2(n, abs(w))
    f = t / n if n > 1e-150 else 2.0 / abs(w)
    if w < 0.0:
        f = -f
    return f * i, f * j, f * k, t


@jit
def between(x: Any, p: int, y: Any, q: int, out: Any, at: int) -> float:
    """out[at : at + 3] = Log(P^T Q), principal, P = x[p : p + 4], Q = y[q : q + 4]; its length."""
    w = x[p] * y[q] + x[p + 1] * y[q + 1] + x[p + 2] * y[q + 2] + x[p + 3] * y[q + 3]
    i = x[p] * y[q + 1] - x[p + 1] * y[q] - x[p + 2] * y[q + 3] + x[p + 3] * y[q + 2]
    j = x[p] * y[q + 2] + x[p + 1] * y[q + 3] - x[p + 2] * y[q] - x[p + 3] * y[q + 1]
    k = x[p] * y[q + 3] - x[p + 1] * y[q + 2] + x[p + 2] * y[q + 1] - x[p + 3] * y[q]
    out[at], out[at + 1], out[at + 2], length = logarithm(w, i, j, k)
    return length


@jit
def turning(a: float, b: float, c: float, out: Any) -> None:
    """out[:9] = the matrix Exp(a, b, c), out[9:18] = its right Jacobian Jr(a, b, c).

    Exp = I + s N + b N^2, Jr = I - b N + c N^2, N = hat(a, b, c).
    """
    t2 = a * a + b * b + c * c
    s = 1.0 - t2 / 6.0
    h = 0.5 - t2 / 24.0
    g = 1.0 / 6.0 - t2 / 120.0
    if t2 > 1e-5:
        t = math.sqrt(t2)
        s = math.sin(t) / t
        h = (1.0 - math.cos(t)) / t2
        g = (1.0 - s) / t2
    out[0] = a
    out[1] = b
    out[2] = c
    for i in range(3):
        for j in range(3):
            same = out[i] * out[j]
            if i == j:
                same -= t2
            skew = 0.0
            if j == (i + 1) % 3:
                skew = -out[3 - i - j]
            elif i != j:
                skew = out[3 - i - j]
            one = 1.0 if i == j else 0.0
            out[18 + 3 * i + j] = one + s * skew + h * same
            out[9 + 3 * i + j] = one - h * skew + g * same
    for i in range(9):
        out[i] = out[18 + i]


@jit
def quaternion(m: Any, r: int, s: int) -> Any:
    """(w, x, y, z) of the rotation at m[r], rows s apart; not normalised.

    The largest of them picks the row of 4 q q^T, so that nothing cancels.
    """
    r00, r01, r02 = m[r], m[r + 1], m[r + 2]
    r10, r11, r12 = m[r + s], m[r + s + 1], m[r + s + 2]
    r20, r21, r22 = m[r + 2 * s], m[r + 2 * s + 1], m[r + 2 * s + 2]
    trace = r00 + r11 + r22
    ww, xx, yy, zz = 1 + trace, 1 + 2 * r00 - trace, 1 + 2 * r11 - trace, 1 + 2 * r22 - trace
    if ww >= xx and ww >= yy and ww >= zz:
        return ww, r21 - r12, r02 - r20, r10 - r01
    if xx >= yy and xx >= zz:
        return r21 - r12, xx, r01 + r10, r02 + r20
    if yy >= zz:
        return r02 - r20, r01 + r10, yy, r12 + r21
    return r10 - r01, r02 + r20, r12 + r21, zz


@jit
def inspect(m: Any, r: int, d: int, tolerance: float) -> int:
    """OBSERVED, MISSING if all is NaN, INVALID if the matrix at m[r], d = 2 or 3, is no rotation.

    tolerance: how far R^T R may be from I; below 0 the matrix is trusted.
    """
    missing = True
    for k in range(r, r + d * d):
        missing = missing and math.isnan(m[k])
    if missing:
        return MISSING
    if tolerance < 0.0:
        return OBSERVED
    for i in range(d):
        for j in range(i + 1):
            dot = 0.0 if i != j else -1.0
            for k in range(r, r + d * d, d):
                dot += m[k + i] * m[k + j]
            if not abs(dot) <= tolerance:  # NaN too
                return INVALID
    if d == 2:
        return INVALID if m[r] * m[r + 3] < m[r + 1] * m[r + 2] else OBSERVED
    det = 0.0
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        det += m[r + i] * (m[r + 3 + j] * m[r + 6 + k] - m[r + 3 + k] * m[r + 6 + j])
    return INVALID if det < 0.0 else OBSERVED


@jit
def read(m: Any, r: int, tolerance: float, out: Any) -> int:
    """out[:4] = the quaternion of the matrix at m[r], if it is one: what `inspect` says."""
    found = inspect(m, r, 3, tolerance)
    if found == OBSERVED:
        w, x, y, z = quaternion(m, r, 3)
        f = 1.0 / math.sqrt(w * w + x * x + y * y + z * z)
        out[0], out[1], out[2], out[3] = f * w, f * x, f * y, f * z
    return found
