"""Rotations observed directly (d = 2 or 3): the check, and the angles between two of them."""

from __future__ import annotations

import math
from typing import Any

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels import law_places as place
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED, spread_out
from kgmrf.kernels.compile import jit
from kgmrf.kernels.layout import BODY, FRAME, SCRATCH_A, SEEN_MATRIX
from kgmrf.kernels.products import copy, matrix, multiply_transposed, polish_frame


@jit
def take_rotation(w: Any, c: Any, at: int, d: int, s: int, tolerance: float) -> int:
    """R into SEEN_MATRIX, projected: OBSERVED, MISSING (all NaN) or INVALID."""
    seen, gram = matrix(s, SEEN_MATRIX), matrix(s, SCRATCH_A)
    spread_out(c, at, w, seen, d, s)
    if tolerance < 0.0:
        if math.isnan(c[at]):
            return MISSING
    else:
        multiply_transposed(w, seen, seen, gram, d, s)
        for i in range(d):
            for j in range(d):
                defect = abs(w[gram + i * s + j] - (1.0 if i == j else 0.0))
                if not defect <= tolerance:  # NaN too
                    for k in range(d * d):
                        if not math.isnan(c[at + k]):
                            return INVALID
                    return MISSING
        a, b, e = seen, seen + s, seen + 2 * s
        if d == 2:
            sign = w[a] * w[b + 1] - w[a + 1] * w[b]
        else:
            sign = (
                w[a] * (w[b + 1] * w[e + 2] - w[b + 2] * w[e + 1])
                - w[a + 1] * (w[b] * w[e + 2] - w[b + 2] * w[e])
                + w[a + 2] * (w[b] * w[e + 1] - w[b + 1] * w[e])
            )
        if sign < 0.0:
            return INVALID
    for _ in range(2):
        polish_frame(w, d, s, seen)
    return OBSERVED


@jit
def rotation_vector(w: Any, r: int, s: int) -> Any:
    """x, y, z of log R, d = 3, at any angle (see `kgmrf.geometry.so`)."""
    r00, r01, r02 = w[r], w[r + 1], w[r + 2]
    r10, r11, r12 = w[r + s], w[r + s + 1], w[r + s + 2]
    r20, r21, r22 = w[r + 2 * s], w[r + 2 * s + 1], w[r + 2 * s + 2]
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
    return factor * x, factor * y, factor * z


@jit
def begin_rotation(w: Any, o: Any, information: bool, precision: float) -> None:
    """The first rotation of a track is where it begins, as uncertain as that observation."""
    s, angle = o[place.S], o[place.MOVING] + o[place.ROOM]
    copy(w, matrix(s, SEEN_MATRIX), matrix(s, FRAME), o[place.D], s)
    if information:
        for p in range(angle, angle + o[place.N]):
            w[p] = min(1.0 / precision, ANGLE_VARIANCE_LIMIT)


@jit
def compare_rotation(w: Any, o: Any, information: bool, precision: float) -> float:
    """Log(Q^T R) into BODY and the lists of planes; returns log |var| + sum r^2/var."""
    d, s, room = o[place.D], o[place.S], o[place.ROOM]
    body, p, angle = matrix(s, BODY), o[place.PLANES], o[place.MOVING] + o[place.ROOM]
    multiply_transposed(w, matrix(s, FRAME), matrix(s, SEEN_MATRIX), body, d, s)
    if d == 2:
        w[body + s] = math.atan2(w[body + s] - w[body + 1], w[body] + w[body + s + 1])
    else:
        x, y, z = rotation_vector(w, body, s)
        w[body + s], w[body + 2 * s], w[body + 2 * s + 1] = z, -y, x
    terms = 0.0
    for i in range(d):
        for j in range(i):
            r = w[body + i * s + j]
            variance = 1.0 / precision
            if information:
                variance += w[angle]
            terms += math.log(variance) + r * r / variance
            w[p], w[p + room], w[p + 2 * room], w[p + 3 * room] = r, r * precision, 1.0, precision
            p, angle = p + 1, angle + 1
    return terms
