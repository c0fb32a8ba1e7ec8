"""Unit quaternions (w, x, y, z) inside rows of numbers, for compiled loops.

A quaternion that has been normalised is a rotation, whatever was added to it: nothing drifts off
the group. Everything is written to arrays of the caller: a hot loop allocates nothing.
"""

from __future__ import annotations

import math
from typing import Any

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
def between(x: Any, p: int, y: Any, q: int, out: Any, at: int) -> float:
    """out[at : at + 3] = Log(P^T Q), principal, P = x[p : p + 4], Q = y[q : q + 4]; its length."""
    w = x[p] * y[q] + x[p + 1] * y[q + 1] + x[p + 2] * y[q + 2] + x[p + 3] * y[q + 3]
    i = x[p] * y[q + 1] - x[p + 1] * y[q] - x[p + 2] * y[q + 3] + x[p + 3] * y[q + 2]
    j = x[p] * y[q + 2] + x[p + 1] * y[q + 3] - x[p + 2] * y[q] - x[p + 3] * y[q + 1]
    k = x[p] * y[q + 3] - x[p + 1] * y[q + 2] + x[p + 2] * y[q + 1] - x[p + 3] * y[q]
    n = math.sqrt(i * i + j * j + k * k)
    t = 2.0 * math.atan2(n, abs(w))
    f = 2.0
    if n > 1e-150:
        f = t / n
    if w < 0.0:
        f = -f
    out[at] = f * i
    out[at + 1] = f * j
    out[at + 2] = f * k
    return t


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
def read(seen: Any, tolerance: float, out: Any) -> int:
    """out[:4] = the quaternion of a matrix; returns 1, 0 if all is NaN, 2 if it is no rotation.

    From the largest component, so that nothing cancels. tolerance: how far R^T R may be from I;
    below 0 the matrix is trusted.
    """
    missing = True
    for i in range(3):
        for j in range(3):
            missing = missing and math.isnan(seen[i, j])
    if missing:
        return 0
    if tolerance >= 0.0:
        for i in range(3):
            for j in range(3):
                dot = 0.0 if i != j else -1.0
                for k in range(3):
                    dot += seen[k, i] * seen[k, j]
                if not abs(dot) <= tolerance:
                    return 2
        det = 0.0
        for i in range(3):
            j = (i + 1) % 3
            k = (i + 2) % 3
            det += seen[0, i] * (seen[1, j] * seen[2, k] - seen[1, k] * seen[2, j])
        if det < 0.0:
            return 2
    trace = seen[0, 0] + seen[1, 1] + seen[2, 2]
    top = trace
    best = 0
    for i in range(3):
        if seen[i, i] > top:
            top = seen[i, i]
            best = i + 1
    for i in range(3):
        j = (i + 1) % 3
        k = (i + 2) % 3
        turned = seen[k, j] - seen[j, k]
        if best == 0:
            out[1 + i] = turned
        elif best == i + 1:
            out[0] = turned
            out[1 + i] = 1.0 + 2.0 * top - trace
            out[1 + j] = seen[i, j] + seen[j, i]
            out[1 + k] = seen[i, k] + seen[k, i]
    if best == 0:
        out[0] = 1.0 + trace
    n = 0.0
    for i in range(4):
        n += out[i] * out[i]
    n = 1.0 / math.sqrt(n)
    for i in range(4):
        out[i] *= n
    return 1
