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
from kgmrf.kernels import law_places as at
from kgmrf.kernels import layout as row
from kgmrf.kernels.check import INVALID, MISSING, OBSERVED, take_covariance
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.eigen import jacobi, sort_rows
from kgmrf.kernels.lanes import (
    above,
    after,
    bare,
    div,
    first,
    fma,
    highest,
    load,
    spread,
    store,
)
from kgmrf.kernels.law_block import END as BLOCK_END
from kgmrf.kernels.law_block import N_BLOCK, plain, pools, run_blocks, set_block
from kgmrf.kernels.law_places import (
    ANGLE,
    COAST,
    CROSS,
    DT,
    KEEP,
    LOG_TWO_PI,
    N_STEP,
    RATE,
    TURN,
    close_track,
    open_track,
)
from kgmrf.kernels.law_rotations import begin_rotation, compare_rotation, take_rotation
from kgmrf.kernels.products import matrix, multiply, multiply_transposed, polish_frame, turn_frame
from kgmrf.kernels.turning import (
    compare_planes,
    correct_planes,
    expect,
    polish_is_due,
    widen_planes,
)
from kgmrf.state import SMALLEST_SPECTRUM


@jit
def pool_frame(w: Any, o: Any, head: Any, known: Any, first: int, m: float) -> None:
    """Cold start: the eigendecomposition of the mean of all samples so far."""
    clocks, lam, lam_var, d, s = o[at.CLOCKS], o[at.LAM], o[at.LAM_VAR], o[at.D], o[at.S]
    frame = matrix(s, row.FRAME)
    seen, a, v = matrix(s, row.SEEN_MATRIX), matrix(s, row.BODY), matrix(s, row.TURNING)
    count = w[clocks + row.POOL_SAMPLES] + m
    p = o[at.POOL]
    for i in range(d):
        for j in range(d):
            w[v + i * s + j] = 1.0 if i == j else 0.0
        for j in range(i + 1):
            w[p] += m / count * (w[seen + i * s + j] - w[p])
            w[a + i * s + j] = w[a + j * s + i] = w[p]
            p += 1
    jacobi(w, a, v, d, s)
    sign = sort_rows(w, a, v, d, s)
    lowest = SMALLEST_SPECTRUM * w[a]
    for i in range(d):
        w[lam + i] = max(w[a + i * s + i] - head[row.NOISE_FLOOR], lowest)
        if head[row.KNOWN] != 0.0:
            w[lam + i] = known[first + i]
        w[lam_var + i] = 2.0 / count
        for j in range(d):
            w[frame + j * s + i] = w[v + i * s + j] * (sign if i == d - 1 else 1.0)
    w[clocks + row.POOL_SAMPLES] = count
    w[clocks + row.POOL_FRAMES] += 1.0


@jit
def drift(w: Any, o: Any, head: Any, over: Any, k: int, coasting: bool) -> None:
    """Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise; clocks widen."""
    clocks, moving, d, s, n = o[at.CLOCKS], o[at.MOVING], o[at.D], o[at.S], o[at.N]
    dt, decay = over[k + DT], over[k + (COAST if coasting else KEEP)]
    turn_frame(w, moving, over[k + TURN], n, d, s)
    if decay != 1.0:
        for p in range(n):
            w[moving + p] *= decay
    if head[row.INFORMATION] != 0.0:
        angle, cross, rate = over[k + ANGLE], over[k + CROSS], over[k + RATE]
        most = head[row.RATE_LIMIT]
        widen_planes(w, moving, o[at.ROOM], n, over[k + TURN], decay, angle, cross, rate, most)
    if head[row.SPECTRUM_RATE] != 0.0:
        for p in range(o[at.LAM_VAR], o[at.LAM_VAR] + s, 8):
            store(w, p, fma(spread(head[row.SPECTRUM_RATE]), spread(dt), load(w, p)))
    if head[row.SCALE_RATE] != 0.0:
        keep, var = head[row.SCALE_RETENTION] ** dt, clocks + row.SCALE_VAR
        w[clocks + row.LOG_SCALE] *= keep
        w[var] = keep * keep * w[var] + head[row.SCALE_RATE] * dt
    if dt > 0.0:
        w[clocks + row.STEPS] += 1.0
        if polish_is_due(w[clocks + row.STEPS]):
            polish_frame(w, d, s, matrix(s, row.FRAME))


@jit
def measure(w: Any, o: Any, head: Any) -> Any:
    """C~ = u Q^T C Q / e^s into BODY, its diagonal and eigenvalues beside it.

    u <= 1 shrinks an observation whose z = sum C~_ii / d_i is beyond LIMIT times d. Returns log |S|
    without the scale, and z.
    """
    level, inverse, power, d, s = o[at.LEVEL], o[at.INVERSE], o[at.POWER], o[at.D], o[at.S]
    frame, seen = matrix(s, row.FRAME), matrix(s, row.SEEN_MATRIX)
    body, part = matrix(s, row.BODY), matrix(s, row.SCRATCH_A)
    multiply(w, seen, frame, part, seen, 0.0, d, s)
    multiply_transposed(w, frame, part, body, d, s)
    for j in range(0, s, 8):
        v = load(w, o[at.LAM] + j) + spread(head[row.NOISE_FLOOR])
        store(w, level + j, v)
        store(w, inverse + j, div(spread(1.0), v))
    scale, product, logs, z = w[o[at.CLOCKS] + row.LOG_SCALE], 1.0, 0.0, 0.0
    shrink = math.exp(-scale) if scale != 0.0 else 1.0
    for i in range(d):
        w[power + i] = shrink * w[body + i * s + i]
        z += w[power + i] * w[inverse + i]
        product *= w[level + i]
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
    lam, moving, planes, d, s = o[at.LAM], o[at.MOVING], o[at.PLANES], o[at.D], o[at.S]
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
            w[moving + p] += gains[mine + (d + i) * d + j] * innovation
            w[planes + p] = gains[mine + i * d + j] * innovation
            p += 1
    return math.nan


@jit
def adapt(w: Any, o: Any, head: Any, m: float) -> None:
    """log d_i += log1p(k (C~_ii / d_i - 1)); the scale clock likewise."""
    clocks, lam, lam_var, level, d, s = (
        o[at.CLOCKS],
        o[at.LAM],
        o[at.LAM_VAR],
        o[at.LEVEL],
        o[at.D],
        o[at.S],
    )
    if head[row.SCALE_RATE] != 0.0:
        ratio, var = 0.0, w[clocks + row.SCALE_VAR]
        for i in range(d):
            ratio += w[o[at.POWER] + i] / w[lam + i]
        gain = var / (var + 2.0 / (m * d))
        w[clocks + row.LOG_SCALE] += math.log1p(gain * (ratio / d - 1.0))
        w[clocks + row.SCALE_VAR] = (1.0 - gain) * var
    if head[row.SPECTRUM_RATE] == 0.0:
        return
    one, most = spread(1.0), spread(0.0)
    for j in range(0, s, 8):
        wide = load(w, lam_var + j)
        gains = div(wide, wide + spread(2.0 / m))
        relative = load(w, o[at.POWER] + j) * load(w, o[at.INVERSE] + j) - one
        v = load(w, level + j) * (one + gains * relative)
        store(w, level + j, v)
        store(w, lam_var + j, (one - gains) * wide)
        v = first(d - j, v, most)
        most = above(v, most, v, most)
    least = spread(SMALLEST_SPECTRUM * highest(most))
    for j in range(0, s, 8):
        v = load(w, level + j) - spread(head[row.NOISE_FLOOR])
        store(w, lam + j, first(d - j, above(v, least, v, least), one))


@jit
def correct(w: Any, o: Any, head: Any, gains: Any, mine: int, m: float, gap: bool) -> None:
    """Q <- Q Exp(A w), W += B w, and P, from BODY; nis."""
    clocks, planes, room, d, s = o[at.CLOCKS], o[at.PLANES], o[at.ROOM], o[at.D], o[at.S]
    if head[row.INFORMATION] == 0.0:
        w[clocks + row.NIS] = pull_planes(w, o, head, gains, mine, gap)
    else:
        if gap:
            compare_planes(w, matrix(s, row.BODY), o[at.LAM], o[at.INVERSE], m, planes, room, d, s)
        w[clocks + row.NIS] = correct_planes(w, o[at.MOVING], o[at.N], planes, room)
    turn_frame(w, planes, 1.0, o[at.N], d, s)
    if gap:
        adapt(w, o, head, m)


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
    clocks, d = o[at.CLOCKS], o[at.D]
    pooling = not rotation and pools(w, clocks, head)
    started = not math.isnan(w[clocks + row.SEEN])
    w[clocks + row.TIME] += over[k + DT]
    w[clocks + row.NIS] = w[clocks + row.LIKELIHOOD] = math.nan
    if there:
        w[clocks + row.SEEN] = w[clocks + row.TIME]
    if pooling:
        if there:
            pool_frame(w, o, head, known, first, m)
        return
    if rotation and there and not started:
        begin_rotation(w, o, head[row.INFORMATION] != 0.0, m)
    if not started and (rotation or not there):
        return
    if started:  # a track with a matrix to start from does not drift to its first observation
        drift(w, o, head, over, k, not there)
    if there:
        if rotation:
            terms = compare_rotation(w, o, head[row.INFORMATION] != 0.0, m)
            terms, m = terms + 0.5 * d * (d - 1) * LOG_TWO_PI, 1.0
        else:
            logs, z = measure(w, o, head)
            terms = logs + z + d * (LOG_TWO_PI + w[clocks + row.LOG_SCALE])
        w[clocks + row.LIKELIHOOD] = -0.5 * m * terms
        correct(w, o, head, gains, mine, m, not rotation)


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
        where = np.empty(at.N_PLACES, dtype=np.int64)
        o = bare(where)
        at.set_places(o, d, head[row.INFORMATION] != 0.0)
        work = np.zeros(o[at.END] + 8)
        w = after(bare(work), (-work.ctypes.data // 8) % 8)  # from a cache line on
        every, frames, notes = bare(rows), bare(seen), bare(records)
        law, over, gains, spectra = bare(head), bare(steps), bare(tables), bare(known)
        own, spectrum = tables.shape[0] - 1, known.shape[0] - 1
        s, lists, whole = o[at.S], o[at.LISTS], room == size
        shown, held, pool = lists if whole else min(lists, 2), -1, False
        aside = np.empty(N_BLOCK, dtype=np.int64)
        o8 = bare(aside)
        set_block(o8, d)
        blocks = lines >= 8 and not rotation and plain(law, d)
        side = np.zeros(o8[BLOCK_END] + 8 if blocks else 8)
        w8 = after(bare(side), (-side.ctypes.data // 8) % 8)
        given = (bare(which), bare(present), bare(strength), bare(interval), frames)
        taken = (bare(status), notes, room)
        line, alone = 0, 0
        while line < lines:
            if not rotation:  # noqa: SIM102
                if blocks and line >= alone:
                    if held >= 0:
                        close_track(w, o, every, held * size, lists, pool)
                        held = -1
                    tracks = (every, size, line, lines)
                    line = run_blocks(w8, o8, law, over, *tracks, given, tolerance, taken)
                    alone = line + 8
                    continue
            k = which[line]
            if k != held:
                if held >= 0:
                    close_track(w, o, every, held * size, lists, pool)
                held, pool = k, whole or pools(every, k * size, law)
                open_track(every, k * size, w, o, pool)
                if line + 1 < lines:
                    expect(every, which[line + 1] * size, size)
            found = MISSING
            if present[line] > 0:
                if rotation:
                    found = take_rotation(w, frames, line * d * d, d, s, tolerance)
                else:
                    found = take_covariance(w, frames, line * d * d, d, s, tolerance)
            status[line] = found
            if found != INVALID and present[line] >= 0:
                m = 1.0 / strength[line] if rotation else strength[line]
                mine, lead = min(k, own) * 2 * d * d, N_STEP * interval[line]
                start = min(k, spectrum) * d
                there = found == OBSERVED
                step(w, o, law, over, lead, gains, mine, spectra, start, there, m, rotation)
            if room > 0:
                close_track(w, o, notes, line * room, shown, whole)
            line += 1
        if held >= 0:
            close_track(w, o, every, held * size, lists, pool)
        where[0] = work[0] = aside[0] = side[0] = 0.0  # they are not let go before

    return run
