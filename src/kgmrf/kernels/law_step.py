"""The verbs of single laws, eight tracks at a time: drift, measure, correct, adapt.

Here the eight lanes of :mod:`kgmrf.kernels.lanes` are eight tracks, and every line does the same
for all of them; where they part (no observation, not started, invalid), the result is chosen lane
by lane, so that no track can touch another. The work space ``w`` and the numbers ``lane`` are those
of :mod:`kgmrf.kernels.blocks`; :mod:`kgmrf.step` says what the verbs mean.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.kernels.blocks import (
    ANGLE,
    CROSS,
    DECAY,
    DT,
    DUE,
    FRAME,
    GAIN,
    HALVINGS,
    LEVEL,
    LOGS,
    MOVES,
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
    SQUARES,
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
    at_work,
    copy,
    multiply,
    polish,
)
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, any_above, div, fma, load, spread, store
from kgmrf.kernels.layout import (
    INFORMATION,
    LIMIT,
    LOG_SCALE,
    NOISE_FLOOR,
    RATE_LIMIT,
    RIDGE,
    ROTATION,
    SPECTRUM_RATE,
)
from kgmrf.kernels.plane import correct as correct_plane
from kgmrf.kernels.plane import widen, within_circle
from kgmrf.kernels.products import EXP1, EXP2, EXP3, EXP4, EXP5, EXP6, REACH
from kgmrf.step import SMALLEST_SPECTRUM

# ----------------------------------------------------------------------- drift


@jit
def turn_frames(w: Any, lane: Any, d: int) -> None:
    """Q <- Q Exp(X), X in TURNING (which is used up)."""
    x, a2, b = at_matrix(TURNING, d), at_matrix(SQUARE, d), at_matrix(B, d)
    c, e = at_matrix(C, d), at_matrix(E, d)
    squares = spread(0.0)
    for i in range(d):
        for j in range(i + 1, d):
            v = load(w, x + 8 * (i * d + j))
            squares = fma(v, v, squares)
    store(lane, NORM, squares)
    most, moves = 0, False
    for k in range(8):  # each lane has its own number of halvings, whatever its neighbours do
        halvings = 0
        moves = moves or lane[NORM + k] != 0.0
        if lane[NORM + k] < math.inf:
            size = math.sqrt(lane[NORM + k])
            while size > REACH:
                size *= 0.5
                halvings += 1
        lane[HALVINGS + k], lane[SIZE + k] = halvings, 0.5**halvings
        most = max(most, halvings)
    if not moves:
        return
    n = 8 * d * d
    if most > 0:
        share = load(lane, SIZE)
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
    own = load(lane, HALVINGS)
    for done in range(most):
        multiply(w, move, False, move, other, move, 2.0, False, d)
        for at in range(0, n, 8):
            new = above(own, spread(float(done)), load(w, other + at), load(w, move + at))
            store(w, other + at, new)
        move, other = other, move
    multiply(w, FRAME, False, move, c, FRAME, 1.0, False, d)
    copy(w, c, FRAME, d)
    if most > 0:  # squaring doubles what the series leaves
        polish(w, FRAME, d)
        for at in range(0, n, 8):
            new = above(own, spread(0.5), load(w, c + at), load(w, FRAME + at))
            store(w, FRAME + at, new)


@jit
def drift(w: Any, lane: Any, head: Any, d: int) -> None:
    """Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise, with each lane's own numbers."""
    x, velocity = at_matrix(TURNING, d), at_planes(VELOCITY, d)
    m11, m12, m22 = at_planes(P11, d), at_planes(P12, d), at_planes(P22, d)
    turn, decay = load(lane, TURN), load(lane, DECAY)
    zero, moves, half = spread(0.0), load(lane, MOVES), spread(0.5)
    information, most = head[INFORMATION] != 0.0, head[RATE_LIMIT]
    p = 0
    for i in range(d):
        store(w, x + 8 * (i * d + i), zero)
        for j in range(i + 1, d):
            v = load(w, velocity + p)
            store(w, x + 8 * (i * d + j), turn * v)
            store(w, x + 8 * (j * d + i), zero - turn * v)
            store(w, velocity + p, decay * v)
            if information:
                o11, o12, o22 = load(w, m11 + p), load(w, m12 + p), load(w, m22 + p)
                angle, cross, rate = load(lane, ANGLE), load(lane, CROSS), load(lane, RATE)
                p11, p12, p22 = widen(o11, o12, o22, turn, decay, angle, cross, rate)
                p11, p12, p22 = within_circle(p11, p12, p22, most)
                store(w, m11 + p, above(moves, half, p11, o11))
                store(w, m12 + p, above(moves, half, p12, o12))
                store(w, m22 + p, above(moves, half, p22, o22))
            p += 8
    turn_frames(w, lane, d)
    due = load(lane, DUE)
    if any_above(due, half):
        clean = at_matrix(C, d)
        polish(w, FRAME, d)
        for at in range(0, 8 * d * d, 8):
            new = above(due, half, load(w, clean + at), load(w, FRAME + at))
            store(w, FRAME + at, new)
    if head[SPECTRUM_RATE] != 0.0:
        var = at_vector(SPECTRUM_VAR, d)
        wider = moves * spread(head[SPECTRUM_RATE]) * load(lane, DT)
        for j in range(0, 8 * d, 8):
            store(w, var + j, load(w, var + j) + wider)


# ----------------------------------------------------------------------- correct and kick


@jit
def gain_of(tables: Any, tracks: Any, lane: Any, which: int, i: int, j: int) -> Any:
    """A fixed gain of plane (i, j) for every lane."""
    if tables.shape[0] == 1:
        return spread(tables[0, which, i, j])
    for k in range(8):
        lane[GAIN + k] = tables[min(tracks[k], tables.shape[0] - 1), which, i, j]
    return load(lane, GAIN)


@jit
def correct(w: Any, lane: Any, head: Any, tables: Any, tracks: Any, d: int) -> None:
    """Turns and kicks where THERE; the residuals are the planes i < j of SQUARE."""
    x, residual = at_matrix(TURNING, d), at_matrix(SQUARE, d)
    velocity, lam, level = at_planes(VELOCITY, d), at_vector(SPECTRUM, d), at_work(LEVEL, d)
    m11, m12, m22 = at_planes(P11, d), at_planes(P12, d), at_planes(P22, d)
    zero, one, half, there = spread(0.0), spread(1.0), spread(0.5), load(lane, THERE)
    gap, information = head[ROTATION] == 0.0, head[INFORMATION] != 0.0
    strength, squares = load(lane, STRENGTH), zero
    if not gap:
        strength = div(one, strength)
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
        inverse = div(one, load(w, level + 8 * i)) if gap else one
        for j in range(i + 1, d):
            r, old = load(w, residual + 8 * (i * d + j)), load(w, velocity + p)
            sensitivity = load(w, lam + 8 * j) - load(w, lam + 8 * i) if gap else one
            if information:
                # In units of the noise, d_i d_j / m: products of eigenvalues may underflow.
                other = div(strength, load(w, level + 8 * j)) if gap else strength
                near = sensitivity * inverse
                share, weight = r * inverse, sensitivity * other
                o11, o12, o22 = load(w, m11 + p), load(w, m12 + p), load(w, m22 + p)
                turn, kick, p11, p12, p22, rest = correct_plane(
                    o11, o12, o22, share * weight, near * weight, one
                )
                store(w, m11 + p, above(there, half, p11, o11))
                store(w, m12 + p, above(there, half, p12, o12))
                store(w, m22 + p, above(there, half, p22, o22))
                squares = squares + share * (r * other) * rest
            else:
                pull = r
                if gap:
                    stiffness = fma(sensitivity, sensitivity, ridge)
                    stiffness = above(stiffness, zero, stiffness, one)
                    pull = div(r * sensitivity, stiffness)
                turn = gain_of(tables, tracks, lane, 0, i, j) * pull
                kick = gain_of(tables, tracks, lane, 1, i, j) * pull
            turn = above(there, half, turn, zero)
            store(w, x + 8 * (i * d + j), turn)
            store(w, x + 8 * (j * d + i), zero - turn)
            store(w, velocity + p, above(there, half, old + kick, old))
            p += 8
    store(lane, SQUARES, squares if information else spread(math.nan))


@jit
def measure_covariances(w: Any, lane: Any, head: Any, d: int) -> None:
    """C~ = u Q^T C Q / e^s into SQUARE, its diagonal into POWER; log-likelihood terms.

    u <= 1 shrinks an observation whose z = sum C~_ii / d_i is beyond LIMIT times d.
    """
    seen, body, part = at_matrix(SEEN, d), at_matrix(SQUARE, d), at_matrix(TURNING, d)
    power, level, lam = at_work(POWER, d), at_work(LEVEL, d), at_vector(SPECTRUM, d)
    multiply(w, seen, False, FRAME, part, seen, 0.0, False, d)
    multiply(w, FRAME, True, part, body, seen, 0.0, True, d)
    scaled = False
    for k in range(8):
        scale = w[8 * LOG_SCALE + k]
        scaled = scaled or scale != 0.0
        lane[SIZE + k] = math.exp(-scale) if scale != 0.0 else 1.0
        lane[LOGS + k] = 0.0
    shrink = load(lane, SIZE)
    product, ratios, one = spread(1.0), spread(0.0), spread(1.0)
    low, high = spread(1e-100), spread(1e100)
    for i in range(d):
        v = load(w, lam + 8 * i) + spread(head[NOISE_FLOOR])
        own = shrink * load(w, body + 8 * (i * d + i))
        store(w, power + 8 * i, own)
        store(w, level + 8 * i, v)
        ratios = ratios + div(own, v)
        product = product * v
        if i == d - 1 or any_above(product, high) or any_above(low, product):
            store(lane, PRODUCT, product)
            for k in range(8):
                v = lane[PRODUCT + k]
                if lane[THERE + k] > 0.5 and (i == d - 1 or not 1e-100 < v < 1e100):
                    lane[LOGS + k] += math.log(v)
                    lane[PRODUCT + k] = 1.0
            product = load(lane, PRODUCT)
    store(lane, RATIOS, ratios)
    most = spread(head[LIMIT] * d)
    if scaled or any_above(ratios, most):
        u = above(ratios, most, div(most, ratios), one)
        for i in range(d):
            store(w, power + 8 * i, u * load(w, power + 8 * i))
            for j in range(d):
                at = body + 8 * (i * d + j)
                store(w, at, u * (shrink * load(w, at)))


@jit
def adapt_spectra(w: Any, lane: Any, d: int, floor: float) -> None:
    """log d_i += log1p(k (C~_ii / d_i - 1)) where THERE."""
    power, level = at_work(POWER, d), at_work(LEVEL, d)
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
    square = x * x + y * y + z * z
    if square < 0.01 * q * q:
        u = square / (q * q)  # atan(t) / t
        series = 1 / 15 - u * (1 / 17)
        series = 1 / 11 - u * (1 / 13 - u * series)
        series = 1 / 7 - u * (1 / 9 - u * series)
        series = 1.0 - u * (1 / 3 - u * (1 / 5 - u * series))
        factor = 2.0 * series / q
    else:
        length = math.sqrt(square)
        factor = 2.0 * math.atan2(length, q) / length
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
