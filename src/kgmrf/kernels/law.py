"""The compiled loop of single laws over lines of tracks: drift, measure, correct, adapt.

The twin of :mod:`kgmrf.step`, which says what the verbs mean; a frame turns by the functions of
:mod:`kgmrf.kernels.turning`, as that of a turning member of the ensemble does.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.kernels import layout as row
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED, take_covariance
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.eigen import jacobi, sort_rows
from kgmrf.kernels.lanes import load, spread, store
from kgmrf.kernels.law_rotations import compare_rotation, take_rotation
from kgmrf.kernels.products import matrix, multiply, multiply_transposed, polish_frame, turn_frame
from kgmrf.kernels.turning import (
    close_frame,
    compare_planes,
    correct_planes,
    expect,
    move,
    open_frame,
    set_turn,
    widen_planes,
)
from kgmrf.motion import POLISH_EVERY
from kgmrf.state import SMALLEST_SPECTRUM

LOG_TWO_PI = math.log(2.0 * math.pi)

# What a line of `steps` says of an interval.
TURN, KEEP, COAST, ANGLE, CROSS, RATE, DT = range(7)


@jit
def places(d: int, information: bool) -> Any:
    """Where things lie in the work space: row, frame, eigenvalues, planes; vectors, planes.

    The row in hand comes after the matrices of `products`; then three vectors (eigenvalues of the
    observations, their inverses, C~_ii) and four lists of planes. Returned
    last: the size of it all.
    """
    s, n = -(-d // 8) * 8, d * (d - 1) // 2
    head = matrix(s, row.N_MATRICES)
    frame = head + row.N_CLOCKS
    lam = frame + d * d
    velocity = lam + 2 * d
    pool = velocity + (4 if information else 1) * n
    vectors = pool + d * (d + 1) // 2 + 8
    planes = vectors + 3 * s
    room = -(-n // 8) * 8 + 8
    return head, frame, lam, velocity, pool, vectors, planes, room, planes + 4 * room


@jit
def turn(w: Any, q: int, d: int, s: int, polish: bool) -> None:
    """The frame of the row by what is in TURNING."""
    turn_frame(w, d, s)
    if polish:
        polish_frame(w, d, s, matrix(s, row.FRAME))
    close_frame(w, q, d, s)


@jit
def pool_frame(w: Any, o: Any, head: Any, known: Any, mine: int, m: float, d: int, s: int) -> None:
    """Cold start: the eigendecomposition of the mean of all samples so far."""
    clocks, frame, lam, pool = o[0], o[1], o[2], o[4]
    seen, a, v = matrix(s, row.SEEN_MATRIX), matrix(s, row.BODY), matrix(s, row.TURNING)
    count = w[clocks + row.POOL_SAMPLES] + m
    at = pool
    for i in range(d):
        for j in range(d):
            w[v + i * s + j] = 1.0 if i == j else 0.0
        for j in range(i + 1):
            w[at] += m / count * (w[seen + i * s + j] - w[at])
            w[a + i * s + j] = w[a + j * s + i] = w[at]
            at += 1
    jacobi(w, a, v, d, s)
    sign = sort_rows(w, a, v, d, s)
    lowest = SMALLEST_SPECTRUM * w[a]
    for i in range(d):
        w[lam + i] = max(w[a + i * s + i] - head[row.NOISE_FLOOR], lowest)
        if head[row.KNOWN] != 0.0:
            w[lam + i] = known[mine, i]
        w[lam + d + i] = 2.0 / count
        for j in range(d):
            w[frame + j * d + i] = w[v + i * s + j] * (sign if i == d - 1 else 1.0)
    w[clocks + row.POOL_SAMPLES] = count
    w[clocks + row.POOL_FRAMES] += 1.0


@jit
def drift(w: Any, o: Any, head: Any, over: Any, k: int, coasting: bool, d: int, s: int) -> None:
    """Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise; clocks widen."""
    clocks, frame, lam, velocity = o[0], o[1], o[2], o[3]
    n, dt, decay = d * (d - 1) // 2, over[k, DT], over[k, COAST if coasting else KEEP]
    set_turn(w, velocity, over[k, TURN], d, s)
    open_frame(w, frame, d, s)
    if decay != 1.0:
        for p in range(n):
            w[velocity + p] *= decay
    if head[row.INFORMATION] != 0.0:
        angle, cross, rate = over[k, ANGLE], over[k, CROSS], over[k, RATE]
        most = head[row.RATE_LIMIT]
        widen_planes(w, velocity, n, over[k, TURN], decay, angle, cross, rate, most)
    if head[row.SPECTRUM_RATE] != 0.0:
        for i in range(d):
            w[lam + d + i] += head[row.SPECTRUM_RATE] * dt
    if head[row.SCALE_RATE] != 0.0:
        keep, var = head[row.SCALE_RETENTION] ** dt, clocks + row.SCALE_VAR
        w[clocks + row.LOG_SCALE] *= keep
        w[var] = keep * keep * w[var] + head[row.SCALE_RATE] * dt
    polish = False
    if dt > 0.0:
        w[clocks + row.STEPS] += 1.0
        polish = w[clocks + row.STEPS] % POLISH_EVERY == 0.0
    turn(w, frame, d, s, polish)


@jit
def measure(w: Any, o: Any, head: Any, d: int, s: int) -> Any:
    """C~ = u Q^T C Q / e^s into BODY, its diagonal and eigenvalues beside it.

    u <= 1 shrinks an observation whose z = sum C~_ii / d_i is beyond LIMIT times d. Returns log |S|
    without the scale, and z.
    """
    clocks, lam, vectors = o[0], o[2], o[5]
    level, inverse, power = vectors, vectors + s, vectors + 2 * s
    frame, seen = matrix(s, row.FRAME), matrix(s, row.SEEN_MATRIX)
    body, part = matrix(s, row.BODY), matrix(s, row.SCRATCH_A)
    multiply(w, seen, frame, part, seen, 0.0, d, s)
    multiply_transposed(w, frame, part, body, d, s)
    shrink, product, logs, z = math.exp(-w[clocks + row.LOG_SCALE]), 1.0, 0.0, 0.0
    for i in range(d):
        v = w[lam + i] + head[row.NOISE_FLOOR]
        w[level + i], w[inverse + i] = v, 1.0 / v
        w[power + i] = shrink * w[body + i * s + i]
        z += w[power + i] * w[inverse + i]
        product *= v
        if not 1e-100 < product < 1e100:
            logs += math.log(product)
            product = 1.0
    u, most = 1.0, head[row.LIMIT] * d
    if z > most:
        u = most / z
    if u * shrink != 1.0:
        share = spread(u * shrink)
        for i in range(d):
            w[power + i] *= u
        for p in range(0, d * s, 8):
            store(w, body + p, share * load(w, body + p))
    return logs + math.log(product), z


@jit
def pull_planes(w: Any, o: Any, head: Any, gains: Any, mine: int, gap: bool, d: int, s: int) -> Any:
    """Fixed gains: W += B w, the angles A w left at the first planes; no nis."""
    lam, velocity, planes, body = o[2], o[3], o[6], matrix(s, row.BODY)
    ridge, p = head[row.RIDGE], 0
    if gap and math.isnan(ridge):
        low, high = w[lam], w[lam]
        for i in range(1, d):
            low, high = min(low, w[lam + i]), max(high, w[lam + i])
        ridge = RELATIVE_RIDGE * (high - low) * (high - low)
    for i in range(d):
        for j in range(i):
            innovation = w[body + i * s + j]
            if gap:
                sensitivity = w[lam + j] - w[lam + i]
                stiffness = sensitivity * sensitivity + ridge
                innovation *= sensitivity / (stiffness if stiffness > 0.0 else 1.0)
            w[velocity + p] += gains[mine, 1, i, j] * innovation
            w[planes + p] = gains[mine, 0, i, j] * innovation
            p += 1
    return math.nan


@jit
def adapt(w: Any, o: Any, head: Any, m: float, d: int, s: int) -> None:
    """log d_i += log1p(k (C~_ii / d_i - 1)); the scale clock likewise."""
    clocks, lam, vectors = o[0], o[2], o[5]
    level, inverse, power = vectors, vectors + s, vectors + 2 * s
    if head[row.SCALE_RATE] != 0.0:
        ratio, var = 0.0, w[clocks + row.SCALE_VAR]
        for i in range(d):
            ratio += w[power + i] / w[lam + i]
        gain = var / (var + 2.0 / (m * d))
        w[clocks + row.LOG_SCALE] += math.log1p(gain * (ratio / d - 1.0))
        w[clocks + row.SCALE_VAR] = (1.0 - gain) * var
    if head[row.SPECTRUM_RATE] == 0.0:
        return
    high = 0.0
    for i in range(d):
        var = w[lam + d + i]
        gain = var / (var + 2.0 / m)
        w[level + i] *= 1.0 + gain * (w[power + i] * w[inverse + i] - 1.0)
        w[lam + d + i] = (1.0 - gain) * var
        high = max(high, w[level + i])
    for i in range(d):
        w[lam + i] = max(w[level + i] - head[row.NOISE_FLOOR], SMALLEST_SPECTRUM * high)


@jit
def correct(
    w: Any, o: Any, head: Any, gains: Any, mine: int, m: float, gap: bool, d: int, s: int
) -> None:
    """Q <- Q Exp(A w), W += B w, and P, from BODY; nis."""
    clocks, frame, lam, velocity = o[0], o[1], o[2], o[3]
    vectors, planes, room = o[5], o[6], o[7]
    n = d * (d - 1) // 2
    if head[row.INFORMATION] == 0.0:
        w[clocks + row.NIS] = pull_planes(w, o, head, gains, mine, gap, d, s)
    else:
        if gap:
            level = matrix(s, row.SCRATCH_A)
            for i in range(d):
                w[level + i] = w[lam + i]
            compare_planes(w, matrix(s, row.BODY), level, vectors + s, m, planes, room, d, s)
        w[clocks + row.NIS] = correct_planes(w, velocity, n, planes, room)
    set_turn(w, planes, 1.0, d, s)
    if gap:
        adapt(w, o, head, m, d, s)
    turn(w, frame, d, s, False)


@jit
def step(
    w: Any,
    o: Any,
    head: Any,
    over: Any,
    k: int,
    gains: Any,
    known: Any,
    track: int,
    there: bool,
    m: float,
    rotation: bool,
    d: int,
    s: int,
) -> None:
    """One line of one track: ``there``, an observation in SEEN_MATRIX.

    m: samples behind a matrix, or 1 over the noise variance of a rotation (NaN: unknown). k: which
    interval of ``over`` leads here.
    """
    clocks = o[0]
    samples, frames = w[clocks + row.POOL_SAMPLES], w[clocks + row.POOL_FRAMES]
    pooling = samples < head[row.WARMUP_SAMPLES] and frames < head[row.WARMUP_FRAMES]
    started = not math.isnan(w[clocks + row.SEEN])
    if rotation:
        pooling = False
    w[clocks + row.TIME] += over[k, DT]
    w[clocks + row.NIS] = w[clocks + row.LIKELIHOOD] = math.nan
    if there:
        w[clocks + row.SEEN] = w[clocks + row.TIME]
    if started and not pooling:
        drift(w, o, head, over, k, not there, d, s)
    if not there:
        return
    if pooling:
        pool_frame(w, o, head, known, min(track, known.shape[0] - 1), m, d, s)
        return
    mine = min(track, gains.shape[0] - 1)
    if rotation:
        terms = compare_rotation(w, o, head, m, started, d, s)
        if not started:
            return
        w[clocks + row.LIKELIHOOD] = -0.5 * (terms + 0.5 * d * (d - 1) * LOG_TWO_PI)
        correct(w, o, head, gains, mine, m, False, d, s)
        return
    if not started:  # a track with a matrix to start from does not drift to its first observation
        open_frame(w, o[1], d, s)
    logs, z = measure(w, o, head, d, s)
    terms = logs + z + d * (LOG_TWO_PI + w[clocks + row.LOG_SCALE])
    w[clocks + row.LIKELIHOOD] = -0.5 * m * terms
    correct(w, o, head, gains, mine, m, True, d, s)


@lru_cache(maxsize=2)
def loop(rotation: bool) -> Any:
    """The loop for rotations or for covariances: `run`, compiled for no more than it needs."""

    @compiled(
        "void(float64[:, ::1], int64[::1], float64[:, :, ::1], int8[::1], float64[::1],"
        " float64[:, ::1], int64[::1], float64[::1], float64[:, :, :, ::1], float64[:, ::1],"
        " float64, float64[:, ::1], int8[::1])"
    )
    def run(
        rows: Any,
        which: Any,
        seen: Any,
        present: Any,
        strength: Any,
        steps: Any,
        interval: Any,
        head: Any,
        tables: Any,
        known: Any,
        tolerance: float,
        records: Any,
        status: Any,
    ) -> None:
        """Take in lines in order; rows change.

        which ``(N,)``: the row of each line. seen ``(N, d, d)``. present: 1 where there is an
        observation, 0 where there is none, -1 where not even time passes. strength: samples
        behind the matrix, or noise variance of the rotation. interval: which of steps ``(K, 7)``
        leads to the line. tables and known: for all rows, or one for each. tolerance: of the
        check; below 0 none. A line that is INVALID changes nothing. records ``(N or 0, room)``
        keep the beginnings of rows.
        """
        d, lines, size, room = seen.shape[1], which.size, rows.shape[1], records.shape[1]
        s = -(-d // 8) * 8
        o = places(d, head[row.INFORMATION] != 0.0)
        w = np.zeros(o[8])
        flat, frames, notes = (
            rows.reshape(rows.size),
            seen.reshape(seen.size),
            records.reshape(records.size),
        )
        held = -1
        for line in range(lines):
            found = MISSING
            if present[line] > 0:
                if rotation:
                    found = take_rotation(w, frames, line * d * d, d, s, tolerance)
                else:
                    found = take_covariance(w, frames, line * d * d, d, s, tolerance)
            status[line] = found
            k = which[line]
            if k != held:
                if held >= 0:
                    move(w, o[0], flat, held * size, size)
                move(flat, k * size, w, o[0], size)
                held = k
                if line + 1 < lines:
                    expect(flat, which[line + 1] * size, size)
            if found != INVALID and present[line] >= 0:
                m, at = 1.0 / strength[line] if rotation else strength[line], interval[line]
                there = found == OBSERVED
                step(w, o, head, steps, at, tables, known, k, there, m, rotation, d, s)
            if room > 0:
                move(w, o[0], notes, line * room, room)
        if held >= 0:
            move(w, o[0], flat, held * size, size)

    return run
