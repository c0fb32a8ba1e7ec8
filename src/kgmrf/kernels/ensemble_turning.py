"""Turning members of the compiled ensemble: an eigenframe with a velocity, eigenvalues, units.

Functions have the names of those in `tests/readable_ensemble.py`; ``w`` and ``o`` as in
:mod:`kgmrf.kernels.ensemble_members`.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines import layout as row
from kgmrf.engines import members as tuning
from kgmrf.gains import ANGLE_VARIANCE_LIMIT, RATE_VARIANCE_LIMIT
from kgmrf.kernels import ensemble_places as at
from kgmrf.kernels import layout as desk
from kgmrf.kernels.compile import jit
from kgmrf.kernels.eigen import jacobi, sort_rows
from kgmrf.kernels.lanes import load, load_first, spread, store
from kgmrf.kernels.products import (
    matrix,
    multiply,
    multiply_transposed,
    pack,
    polish_frame,
    scaled,
    transpose,
    turn_frame,
    unpack,
)
from kgmrf.kernels.turning import (
    close_frame,
    close_planes,
    compare_planes,
    correct_planes,
    in_body,
    open_frame,
    open_planes,
    polish_is_due,
    widen_planes,
)


@jit
def member(w: Any, o: Any, k: int, column: int) -> float:
    """A number of the table of members."""
    value: float = w[o[at.TABLE] + k * row.N_COLUMNS + column]
    return value


@jit
def turning_size(d: int) -> int:
    """Numbers of a turning member."""
    return d * d + 2 * d * (d - 1) + d + 1


@jit
def drift_turning(w: Any, o: Any, q: int, noise: float, dt: float, d: int, s: int) -> None:
    """Q <- Q Exp(dt W), P <- F P F^T + noise in every plane."""
    velocity, n, lists, room = q + d * d, o[at.N_PLANES], o[at.MOVING], o[at.PLANE_ROOM]
    open_frame(w, q, w, d, s)
    open_planes(w, velocity, w, lists, room, n, 4)
    angle, cross, rate = noise * dt * dt * dt / 3.0, noise * dt * dt / 2.0, noise * dt
    widen_planes(w, lists, room, n, dt, 1.0, angle, cross, rate, RATE_VARIANCE_LIMIT)
    turn_frame(w, lists, dt, n, d, s)
    close_frame(w, w, q, d, s)
    close_planes(w, lists, room, w, velocity, n, 4)


@jit
def transpose_frame(w: Any, o: Any, q: int, index: int, d: int, s: int) -> None:
    """Rows of (E Q)^T, for `hold_turning`."""
    right, left = o[at.EIGENVECTORS] + index * s * s, matrix(s, desk.SCRATCH_A)
    for i in range(d):
        unit = spread(w[o[at.UNITS] + i])
        for j in range(0, s, 8):
            store(w, left + i * s + j, unit * load_first(w, q + i * d + j, d - j))
    transpose(w, left, right, d, s)


@jit
def hold_turning(w: Any, o: Any, q: int, part: int, index: int, d: int, s: int) -> None:
    """E Q diag(lam) Q^T E."""
    left, whole = matrix(s, desk.SCRATCH_A), o[at.OTHER]
    right, lam = o[at.EIGENVECTORS] + index * s * s, q + turning_size(d) - d - 1
    for i in range(d):
        level = spread(w[lam + i])
        for j in range(0, s, 8):
            store(w, left + i * s + j, level * load(w, right + i * s + j))
    multiply_transposed(w, left, right, whole, d, s)
    pack(w, whole, part, d, s, o[at.N_PAIRS])


@jit
def learn_turning(w: Any, o: Any, u: float, m: float, single: bool) -> None:
    """Turning members pool u C, or correct their planes and eigenvalues by it."""
    head, d, n = o[at.HEAD], o[at.DIMENSION], o[at.N_PAIRS]
    if o[at.N_TURNING] == 0:
        return
    first = o[at.TURNED]
    if w[head + row.POOLED] < 0.0:
        for k in range(o[at.N_TURNING]):
            correct_turning(w, o, first + k * turning_size(d), u, m, single)
        return
    w[head + row.POOLED] += 1.0
    count = w[head + row.POOLED]
    for k in range(o[at.N_TURNING]):
        q = first + k * turning_size(d)
        for p in range(n):
            w[q + p] += (u * w[o[at.MEAN] + p] + w[o[at.REST] + p] - w[q + p]) / count
    channels = 0.0
    for i in range(d):
        channels += 1.0 if w[o[at.LEVEL] + i] > 0.0 else 0.0
    if count * m >= tuning.POOL_SAMPLES * channels:
        for k in range(o[at.N_TURNING]):
            q = first + k * turning_size(d)
            prior = member(w, o, o[at.N_MEMBERS] - o[at.N_TURNING] + k, row.RATE_PRIOR)
            start_turning(w, o, q, count, m, prior, k == 0)
        w[head + row.POOLED] = -1.0


@jit
def correct_turning(w: Any, o: Any, q: int, u: float, m: float, single: bool) -> None:
    """One Kalman step per plane, one random-walk step per log eigenvalue."""
    d, s, n = o[at.DIMENSION], o[at.STRIDE], o[at.N_PLANES]
    frame, body = matrix(s, desk.FRAME), matrix(s, desk.BODY)
    velocity, lam, units = q + d * d, q + turning_size(d) - d - 1, o[at.UNITS]
    open_frame(w, q, w, d, s)
    for i in range(d):
        w[o[at.LAMBDA] + i], w[o[at.INVERTED] + i] = w[lam + i], 1.0 / w[lam + i]
    if single:
        power = o[at.POWER]
        in_body(w, o[at.X], units, power, d, s)
        for i in range(d):
            v = spread(u * w[power + i])
            for j in range(0, s, 8):
                store(w, body + i * s + j, v * load(w, power + j))
    else:
        whole, other = o[at.OTHER], matrix(s, desk.SCRATCH_A)
        for i in range(d):
            for j in range(i + 1):
                p = i * (i + 1) // 2 + j
                v = u * w[o[at.MEAN] + p] + w[o[at.REST] + p]
                v /= w[units + i] * w[units + j]
                w[whole + i * s + j] = v
                w[whole + j * s + i] = v
        multiply(w, whole, frame, other, whole, 0.0, d, s)
        multiply_transposed(w, frame, other, body, d, s)
    planes, lists, room = o[at.PLANES], o[at.MOVING], o[at.PLANE_ROOM]
    open_planes(w, velocity, w, lists, room, n, 4)
    compare_planes(w, body, o[at.LAMBDA], o[at.INVERTED], m, planes, room, d, s)
    correct_planes(w, lists, n, planes, room)
    close_planes(w, lists, room, w, velocity, n, 4)
    var = w[lam + d]
    gain = var / (var + 2.0 / m)
    w[lam + d] = (1.0 - gain) * var
    for i in range(d):
        w[lam + i] += gain * (w[body + i * s + i] - w[lam + i])
    keep_above(w, o, lam, d)
    turn_frame(w, planes, 1.0, n, d, s)
    if polish_is_due(w[o[at.HEAD] + row.COUNT]):
        polish_frame(w, d, s, frame)
    close_frame(w, w, q, d, s)


@jit
def keep_above(w: Any, o: Any, lam: int, d: int) -> None:
    """lam_i >= phi^2 max(lam_max, L_i/E_i^2)."""
    most = 0.0
    for i in range(d):
        unit = w[o[at.UNITS] + i]
        most = max(most, w[lam + i], w[o[at.LEVEL] + i] / (unit * unit))
    least = tuning.FLOOR * tuning.FLOOR * most
    for i in range(d):
        w[lam + i] = max(w[lam + i], least)


@jit
def start_turning(
    w: Any, o: Any, q: int, count: float, m: float, rate_prior: float, first: bool
) -> None:
    """One eigendecomposition of the pooled covariance; the first member sets the units of all."""
    d, s, n = o[at.DIMENSION], o[at.STRIDE], o[at.N_PLANES]
    a, v = o[at.OTHER], o[at.MEAN_FULL]
    lam = q + turning_size(d) - d - 1
    units, velocity = o[at.UNITS], q + d * d
    scaled(w, q, o[at.TOTAL], count / (count + 1.0), 1.0, o[at.N_PAIRS], d)
    unpack(w, o[at.TOTAL], a, d, s)
    low, high = math.inf, 0.0
    for i in range(d):
        if w[o[at.LEVEL] + i] > 0.0:
            low, high = min(low, w[a + i * s + i]), max(high, w[a + i * s + i])
    for i in range(d):
        apart = high > tuning.UNLIKE * low and w[o[at.LEVEL] + i] > 0.0
        if first:
            w[units + i] = math.sqrt(w[a + i * s + i]) if apart else 1.0
    for i in range(d):
        for j in range(d):
            w[a + i * s + j] /= w[units + i] * w[units + j]
            w[v + i * s + j] = 1.0 if i == j else 0.0
    jacobi(w, a, v, d, s)
    sign = sort_rows(w, a, v, d, s)
    for i in range(d):
        w[lam + i] = w[a + i * s + i]
        for k in range(d):
            w[q + k * d + i] = w[v + i * s + k]
    for k in range(d):
        w[q + k * d + d - 1] *= sign
    for p in range(n):
        w[velocity + p] = 0.0
        w[velocity + n + p] = ANGLE_VARIANCE_LIMIT
        w[velocity + 2 * n + p] = 0.0
        w[velocity + 3 * n + p] = rate_prior
    w[lam + d] = 2.0 / (count * m)
    keep_above(w, o, lam, d)
