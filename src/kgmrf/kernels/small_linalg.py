"""Small dense matrices in compiled loops: triangular factors, skew exponentials, Jacobi rotations.

Everything works in place on arrays of the caller, so that a frame allocates next to nothing.
Triangular factors are kept as R = L^T, upper, so that the columns of L are contiguous.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from kgmrf.kernels.rotation3 import exp3

# Reassociation and contraction let sums vectorise; NaN and infinity keep their meaning.
MEANING: Any = dict(error_model="numpy", fastmath={"reassoc", "contract"})
WITHIN: Any = dict(no_cpython_wrapper=True, no_cfunc_wrapper=True)
jit: Any = njit(**WITHIN, **MEANING)


@jit
def cholesky(a: Any, out: Any) -> bool:
    """out = R, upper, with R^T R = a; False (out unusable) where a is not positive definite."""
    d = a.shape[0]
    for i in range(d):
        for j in range(i, d):
            out[i, j] = a[i, j]
    for i in range(d):
        pivot = out[i, i]
        if not pivot > 0.0:
            return False
        inverse = 1.0 / math.sqrt(pivot)
        for j in range(i, d):
            out[i, j] *= inverse
        for k in range(i + 1, d):
            f = out[i, k]
            for j in range(k, d):
                out[k, j] -= f * out[i, j]
    return True


@jit
def cholesky_add(factor: Any, x: Any, start: int) -> None:
    """R^T R <- R^T R + x x^T; the entries of x before ``start`` are zero; x is destroyed.

    Only additions, so the factor stays positive for ever and is never recomputed.
    """
    d = x.shape[0]
    for i in range(start, d):
        xi = x[i]
        if xi == 0.0:
            continue
        old = factor[i, i]
        new = math.sqrt(old * old + xi * xi)
        c = old / new
        s = xi / new
        factor[i, i] = new
        for j in range(i + 1, d):
            f = factor[i, j]
            v = x[j]
            factor[i, j] = c * f + s * v
            x[j] = c * v - s * f


@jit
def solve(factor: Any, x: Any, out: Any) -> float:
    """out = R^{-T} x; returns |out|^2 = x^T (R^T R)^{-1} x."""
    d = x.shape[0]
    total = 0.0
    for i in range(d):
        out[i] = x[i]
    for i in range(d):
        y = out[i] / factor[i, i]
        out[i] = y
        total += y * y
        for j in range(i + 1, d):
            out[j] -= factor[i, j] * y
    return total


@jit
def trace_solve(factor: Any, a: Any, temp: Any) -> float:
    """tr((R^T R)^{-1} a) for symmetric a, which is destroyed."""
    d = factor.shape[0]
    for i in range(d):
        inverse = 1.0 / factor[i, i]
        for j in range(d):
            a[i, j] *= inverse
        for k in range(i + 1, d):
            f = factor[i, k]
            for j in range(d):
                a[k, j] -= f * a[i, j]
    for i in range(d):
        for j in range(d):
            temp[i, j] = a[j, i]
    total = 0.0
    for i in range(d):  # only the diagonal of R^{-T} (R^{-T} a)^T is wanted
        inverse = 1.0 / factor[i, i]
        for j in range(i, d):
            temp[i, j] *= inverse
        total += temp[i, i]
        for k in range(i + 1, d):
            f = factor[i, k]
            for j in range(k, d):
                temp[k, j] -= f * temp[i, j]
    return total


@jit
def invert(factor: Any, temp: Any, out: Any) -> None:
    """out = (R^T R)^{-1}."""
    d = factor.shape[0]
    for i in range(d):
        inverse = 1.0 / factor[i, i]
        for j in range(d):
            temp[i, j] = 0.0
            out[i, j] = 0.0
        temp[i, i] = inverse
        for k in range(i):
            f = factor[k, i] * inverse
            for j in range(k + 1):
                temp[i, j] -= f * temp[k, j]
    for k in range(d):
        for i in range(k + 1):
            v = temp[k, i]
            for j in range(k + 1):
                out[i, j] += v * temp[k, j]


@jit
def multiply(a: Any, b: Any, out: Any) -> None:
    """out = a b."""
    d = a.shape[0]
    for i in range(d):
        for j in range(d):
            out[i, j] = 0.0
        for k in range(d):
            v = a[i, k]
            for j in range(d):
                out[i, j] += v * b[k, j]


@jit
def multiply_transposed(a: Any, b: Any, out: Any) -> None:
    """out = a^T b."""
    d = a.shape[0]
    for i in range(d):
        for j in range(d):
            out[i, j] = 0.0
    for k in range(d):
        for i in range(d):
            v = a[k, i]
            for j in range(d):
                out[i, j] += v * b[k, j]


@jit
def congruence(frame: Any, a: Any, temp: Any, out: Any) -> None:
    """out = frame^T a frame."""
    multiply(a, frame, temp)
    multiply_transposed(frame, temp, out)


@jit
def recompose(frame: Any, values: Any, size: float, row: Any, out: Any) -> None:
    """out = size frame diag(values) frame^T, symmetric to the last bit."""
    d = frame.shape[0]
    for i in range(d):
        for k in range(d):
            row[k] = size * frame[i, k] * values[k]
        for j in range(i + 1):
            acc = 0.0
            for k in range(d):
                acc += row[k] * frame[j, k]
            out[i, j] = acc
            out[j, i] = acc


@jit
def rotate(frame: Any, right: Any, row: Any) -> None:
    """frame <- frame right."""
    d = frame.shape[0]
    for r in range(d):
        for j in range(d):
            row[j] = 0.0
        for k in range(d):
            v = frame[r, k]
            for j in range(d):
                row[j] += v * right[k, j]
        for j in range(d):
            frame[r, j] = row[j]


@jit
def polish(frame: Any, work: Any, row: Any) -> None:
    """frame <- frame (3 I - frame^T frame)/2, one Newton-Schulz step back to the rotations."""
    d = frame.shape[0]
    multiply_transposed(frame, frame, work)
    for i in range(d):
        for j in range(d):
            work[i, j] *= -0.5
        work[i, i] += 1.5
    rotate(frame, work, row)


@jit
def turn(frame: Any, w: Any, step: float, t1: Any, t2: Any, t3: Any) -> None:
    """frame <- frame Exp(step w) for skew w: closed form for d = 2, 3, else a diagonal Pade form.

    The result is orthogonal to rounding and within 1e-10 of the exponential; angles beyond one
    radian are halved first.
    """
    d = frame.shape[0]
    norm2 = 0.0
    for i in range(d):
        for j in range(i):
            norm2 += w[i, j] * w[i, j]
    norm2 *= step * step
    if not 0.0 < norm2 < np.inf:
        return
    if d == 2:
        angle = step * w[1, 0]
        c = math.cos(angle)
        s = math.sin(angle)
        for i in range(2):
            a = frame[i, 0]
            b = frame[i, 1]
            frame[i, 0] = a * c + b * s
            frame[i, 1] = b * c - a * s
        return
    if d == 3:
        exp3(step * w[2, 1], step * w[0, 2], step * w[1, 0], t1)
        rotate(frame, t1, t2[0])
        return
    repeats = 1
    while norm2 > 1.0:
        norm2 *= 0.25
        step *= 0.5
        repeats *= 2
    for i in range(d):
        for j in range(d):
            t1[i, j] = step * w[i, j]
    _pade(t1, t2, t3, norm2)
    if repeats == 1:
        _divide(frame, t1, t2, t3)
        return
    # One exponential, squared as often as the angle was halved.
    whole = np.zeros((d, d))
    for i in range(d):
        whole[i, i] = 1.0
    _divide(whole, t1, t2, t3)
    while repeats > 1:
        multiply(whole, whole, t1)
        for i in range(d):
            for j in range(d):
                whole[i, j] = t1[i, j]
        repeats //= 2
    rotate(frame, whole, t1[0])


@jit
def _pade(x: Any, x2: Any, x4: Any, norm2: float) -> None:
    """x <- V + U, x2 <- LU of V - U with Exp(x) = (V - U)^{-1} (V + U), V even, U odd in x.

    The diagonal Pade form of a skew matrix is orthogonal at any order; order 1 is Cayley's map.
    The symmetric part V of V - U is positive definite for angles up to 1, so elimination needs no
    pivots.
    """
    d = x.shape[0]
    # Cayley's cubic error is below 1e-13 for tiny angles; order 3 has 1e-5 |x|^7, order 5 has
    # 1e-10 |x|^11.
    if norm2 < 1e-8:
        for i in range(d):
            for j in range(d):
                x4[i, j] = 0.0
                x2[i, j] = 0.0
            x4[i, i] = 0.5
            x2[i, i] = 1.0
    else:
        for i in range(d):  # x^2 = -x x^T, symmetric
            for j in range(i + 1):
                acc = 0.0
                for k in range(d):
                    acc -= x[i, k] * x[j, k]
                x2[i, j] = acc
                x2[j, i] = acc
        if norm2 < 1e-3:
            for i in range(d):
                for j in range(d):
                    x4[i, j] = x2[i, j]
                    x2[i, j] *= 12.0
                x4[i, i] += 60.0
                x2[i, i] += 120.0
        else:
            multiply(x2, x2, x4)
            for i in range(d):
                for j in range(d):
                    a2 = x2[i, j]
                    a4 = x4[i, j]
                    x2[i, j] = 30.0 * a4 + 3360.0 * a2
                    x4[i, j] = a4 + 420.0 * a2
                x2[i, i] += 30240.0
                x4[i, i] += 15120.0
    # U = x x4 is skew: one triangle is enough, written over x4 row by row from below.
    for i in range(d - 1, -1, -1):
        for j in range(i):
            acc = 0.0
            for k in range(d):
                acc += x[i, k] * x4[j, k]
            x4[i, j] = acc
    for i in range(d):
        for j in range(i):
            u = x4[i, j]
            v = x2[i, j]
            x[i, j] = v + u
            x[j, i] = v - u
            x2[i, j] = v - u
            x2[j, i] = v + u
        x[i, i] = x2[i, i]
    for k in range(d):
        inverse = 1.0 / x2[k, k]
        for i in range(k + 1, d):
            f = x2[i, k] * inverse
            x2[i, k] = f
            for j in range(k + 1, d):
                x2[i, j] -= f * x2[k, j]


@jit
def _divide(frame: Any, numerator: Any, lu: Any, temp: Any) -> None:
    """frame <- frame numerator (L U)^{-1}; transposed in temp, so that inner loops are rows."""
    d = frame.shape[0]
    rotate(frame, numerator, temp[0])
    for j in range(d):
        for r in range(d):
            temp[j, r] = frame[r, j]
    for k in range(d):  # y U = rows
        inverse = 1.0 / lu[k, k]
        for r in range(d):
            temp[k, r] *= inverse
        for j in range(k + 1, d):
            v = lu[k, j]
            for r in range(d):
                temp[j, r] -= v * temp[k, r]
    for k in range(d - 1, 0, -1):  # z L = y
        for j in range(k):
            v = lu[k, j]
            for r in range(d):
                temp[j, r] -= v * temp[k, r]
    for j in range(d):
        for r in range(d):
            frame[r, j] = temp[j, r]


@jit
def jacobi(a: Any, vectors: Any, tolerance: float) -> None:
    """Diagonalise symmetric a in place by rotations; vectors <- J with a_new = J^T a J.

    Each rotation takes the angle below 45 degrees: where a is nearly diagonal, J is the eigenframe
    nearest the identity.
    """
    d = a.shape[0]
    for i in range(d):
        for j in range(d):
            vectors[i, j] = 0.0
        vectors[i, i] = 1.0
    for _ in range(20):
        off = 0.0
        diagonal = 0.0
        for i in range(d):
            diagonal += a[i, i] * a[i, i]
            for j in range(i):
                off += a[i, j] * a[i, j]
        if not off > tolerance * tolerance * diagonal:
            return
        for p in range(d - 1):
            for q in range(p + 1, d):
                apq = a[p, q]
                if apq == 0.0:
                    continue
                theta = 0.5 * (a[q, q] - a[p, p]) / apq
                t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                if theta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(t * t + 1.0)
                s = t * c
                down = t * apq
                app = a[p, p] - down
                aqq = a[q, q] + down
                for k in range(d):
                    u = a[p, k]
                    v = a[q, k]
                    a[p, k] = c * u - s * v
                    a[q, k] = s * u + c * v
                for k in range(d):
                    a[k, p] = a[p, k]
                    a[k, q] = a[q, k]
                    u = vectors[k, p]
                    v = vectors[k, q]
                    vectors[k, p] = c * u - s * v
                    vectors[k, q] = s * u + c * v
                a[p, p] = app
                a[q, q] = aqq
                a[p, q] = 0.0
                a[q, p] = 0.0
