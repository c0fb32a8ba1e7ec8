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
from kgmrf.kernels.lanes import bare, load, spread, store
from kgmrf.kernels.law_places import (
    END,
    FRAME,
    INVERSE,
    LAM,
    LEVEL,
    PLANES,
    POOL,
    POWER,
    ROOM,
    ROW,
    VELOCITY,
    D,
    N,
    S,
    set_places,
)
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

# Numbers of an interval, N_STEP of them in a line of `steps`.
TURN, KEEP, COAST, ANGLE, CROSS, RATE, DT = range(7)
N_STEP = 7


@jit
def pool_frame(w: Any, o: Any, head: Any, known: Any, first: int, m: float) -> None:
    """Cold start: the eigendecomposition of the mean of all samples so far."""
    clocks, frame, lam, d, s = o[ROW], o[FRAME], o[LAM], o[D], o[S]
    seen, a, v = matrix(s, row.SEEN_MATRIX), matrix(s, row.BODY), matrix(s, row.TURNING)
    count = w[clocks + row.POOL_SAMPLES] + m
    at = o[POOL]
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
            w[lam + i] = known[first + i]
        w[lam + d + i] = 2.0 / count
        for j in range(d):
            w[frame + j * d + i] = w[v + i * s + j] * (sign if i == d - 1 else 1.0)
    w[clocks + row.POOL_SAMPLES] = count
    w[clocks + row.POOL_FRAMES] += 1.0


@jit
def drift(w: Any, o: Any, head: Any, over: Any, k: int, coasting: bool) -> None:
    """Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise; clocks widen."""
    clocks, frame, lam, velocity, d, s, n = o[ROW], o[FRAME], o[LAM], o[VELOCITY], o[D], o[S], o[N]
    dt, decay = over[k + DT], over[k + (COAST if coasting else KEEP)]
    set_turn(w, velocity, over[k + TURN], d, s)
    open_frame(w, frame, d, s)
    if decay != 1.0:
        for p in range(n):
            w[velocity + p] *= decay
    if head[row.INFORMATION] != 0.0:
        angle, cross, rate = over[k + ANGLE], over[k + CROSS], over[k + RATE]
        most = head[row.RATE_LIMIT]
        widen_planes(w, velocity, n, over[k + TURN], decay, angle, cross, rate, most)
    if head[row.SPECTRUM_RATE] != 0.0:
        for i in range(d):
            w[lam + d + i] += head[row.SPECTRUM_RATE] * dt
    if head[row.SCALE_RATE] != 0.0:
        keep, var = head[row.SCALE_RETENTION] ** dt, clocks + row.SCALE_VAR
        w[clocks + row.LOG_SCALE] *= keep
        w[var] = keep * keep * w[var] + head[row.SCALE_RATE] * dt
    turn_frame(w, d, s)
    if dt > 0.0:
        w[clocks + row.STEPS] += 1.0
        if int(w[clocks + row.STEPS]) % POLISH_EVERY == 0:
            polish_frame(w, d, s, matrix(s, row.FRAME))


@jit
def measure(w: Any, o: Any, head: Any) -> Any:
    """C~ = u Q^T C Q / e^s into BODY, its diagonal and eigenvalues beside it.

    u <= 1 shrinks an observation whose z = sum C~_ii / d_i is beyond LIMIT times d. Returns log |S|
    without the scale, and z.
    """
    clocks, lam, level, inverse, power = o[ROW], o[LAM], o[LEVEL], o[INVERSE], o[POWER]
    d, s = o[D], o[S]
    frame, seen = matrix(s, row.FRAME), matrix(s, row.SEEN_MATRIX)
    body, part = matrix(s, row.BODY), matrix(s, row.SCRATCH_A)
    multiply(w, seen, frame, part, seen, 0.0, d, s)
    multiply_transposed(w, frame, part, body, d, s)
    scale, product, logs, z = w[clocks + row.LOG_SCALE], 1.0, 0.0, 0.0
    shrink = math.exp(-scale) if scale != 0.0 else 1.0
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
def pull_planes(w: Any, o: Any, head: Any, gains: Any, mine: int, gap: bool) -> Any:
    """Fixed gains: W += B w, the angles A w left at the first planes; no nis."""
    lam, velocity, planes, d, s = o[LAM], o[VELOCITY], o[PLANES], o[D], o[S]
    body = matrix(s, row.BODY)
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
            w[velocity + p] += gains[mine + (d + i) * d + j] * innovation
            w[planes + p] = gains[mine + i * d + j] * innovation
            p += 1
    return math.nan


@jit
def adapt(w: Any, o: Any, head: Any, m: float) -> None:
    """log d_i += log1p(k (C~_ii / d_i - 1)); the scale clock likewise."""
    clocks, lam, level, inverse, power = o[ROW], o[LAM], o[LEVEL], o[INVERSE], o[POWER]
    d = o[D]
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
def correct(w: Any, o: Any, head: Any, gains: Any, mine: int, m: float, gap: bool) -> None:
    """Q <- Q Exp(A w), W += B w, and P, from BODY; nis."""
    clocks, lam, velocity, planes, room = o[ROW], o[LAM], o[VELOCITY], o[PLANES], o[ROOM]
    d, s = o[D], o[S]
    if head[row.INFORMATION] == 0.0:
        w[clocks + row.NIS] = pull_planes(w, o, head, gains, mine, gap)
    else:
        if gap:
            level = matrix(s, row.SCRATCH_A)
            for i in range(d):
                w[level + i] = w[lam + i]
            compare_planes(w, matrix(s, row.BODY), level, o[INVERSE], m, planes, room, d, s)
        w[clocks + row.NIS] = correct_planes(w, velocity, o[N], planes, room)
    set_turn(w, planes, 1.0, d, s)
    if gap:
        adapt(w, o, head, m)
    turn_frame(w, d, s)
    close_frame(w, o[FRAME], d, s)


@jit
def step(
    w: Any,
    o: Any,
    head: Any,
    over: Any,
    k: int,
    gains: Any,
    mine: int,
    known: Any,
    first: int,
    there: bool,
    m: float,
    rotation: bool,
) -> None:
    """One line of one track: ``there``, an observation in SEEN_MATRIX.

    m: samples behind a matrix, or 1 over the noise variance of a rotation (NaN: unknown). k: where
    the interval that leads here begins in ``over``; mine, first: where the gains and the known
    spectrum of the track begin.
    """
    clocks, d = o[ROW], o[D]
    samples, frames = w[clocks + row.POOL_SAMPLES], w[clocks + row.POOL_FRAMES]
    pooling = samples < head[row.WARMUP_SAMPLES] and frames < head[row.WARMUP_FRAMES]
    started = not math.isnan(w[clocks + row.SEEN])
    if rotation:
        pooling = False
    w[clocks + row.TIME] += over[k + DT]
    w[clocks + row.NIS] = w[clocks + row.LIKELIHOOD] = math.nan
    if there:
        w[clocks + row.SEEN] = w[clocks + row.TIME]
    if started and not pooling:
        drift(w, o, head, over, k, not there)
        if not there:
            close_frame(w, o[FRAME], d, o[S])
    if not there:
        return
    if pooling:
        pool_frame(w, o, head, known, first, m)
        return
    if rotation:
        terms = compare_rotation(w, o, head[row.INFORMATION] != 0.0, m, started)
        if not started:
            return
        w[clocks + row.LIKELIHOOD] = -0.5 * (terms + 0.5 * d * (d - 1) * LOG_TWO_PI)
        correct(w, o, head, gains, mine, m, False)
        return
    if not started:  # a track with a matrix to start from does not drift to its first observation
        open_frame(w, o[FRAME], d, o[S])
    logs, z = measure(w, o, head)
    terms = logs + z + d * (LOG_TWO_PI + w[clocks + row.LOG_SCALE])
    w[clocks + row.LIKELIHOOD] = -0.5 * m * terms
    correct(w, o, head, gains, mine, m, True)


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
        where = np.empty(N + 1, dtype=np.int64)
        o = bare(where)
        set_places(o, d, head[row.INFORMATION] != 0.0)
        work = np.zeros(o[END])
        w, every, frames, notes = bare(work), bare(rows), bare(seen), bare(records)
        law, over, gains, spectra = bare(head), bare(steps), bare(tables), bare(known)
        own, spectrum = tables.shape[0] - 1, known.shape[0] - 1
        held, at, s = -1, o[ROW], o[S]
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
                    move(w, at, every, held * size, size)
                move(every, k * size, w, at, size)
                held = k
                if line + 1 < lines:
                    expect(every, which[line + 1] * size, size)
            if found != INVALID and present[line] >= 0:
                m = 1.0 / strength[line] if rotation else strength[line]
                mine, lead = min(k, own) * 2 * d * d, N_STEP * interval[line]
                start = min(k, spectrum) * d
                there = found == OBSERVED
                step(w, o, law, over, lead, gains, mine, spectra, start, there, m, rotation)
            if room > 0:
                move(w, at, notes, line * room, room)
        if held >= 0:
            move(w, at, every, held * size, size)
        where[0] = work[0] = 0.0  # they are not let go before

    return run
