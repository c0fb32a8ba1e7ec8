"""The compiled loop over many tracks: eight at a time, in place, beside other threads.

Here the eight lanes of :mod:`kgmrf.kernels.lanes` are eight tracks, and every line does the same
for all of them; where they part (no observation, not started, invalid), the result is chosen lane
by lane, so that no track can touch another. A block of tracks is ``(size, 8)`` numbers: the frame
in full, the planes i < j of the velocity and, for information gains, of var(angle), cov(angle,
velocity) and var(velocity), then spectrum and spectrum_var. Blocks may be float32; clocks and
arithmetic are always float64.

The work space ``w`` and the numbers ``lane`` are those of :mod:`kgmrf.kernels.blocks`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.kernels import core, layout, products, rows
from kgmrf.kernels.blocks import (
    ANGLE,
    CROSS,
    DECAY,
    DT,
    DUE,
    FRAME,
    LEVEL,
    LOGS,
    MOVES,
    N_LANES,
    NIS,
    NORM,
    P11,
    P12,
    P22,
    POWER,
    PRODUCT,
    RATE,
    RATIOS,
    SEEN,
    SIZE,
    SPECTRUM,
    SPECTRUM_VAR,
    SQUARE,
    STARTS,
    STRENGTH,
    THERE,
    TURN,
    TURNING,
    VELOCITY,
    B,
    C,
    E,
    at_matrix,
    at_planes,
    at_vector,
    check_covariances,
    check_rotations,
    copy,
    gather,
    judge,
    multiply,
    polish,
)
from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.core import LOG_TWO_PI, MOST_CORRELATED
from kgmrf.kernels.lanes import above, any_above, div, fma, load, root, spread, store
from kgmrf.kernels.layout import (
    INFORMATION,
    KNOWN,
    NOISE_FLOOR,
    RIDGE,
    ROTATION,
    SCALE_RATE,
    SCALE_RETENTION,
    SPECTRUM_RATE,
    WARMUP_FRAMES,
    WARMUP_SAMPLES,
)
from kgmrf.kernels.products import (
    EXP1,
    EXP2,
    EXP3,
    EXP4,
    EXP5,
    EXP6,
    FAR,
    REACH,
)
from kgmrf.step import POLISH_EVERY, SMALLEST_SPECTRUM

# Columns of the clocks, as in layout.SCALARS and layout.SURPRISES.
LOG_SCALE, SCALE_VAR, POOL_SAMPLES, POOL_FRAMES, TIME, SEEN_AT, STEPS, NIS_AT, LIKELIHOOD = range(9)


# ----------------------------------------------------------------------- drift


@jit
def turn_frames(w: Any, lane: Any, d: int) -> None:
    """Q <- Q Exp(X), X in TURNING (which is used up)."""
    x, a2, b = at_matrix(TURNING, d), at_matrix(SQUARE, d), at_matrix(B, d)
    c, e, frame = at_matrix(C, d), at_matrix(E, d), at_matrix(FRAME, d)
    squares = spread(0.0)
    for i in range(d):
        for j in range(i + 1, d):
            v = load(w, x + 8 * (i * d + j))
            squares = fma(v, v, squares)
    store(lane, NORM, squares)
    largest = 0.0
    for k in range(8):
        if largest < lane[NORM + k] < math.inf:
            largest = lane[NORM + k]
    size = math.sqrt(largest)
    if size == 0.0:
        return
    halvings = 0
    while size > (REACH if halvings else FAR):
        size *= 0.5
        halvings += 1
    n = 8 * d * d
    if halvings > 0:
        share = spread(0.5**halvings)
        for at in range(0, n, 8):
            store(w, x + at, share * load(w, x + at))
    multiply(w, x, False, x, a2, x, 0.0, True, d)
    for at in range(0, n, 8):
        v = spread(EXP2) * load(w, x + at)
        store(w, b + at, fma(spread(EXP1), load(w, a2 + at), v))
    multiply(w, a2, False, b, c, a2, 0.0, False, d)
    for at in range(0, n, 8):
        v, v2, y = load(w, x + at), load(w, a2 + at), load(w, c + at)
        store(w, b + at, fma(spread(EXP3), v2, fma(spread(EXP4), v, y)))
        store(w, e + at, fma(spread(EXP5), v2, y))
        store(w, c + at, fma(spread(EXP6), y, fma(spread(0.5), v2, v)))
    multiply(w, b, False, e, a2, c, 1.0, False, d)
    move, other = a2, b
    for _ in range(halvings):
        multiply(w, move, False, move, other, move, 2.0, False, d)
        move, other = other, move
    multiply(w, frame, False, move, c, frame, 1.0, False, d)
    copy(w, c, frame, d)


@jit
def drift(w: Any, lane: Any, head: Any, d: int) -> None:
    """Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise, with each lane's own numbers."""
    x, velocity = at_matrix(TURNING, d), at_planes(VELOCITY, d)
    m11, m12, m22 = at_planes(P11, d), at_planes(P12, d), at_planes(P22, d)
    turn, decay = load(lane, TURN), load(lane, DECAY)
    zero, one, limit = spread(0.0), spread(1.0), spread(ANGLE_VARIANCE_LIMIT)
    moves, half = load(lane, MOVES), spread(0.5)
    information = head[INFORMATION] != 0.0
    p = 0
    for i in range(d):
        store(w, x + 8 * (i * d + i), zero)
        for j in range(i + 1, d):
            v = load(w, velocity + p)
            store(w, x + 8 * (i * d + j), turn * v)
            store(w, x + 8 * (j * d + i), zero - turn * v)
            store(w, velocity + p, decay * v)
            if information:
                p11, p12, p22 = load(w, m11 + p), load(w, m12 + p), load(w, m22 + p)
                reach = fma(turn, p22, p12)
                p11 = p11 + turn * (p12 + reach) + load(lane, ANGLE)
                p12 = decay * reach + load(lane, CROSS)
                p22 = decay * decay * p22 + load(lane, RATE)
                if any_above(p11, limit):
                    wide = above(p11, limit, moves, zero)
                    share = root(div(limit, above(wide, half, p11, limit)))
                    p12 = share * p12
                    p11 = above(wide, half, limit, p11)
                bound, square = spread(MOST_CORRELATED) * p11 * p22, p12 * p12
                if any_above(square, bound):
                    tight = above(square, bound, moves, zero)
                    back = div(above(tight, half, bound, one), above(tight, half, square, one))
                    p12 = root(back) * p12
                store(w, m11 + p, p11)
                store(w, m12 + p, p12)
                store(w, m22 + p, p22)
            p += 8
    turn_frames(w, lane, d)
    due = load(lane, DUE)
    if any_above(due, half):
        frame, clean = at_matrix(FRAME, d), at_matrix(C, d)
        polish(w, frame, d)
        for at in range(0, 8 * d * d, 8):
            new = above(due, half, load(w, clean + at), load(w, frame + at))
            store(w, frame + at, new)
    if head[SPECTRUM_RATE] != 0.0:
        var = at_vector(SPECTRUM_VAR, d)
        wider = moves * spread(head[SPECTRUM_RATE]) * load(lane, DT)
        for j in range(0, 8 * d, 8):
            store(w, var + j, load(w, var + j) + wider)


# ----------------------------------------------------------------------- correct and kick


@jit
def correct(w: Any, lane: Any, head: Any, tables: Any, d: int) -> None:
    """Turns and kicks where THERE; the residuals are the planes i < j of SQUARE."""
    x, residual = at_matrix(TURNING, d), at_matrix(SQUARE, d)
    velocity, lam, level = at_planes(VELOCITY, d), at_vector(SPECTRUM, d), at_vector(LEVEL, d)
    m11, m12, m22 = at_planes(P11, d), at_planes(P12, d), at_planes(P22, d)
    zero, one, half, there = spread(0.0), spread(1.0), spread(0.5), load(lane, THERE)
    gap, information = head[ROTATION] == 0.0, head[INFORMATION] != 0.0
    strength, squares = load(lane, STRENGTH), zero
    noise = strength if not gap else div(one, strength)
    ridge = spread(head[RIDGE])
    if gap and not information and math.isnan(head[RIDGE]):
        low = load(w, lam)
        high = low
        for j in range(8, 8 * d, 8):
            v = load(w, lam + j)
            low = above(low, v, v, low)
            high = above(v, high, v, high)
        ridge = spread(RELATIVE_RIDGE) * (high - low) * (high - low)
    p = 0
    for i in range(d):
        store(w, x + 8 * (i * d + i), zero)
        for j in range(i + 1, d):
            r = load(w, residual + 8 * (i * d + j))
            sensitivity, variance = one, noise
            if gap:
                sensitivity = load(w, lam + 8 * j) - load(w, lam + 8 * i)
                variance = noise * load(w, level + 8 * i) * load(w, level + 8 * j)
            strict = sensitivity * sensitivity
            if information:
                p11, p12, p22 = load(w, m11 + p), load(w, m12 + p), load(w, m22 + p)
                precision = div(one, fma(p11, strict, variance))
                pull = above(there, half, r * sensitivity * precision, zero)
                rest = above(there, half, variance * precision, one)
                gained = above(there, half, p12 * p12 * strict * precision, zero)
                turn, kick = p11 * pull, p12 * pull
                store(w, m11 + p, p11 * rest)
                store(w, m12 + p, p12 * rest)
                store(w, m22 + p, p22 - gained)
                squares = fma(r * r, precision, squares)
            else:
                pull = r
                if gap:
                    stiffness = strict + ridge
                    stiffness = above(stiffness, zero, stiffness, one)
                    pull = div(r * sensitivity, stiffness)
                pull = above(there, half, pull, zero)
                turn = spread(tables[0, 0, i, j]) * pull
                kick = spread(tables[0, 1, i, j]) * pull
            store(w, x + 8 * (i * d + j), turn)
            store(w, x + 8 * (j * d + i), zero - turn)
            store(w, velocity + p, load(w, velocity + p) + kick)
            p += 8
    store(lane, NIS, squares if information else spread(math.nan))


@jit
def measure_covariances(w: Any, lane: Any, clocks: Any, first: int, d: int, floor: float) -> None:
    """C~ = Q^T C Q / e^s into SQUARE, its diagonal into POWER; log-likelihood terms."""
    frame, seen, body = at_matrix(FRAME, d), at_matrix(SEEN, d), at_matrix(SQUARE, d)
    part, power = at_matrix(TURNING, d), at_vector(POWER, d)
    level, lam = at_vector(LEVEL, d), at_vector(SPECTRUM, d)
    multiply(w, seen, False, frame, part, seen, 0.0, False, d)
    multiply(w, frame, True, part, body, seen, 0.0, True, d)
    scaled = False
    for k in range(8):
        scale = clocks[first + k, LOG_SCALE]
        scaled = scaled or scale != 0.0
        lane[SIZE + k] = math.exp(-scale) if scale != 0.0 else 1.0
        lane[LOGS + k] = 0.0
    if scaled:
        shrink = load(lane, SIZE)
        for at in range(0, 8 * d * d, 8):
            store(w, body + at, shrink * load(w, body + at))
    product, ratios = spread(1.0), spread(0.0)
    low, high = spread(1e-100), spread(1e100)
    for i in range(d):
        v = load(w, lam + 8 * i) + spread(floor)
        own = load(w, body + 8 * (i * d + i))
        store(w, power + 8 * i, own)
        store(w, level + 8 * i, v)
        ratios = ratios + div(own, v)
        product = product * v
        if i == d - 1 or any_above(product, high) or any_above(low, product):
            store(lane, PRODUCT, product)
            for k in range(8):
                if lane[THERE + k] > 0.5:
                    lane[LOGS + k] += math.log(lane[PRODUCT + k])
            product = spread(1.0)
    store(lane, RATIOS, ratios)


@jit
def adapt_spectra(w: Any, lane: Any, d: int, floor: float) -> None:
    """log d_i += log1p(k (C~_ii / d_i - 1)) where THERE."""
    power, level = at_vector(POWER, d), at_vector(LEVEL, d)
    lam, var = at_vector(SPECTRUM, d), at_vector(SPECTRUM_VAR, d)
    one, half, there = spread(1.0), spread(0.5), load(lane, THERE)
    noise = div(spread(2.0), load(lane, STRENGTH))
    high = spread(0.0)
    for j in range(0, 8 * d, 8):
        v, old = load(w, var + j), load(w, level + j)
        gain = div(v, v + noise)
        new = old * fma(gain, div(load(w, power + j), old) - one, one)
        store(w, level + j, new)
        store(w, var + j, above(there, half, (one - gain) * v, v))
        high = above(new, high, new, high)
    least = spread(SMALLEST_SPECTRUM) * high
    for j in range(0, 8 * d, 8):
        new = load(w, level + j) - spread(floor)
        new = above(least, new, least, new)
        store(w, lam + j, above(there, half, new, load(w, lam + j)))


@jit
def measure_rotations(w: Any, lane: Any, head: Any, d: int) -> None:
    """Log(Q^T R) into the planes of SQUARE; log-likelihood terms; d = 2 or 3."""
    frame, seen, body = at_matrix(FRAME, d), at_matrix(SEEN, d), at_matrix(SQUARE, d)
    multiply(w, frame, True, seen, body, seen, 0.0, False, d)
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
    bound = spread(0.01) * q * q
    if any_above(zero, q - spread(0.5)) or any_above(square, bound):
        for k in range(8):  # some lane turns far: one by one, as carefully as the readable step
            _rotation_vector(w, r + k)
        return
    u = div(square, q * q)
    u = zero - u
    series = fma(u, spread(1 / 17), spread(1 / 15))  # atan(t) / t
    series = fma(u, fma(u, series, spread(1 / 13)), spread(1 / 11))
    series = fma(u, fma(u, series, spread(1 / 9)), spread(1 / 7))
    series = fma(u, fma(u, series, spread(1 / 5)), spread(1 / 3))
    series = fma(u, series, one)
    factor = div(spread(2.0) * series, q)
    store(w, r + 8, zero - factor * z)
    store(w, r + 16, factor * y)
    store(w, r + 40, zero - factor * x)


@jit
def _rotation_vector(w: Any, r: int) -> None:
    own = np.zeros(24)
    for i in range(3):
        for j in range(3):
            own[8 * i + j] = w[r + 8 * (3 * i + j)]
    core.logarithm(own, 3, 8, 0)
    w[r + 8], w[r + 16], w[r + 40] = own[1], own[2], own[10]


# ----------------------------------------------------------------------- one block of tracks


@jit
def open_block(body: Any, block: int, size: int, w: Any, information: bool, d: int) -> None:
    """A block of tracks into the work space."""
    at = block * size * 8
    for k in range(0, 8 * d * d, 8):
        store(w, k, load(body, at + k))
    at += 8 * d * d
    planes = 8 * (d * (d - 1) // 2)
    for m in range(4 if information else 1):
        to = at_planes(m, d)
        for k in range(0, planes, 8):
            store(w, to + k, load(body, at + k))
        at += planes
    to = at_vector(SPECTRUM, d)  # spectrum_var follows in both places
    for k in range(0, 16 * d, 8):
        store(w, to + k, load(body, at + k))


@jit
def close_block(w: Any, body: Any, block: int, size: int, information: bool, d: int) -> None:
    """The work space into a block of tracks."""
    at = block * size * 8
    for k in range(0, 8 * d * d, 8):
        store(body, at + k, load(w, k))
    at += 8 * d * d
    planes = 8 * (d * (d - 1) // 2)
    for m in range(4 if information else 1):
        to = at_planes(m, d)
        for k in range(0, planes, 8):
            store(body, at + k, load(w, to + k))
        at += planes
    to = at_vector(SPECTRUM, d)
    for k in range(0, 16 * d, 8):
        store(body, at + k, load(w, to + k))


@jit
def pool_lane(w: Any, k: int, clocks: Any, pools: Any, i: int, desk: Any, m: float, d: int) -> None:
    """Cold start of the track in lane k: the desk of a single track does it."""
    s = -(-d // 8) * 8
    pool, seen = products.matrix(s, layout.POOL), products.matrix(s, layout.SEEN_MATRIX)
    at = 0
    for row in range(d):
        for column in range(row + 1):
            for x, y in ((row, column), (column, row)):
                desk[pool + x * s + y] = pools[i, at]
                desk[seen + x * s + y] = w[at_matrix(SEEN, d) + 8 * (x * d + y) + k]
            at += 1
    desk[layout.POOL_SAMPLES] = clocks[i, POOL_SAMPLES]
    desk[layout.POOL_FRAMES] = clocks[i, POOL_FRAMES]
    core.pool(desk, d, s, m)
    at = 0
    for row in range(d):
        for column in range(row + 1):
            pools[i, at] = desk[pool + row * s + column]
            at += 1
        for column in range(d):
            v = desk[products.matrix(s, layout.FRAME) + row * s + column]
            w[8 * (row * d + column) + k] = v
        w[at_vector(SPECTRUM, d) + 8 * row + k] = desk[products.vector(s, layout.SPECTRUM) + row]
        v = desk[products.vector(s, layout.SPECTRUM_VAR) + row]
        w[at_vector(SPECTRUM_VAR, d) + 8 * row + k] = v
    clocks[i, POOL_SAMPLES] = desk[layout.POOL_SAMPLES]
    clocks[i, POOL_FRAMES] = desk[layout.POOL_FRAMES]


def _step(
    body: Any,
    clocks: Any,
    pools: Any,
    observations: Any,
    present: Any,
    fresh: Any,
    counts: Any,
    steps: Any,
    which: Any,
    head: Any,
    tables: Any,
    known: Any,
    tolerance: float,
    only_check: bool,
    begin: int,
    end: int,
    status: Any,
) -> None:
    """One frame for the blocks of tracks from ``begin`` to before ``end``.

    body: flat, ``(blocks, size, 8)``; clocks ``(8 blocks, 9)``; pools
    ``(8 blocks or 0, d (d + 1) / 2)``; counts and which ``(1 or n,)``; steps ``(K, 7)``, of which
    the first is an interval of no length, for tracks that are fresh. An invalid observation counts
    as missing for its own track.
    """
    d = observations.shape[1]
    rotation, information = head[ROTATION] != 0.0, head[INFORMATION] != 0.0
    size = d * d + (4 if information else 1) * (d * (d - 1) // 2) + 2 * d
    n = present.size
    w, lane = np.zeros(at_vector(4, d)), np.zeros(N_LANES)
    s = -(-d // 8) * 8
    desk = rows.new_desk(head, d, s)
    if head[KNOWN] != 0.0:
        rows.use_tables(desk, tables, known, 0, d, s)
    for block in range(begin, end):
        first = 8 * block
        gather(observations, present, first, w, lane, d)
        if rotation:
            check_rotations(w, lane, d, tolerance)
        else:
            check_covariances(w, lane, d, tolerance)
        judge(observations, first, w, lane, d, tolerance < 0.0, status)
        if only_check:
            continue
        open_block(body, block, size, w, information, d)
        for k in range(8):
            i = first + k
            pooling = (
                clocks[i, POOL_SAMPLES] < head[WARMUP_SAMPLES]
                and clocks[i, POOL_FRAMES] < head[WARMUP_FRAMES]
            )
            there, started = lane[THERE + k] > 0.5, not math.isnan(clocks[i, SEEN_AT])
            own = min(i, n - 1)
            interval = 0 if fresh[i] else which[min(own, which.size - 1)]
            fresh[i] = False
            moves = started and not pooling
            numbers = steps[interval]
            lane[MOVES + k] = 1.0 if moves else 0.0
            lane[TURN + k] = numbers[0] if moves else 0.0
            lane[DECAY + k] = (numbers[1] if there else numbers[2]) if moves else 1.0
            lane[ANGLE + k] = numbers[3] if moves else 0.0
            lane[CROSS + k] = numbers[4] if moves else 0.0
            lane[RATE + k] = numbers[5] if moves else 0.0
            dt = numbers[6]
            lane[DT + k] = dt
            lane[DUE + k] = 0.0
            strength = counts[min(own, counts.size - 1)]
            lane[STRENGTH + k] = strength
            clocks[i, TIME] += dt
            clocks[i, NIS_AT] = math.nan
            clocks[i, LIKELIHOOD] = math.nan
            if there:
                clocks[i, SEEN_AT] = clocks[i, TIME]
            if moves and dt > 0.0:
                clocks[i, STEPS] += 1.0
                if clocks[i, STEPS] % POLISH_EVERY == 0.0:
                    lane[DUE + k] = 1.0
            if moves and head[SCALE_RATE] != 0.0:
                keep = head[SCALE_RETENTION] ** dt
                clocks[i, LOG_SCALE] *= keep
                clocks[i, SCALE_VAR] = keep * keep * clocks[i, SCALE_VAR] + head[SCALE_RATE] * dt
            lane[STARTS + k] = 0.0
            if rotation and there and not started:
                lane[STARTS + k] = 1.0
                lane[THERE + k] = 0.0
            if pooling and there and not rotation:
                pool_lane(w, k, clocks, pools, i, desk, strength, d)
                lane[THERE + k] = 0.0
        drift(w, lane, head, d)
        if rotation:
            start_rotations(w, lane, information, d)
            measure_rotations(w, lane, head, d)
        else:
            measure_covariances(w, lane, clocks, first, d, head[NOISE_FLOOR])
        correct(w, lane, head, tables, d)
        turn_frames(w, lane, d)
        for k in range(8):
            if lane[THERE + k] < 0.5:
                continue
            i, m = first + k, lane[STRENGTH + k]
            terms = lane[LOGS + k] + lane[RATIOS + k]
            clocks[i, NIS_AT] = lane[NIS + k]
            if rotation:
                terms += 0.5 * d * (d - 1) * LOG_TWO_PI
                clocks[i, LIKELIHOOD] = -0.5 * terms
                continue
            terms += d * (LOG_TWO_PI + clocks[i, LOG_SCALE])
            clocks[i, LIKELIHOOD] = -0.5 * m * terms
            if head[SCALE_RATE] != 0.0:
                ratio = 0.0
                for j in range(d):
                    own_power = w[at_vector(POWER, d) + 8 * j + k]
                    ratio += own_power / w[at_vector(SPECTRUM, d) + 8 * j + k]
                var = clocks[i, SCALE_VAR]
                gain = var / (var + 2.0 / (m * d))
                clocks[i, LOG_SCALE] += math.log1p(gain * (ratio / d - 1.0))
                clocks[i, SCALE_VAR] = (1.0 - gain) * var
        if head[SPECTRUM_RATE] != 0.0:
            adapt_spectra(w, lane, d, head[NOISE_FLOOR])
        close_block(w, body, block, size, information, d)


@jit
def start_rotations(w: Any, lane: Any, information: bool, d: int) -> None:
    """Tracks whose first rotation this is begin at it, as uncertain as it is."""
    half, starts = spread(0.5), load(lane, STARTS)
    if not any_above(starts, half):
        return
    frame, seen, m11 = at_matrix(FRAME, d), at_matrix(SEEN, d), at_planes(P11, d)
    for at in range(0, 8 * d * d, 8):
        new = above(starts, half, load(w, seen + at), load(w, frame + at))
        store(w, frame + at, new)
    if information:
        limit, noise = spread(ANGLE_VARIANCE_LIMIT), load(lane, STRENGTH)
        noise = above(noise, limit, limit, noise)
        for p in range(0, 4 * d * (d - 1), 8):
            store(w, m11 + p, above(starts, half, noise, load(w, m11 + p)))


@lru_cache(maxsize=2)
def step(number: str) -> Any:
    """The loop `_step` for blocks of "float64" or "float32"."""
    signature = (
        f"void({number}[::1], float64[:, ::1], float64[:, ::1], {number}[:, :, ::1],"
        " boolean[::1], boolean[::1], float64[::1], float64[:, ::1], int64[::1], float64[::1],"
        " float64[:, :, :, ::1], float64[:, ::1], float64, boolean, int64, int64, int8[::1])"
    )
    return compiled(signature)(_step)
