"""Rotations observed directly (d = 2 or 3): the check, and the angles between two of them."""

from __future__ import annotations

import math
from typing import Any

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.kernels import law_places as at
from kgmrf.kernels.check import OBSERVED, spread_out
from kgmrf.kernels.compile import jit
from kgmrf.kernels.layout import BODY, FRAME, SEEN_MATRIX
from kgmrf.kernels.products import copy, matrix, multiply_transposed, polish_frame
from kgmrf.kernels.quaternions import inspect, logarithm, quaternion


@jit
def take_rotation(w: Any, c: Any, first: int, d: int, s: int, tolerance: float) -> int:
    """R at c[first] into SEEN_MATRIX, projected, if it is one: what `inspect` says."""
    found = inspect(c, first, d, tolerance)
    if found == OBSERVED:
        seen = matrix(s, SEEN_MATRIX)
        spread_out(c, first, w, seen, d, s)
        for _ in range(2):
            polish_frame(w, d, s, seen)
    return found


@jit
def begin_rotation(w: Any, o: Any, information: bool, precision: float) -> None:
    """The first rotation of a track is where it begins, as uncertain as that observation."""
    s, angle = o[at.S], o[at.MOVING] + o[at.ROOM]
    copy(w, matrix(s, SEEN_MATRIX), matrix(s, FRAME), o[at.D], s)
    if information:
        for p in range(angle, angle + o[at.N]):
            w[p] = min(1.0 / precision, ANGLE_VARIANCE_LIMIT)


@jit
def compare_rotation(w: Any, o: Any, information: bool, precision: float) -> float:
    """Log(Q^T R) into BODY and the lists of planes; returns log |var| + sum r^2/var."""
    d, s, room = o[at.D], o[at.S], o[at.ROOM]
    body, p, angle = matrix(s, BODY), o[at.PLANES], o[at.MOVING] + o[at.ROOM]
    multiply_transposed(w, matrix(s, FRAME), matrix(s, SEEN_MATRIX), body, d, s)
    if d == 2:
        w[body + s] = math.atan2(w[body + s] - w[body + 1], w[body] + w[body + s + 1])
    else:
        q, i, j, k = quaternion(w, body, s)
        x, y, z, _ = logarithm(q, i, j, k)
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
