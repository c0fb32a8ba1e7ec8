"""Rotations observed directly, eight tracks at a time: measure, start (d = 2 or 3)."""

from __future__ import annotations

import math
from typing import Any

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels.blocks import (
    FRAME,
    LOGS,
    P11,
    PRODUCT,
    RATIOS,
    SEEN,
    SIZE,
    SQUARE,
    STARTS,
    STRENGTH,
    THERE,
    at_matrix,
    at_planes,
    multiply,
)
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, any_above, div, fma, load, spread, store
from kgmrf.kernels.layout import INFORMATION


@jit
def measure_rotations(w: Any, lane: Any, head: Any, d: int) -> None:
    """Log(Q^T R) into the planes of SQUARE; log-likelihood terms; d = 2 or 3."""
    seen, body = at_matrix(SEEN, d), at_matrix(SQUARE, d)
    multiply(w, FRAME, True, seen, body, seen, 0.0, False, d)
    zero, half, there = spread(0.0), spread(0.5), load(lane, THERE)
    for i in range(d):  # lanes without an observation: the identity, whose logarithm is quick
        for j in range(d):
            at = body + 8 * (i * d + j)
            store(w, at, above(there, half, load(w, at), spread(1.0 if i == j else 0.0)))
    if d == 2:
        for k in range(8):
            r = body + k
            w[r + 8] = -math.atan2(w[r + 16] - w[r + 8], w[r] + w[r + 24])
    else:
        rotation_vectors(w, lane, body)
    m11, p = at_planes(P11, d), 0
    product, ratios, noise = spread(1.0), zero, load(lane, STRENGTH)
    for i in range(d):
        for j in range(i + 1, d):
            r = load(w, body + 8 * (i * d + j))
            variance = noise + load(w, m11 + p) if head[INFORMATION] != 0.0 else noise
            product = product * variance
            ratios = ratios + div(r * r, variance)
            p += 8
    store(lane, PRODUCT, product)
    store(lane, RATIOS, ratios)
    for k in range(8):
        good = lane[THERE + k] > 0.5 and lane[PRODUCT + k] > 0.0
        lane[LOGS + k] = math.log(lane[PRODUCT + k]) if good else math.nan


@jit
def rotation_vectors(w: Any, lane: Any, r: int) -> None:
    """The planes of log R, in place, for d = 3."""
    zero, one = spread(0.0), spread(1.0)
    x = load(w, r + 56) - load(w, r + 40)
    y = load(w, r + 16) - load(w, r + 48)
    z = load(w, r + 24) - load(w, r + 8)
    q = one + load(w, r) + load(w, r + 32) + load(w, r + 64)
    square = x * x + y * y + z * z
    u = div(square, q * q)
    u = zero - u
    series = fma(u, spread(1 / 17), spread(1 / 15))  # atan(t) / t
    series = fma(u, fma(u, series, spread(1 / 13)), spread(1 / 11))
    series = fma(u, fma(u, series, spread(1 / 9)), spread(1 / 7))
    series = fma(u, fma(u, series, spread(1 / 5)), spread(1 / 3))
    series = fma(u, series, one)
    factor = div(spread(2.0) * series, q)
    near = above(q, spread(0.5), above(spread(0.01) * q * q, square, one, zero), zero)
    if any_above(spread(0.5), near):  # as carefully as the readable step
        store(lane, SIZE, near)
        for k in range(8):
            if lane[SIZE + k] < 0.5:
                _rotation_vector(w, r + k)
    half = spread(0.5)
    store(w, r + 8, above(near, half, zero - factor * z, load(w, r + 8)))
    store(w, r + 16, above(near, half, factor * y, load(w, r + 16)))
    store(w, r + 40, above(near, half, zero - factor * x, load(w, r + 40)))


@jit
def _rotation_vector(w: Any, r: int) -> None:
    """The same for one lane, at any angle (see `kgmrf.geometry.so`)."""
    r00, r01, r02 = w[r], w[r + 8], w[r + 16]
    r10, r11, r12 = w[r + 24], w[r + 32], w[r + 40]
    r20, r21, r22 = w[r + 48], w[r + 56], w[r + 64]
    trace = r00 + r11 + r22
    # The largest of w, x, y, z picks the row of 4 q q^T that is divided by its length.
    ww, xx, yy, zz = 1 + trace, 1 + 2 * r00 - trace, 1 + 2 * r11 - trace, 1 + 2 * r22 - trace
    wx, wy, wz = r21 - r12, r02 - r20, r10 - r01
    if ww >= xx and ww >= yy and ww >= zz:
        q, x, y, z = ww, wx, wy, wz
    elif xx >= yy and xx >= zz:
        q, x, y, z = wx, xx, r01 + r10, r02 + r20
    elif yy >= zz:
        q, x, y, z = wy, r01 + r10, yy, r12 + r21
    else:
        q, x, y, z = wz, r02 + r20, r12 + r21, zz
    if q < 0.0:
        q, x, y, z = -q, -x, -y, -z
    length = math.sqrt(x * x + y * y + z * z)
    factor = 2.0 * math.atan2(length, q) / length if length > 0.0 else 2.0 / q
    w[r + 8], w[r + 16], w[r + 40] = -factor * z, factor * y, -factor * x


@jit
def start_rotations(w: Any, lane: Any, information: bool, d: int) -> None:
    """Tracks whose first rotation this is begin at it, as uncertain as it is."""
    half, starts = spread(0.5), load(lane, STARTS)
    if not any_above(starts, half):
        return
    seen, m11 = at_matrix(SEEN, d), at_planes(P11, d)
    for at in range(0, 8 * d * d, 8):
        new = above(starts, half, load(w, seen + at), load(w, FRAME + at))
        store(w, FRAME + at, new)
    if information:
        limit, noise = spread(ANGLE_VARIANCE_LIMIT), load(lane, STRENGTH)
        noise = above(noise, limit, limit, noise)
        for p in range(0, 4 * d * (d - 1), 8):
            store(w, m11 + p, above(starts, half, noise, load(w, m11 + p)))
