"""The verbs of single laws, eight tracks at a time: drift, measure, correct, adapt.

Here the eight lanes of :mod:`kgmrf.kernels.lanes` are eight tracks, and every line does the same
for all of them; where they part (no observation, not started, invalid), the result is chosen lane
by lane, so that no track can touch another. The work space ``w`` and the numbers ``lane`` are those
of :mod:`kgmrf.kernels.blocks`; :mod:`kgmrf.step` says what the verbs mean.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.kernels import blocks as on
from kgmrf.kernels import layout as row
from kgmrf.kernels.blocks import at_matrix, at_planes, at_vector, at_work, copy, multiply, polish
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, any_above, div, fma, load, spread, store
from kgmrf.kernels.plane import correct as correct_plane
from kgmrf.kernels.plane import widen, within_circle
from kgmrf.kernels.products import EXP1, EXP2, EXP3, EXP4, EXP5, EXP6, FEW_HALVINGS, REACH
from kgmrf.step import SMALLEST_SPECTRUM

# ----------------------------------------------------------------------- drift


@jit
def turn_frames(w: Any, lane: Any, d: int) -> None:
    """Q <- Q Exp(X), X in TURNING (which is used up)."""
    x, a2, b = at_matrix(on.TURNING, d), at_matrix(on.SQUARE, d), at_matrix(on.B, d)
    c, e = at_matrix(on.C, d), at_matrix(on.E, d)
    squares = spread(0.0)
    for i in range(d):
        for j in range(i + 1, d):
            v = load(w, x + 8 * (i * d + j))
            squares = fma(v, v, squares)
    store(lane, on.NORM, squares)
    most, moves = 0, False
    for k in range(8):  # each lane has its own number of halvings, whatever its neighbours do
        halvings = 0
        moves = moves or lane[on.NORM + k] != 0.0
        if lane[on.NORM + k] < math.inf:
            size = math.sqrt(lane[on.NORM + k])
            while size > REACH:
                size *= 0.5
                halvings += 1
        lane[on.HALVINGS + k], lane[on.SIZE + k] = halvings, 0.5**halvings
        most = max(most, halvings)
    if not moves:
        return
    n = 8 * d * d
    if most > 0:
        share = load(lane, on.SIZE)
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
    own = load(lane, on.HALVINGS)
    for done in range(most):
        multiply(w, move, False, move, other, move, 2.0, False, d)
        for at in range(0, n, 8):
            new = above(own, spread(float(done)), load(w, other + at), load(w, move + at))
            store(w, other + at, new)
        move, other = other, move
    multiply(w, on.FRAME, False, move, c, on.FRAME, 1.0, False, d)
    copy(w, c, on.FRAME, d)
    if most > FEW_HALVINGS:
        polish(w, on.FRAME, d)
        for at in range(0, n, 8):
            new = above(own, spread(FEW_HALVINGS + 0.5), load(w, c + at), load(w, on.FRAME + at))
            store(w, on.FRAME + at, new)


@jit
def drift(w: Any, lane: Any, head: Any, d: int) -> None:
    """Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise, with each lane's own numbers."""
    x, velocity = at_matrix(on.TURNING, d), at_planes(on.VELOCITY, d)
    m11, m12, m22 = at_planes(on.P11, d), at_planes(on.P12, d), at_planes(on.P22, d)
    turn, decay = load(lane, on.TURN), load(lane, on.DECAY)
    zero, moves, half = spread(0.0), load(lane, on.MOVES), spread(0.5)
    information, most = head[row.INFORMATION] != 0.0, head[row.RATE_LIMIT]
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
                angle, cross, rate = load(lane, on.ANGLE), load(lane, on.CROSS), load(lane, on.RATE)
                p11, p12, p22 = widen(o11, o12, o22, turn, decay, angle, cross, rate)
                p11, p12, p22 = within_circle(p11, p12, p22, most)
                store(w, m11 + p, above(moves, half, p11, o11))
                store(w, m12 + p, above(moves, half, p12, o12))
                store(w, m22 + p, above(moves, half, p22, o22))
            p += 8
    turn_frames(w, lane, d)
    due = load(lane, on.DUE)
    if any_above(due, half):
        clean = at_matrix(on.C, d)
        polish(w, on.FRAME, d)
        for at in range(0, 8 * d * d, 8):
            new = above(due, half, load(w, clean + at), load(w, on.FRAME + at))
            store(w, on.FRAME + at, new)
    if head[row.SPECTRUM_RATE] != 0.0:
        var = at_vector(on.SPECTRUM_VAR, d)
        wider = moves * spread(head[row.SPECTRUM_RATE]) * load(lane, on.DT)
        for j in range(0, 8 * d, 8):
            store(w, var + j, load(w, var + j) + wider)


# ----------------------------------------------------------------------- correct and kick


@jit
def gain_of(tables: Any, tracks: Any, lane: Any, which: int, i: int, j: int) -> Any:
    """A fixed gain of plane (i, j) for every lane."""
    if tables.shape[0] == 1:
        return spread(tables[0, which, i, j])
    for k in range(8):
        lane[on.GAIN + k] = tables[min(tracks[k], tables.shape[0] - 1), which, i, j]
    return load(lane, on.GAIN)


@jit
def correct(w: Any, lane: Any, head: Any, tables: Any, tracks: Any, d: int) -> None:
    """Turns and kicks where THERE; the residuals are the planes i < j of SQUARE."""
    x, residual = at_matrix(on.TURNING, d), at_matrix(on.SQUARE, d)
    velocity, lam, inverse = (
        at_planes(on.VELOCITY, d),
        at_vector(on.SPECTRUM, d),
        at_work(on.INVERSE, d),
    )
    m11, m12, m22 = at_planes(on.P11, d), at_planes(on.P12, d), at_planes(on.P22, d)
    zero, one, half, there = spread(0.0), spread(1.0), spread(0.5), load(lane, on.THERE)
    gap, information = head[row.ROTATION] == 0.0, head[row.INFORMATION] != 0.0
    strength, squares = load(lane, on.STRENGTH), zero
    if not gap:
        strength = div(one, strength)
    ridge = spread(head[row.RIDGE])
    if gap and not information and math.isnan(head[row.RIDGE]):
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
        near = load(w, inverse + 8 * i) if gap else one
        for j in range(i + 1, d):
            r, old = load(w, residual + 8 * (i * d + j)), load(w, velocity + p)
            sensitivity = load(w, lam + 8 * j) - load(w, lam + 8 * i) if gap else one
            if information:
                # In units of the noise, d_i d_j / m: products of eigenvalues may underflow.
                other = strength * load(w, inverse + 8 * j) if gap else strength
                share, weight = r * near, sensitivity * other
                o11, o12, o22 = load(w, m11 + p), load(w, m12 + p), load(w, m22 + p)
                turn, kick, p11, p12, p22, rest = correct_plane(
                    o11, o12, o22, share * weight, sensitivity * near * weight, one
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
    store(lane, on.SQUARES, squares if information else spread(math.nan))


@jit
def measure_covariances(w: Any, lane: Any, head: Any, d: int) -> None:
    """C~ = u Q^T C Q / e^s into SQUARE, its diagonal into POWER; log-likelihood terms.

    u <= 1 shrinks an observation whose z = sum C~_ii / d_i is beyond LIMIT times d.
    """
    seen, body, part = at_matrix(on.SEEN, d), at_matrix(on.SQUARE, d), at_matrix(on.TURNING, d)
    power, level, lam = at_work(on.POWER, d), at_work(on.LEVEL, d), at_vector(on.SPECTRUM, d)
    multiply(w, seen, False, on.FRAME, part, seen, 0.0, False, d)
    multiply(w, on.FRAME, True, part, body, seen, 0.0, True, d)
    scaled = False
    for k in range(8):
        scale = w[8 * row.LOG_SCALE + k]
        scaled = scaled or scale != 0.0
        lane[on.SIZE + k] = math.exp(-scale) if scale != 0.0 else 1.0
        lane[on.LOGS + k] = 0.0
    shrink = load(lane, on.SIZE)
    product, ratios, one = spread(1.0), spread(0.0), spread(1.0)
    low, high = spread(1e-100), spread(1e100)
    for i in range(d):
        v = load(w, lam + 8 * i) + spread(head[row.NOISE_FLOOR])
        own = shrink * load(w, body + 8 * (i * d + i))
        store(w, power + 8 * i, own)
        inverse = div(one, v)
        store(w, level + 8 * i, v)
        store(w, at_work(on.INVERSE, d) + 8 * i, inverse)
        ratios = fma(own, inverse, ratios)
        product = product * v
        if i == d - 1 or any_above(product, high) or any_above(low, product):
            store(lane, on.PRODUCT, product)
            for k in range(8):
                v = lane[on.PRODUCT + k]
                if lane[on.THERE + k] > 0.5 and (i == d - 1 or not 1e-100 < v < 1e100):
                    lane[on.LOGS + k] += math.log(v)
                    lane[on.PRODUCT + k] = 1.0
            product = load(lane, on.PRODUCT)
    store(lane, on.RATIOS, ratios)
    most = spread(head[row.LIMIT] * d)
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
    power, level, inverse = at_work(on.POWER, d), at_work(on.LEVEL, d), at_work(on.INVERSE, d)
    lam, var = at_vector(on.SPECTRUM, d), at_vector(on.SPECTRUM_VAR, d)
    one, half, there = spread(1.0), spread(0.5), load(lane, on.THERE)
    noise = div(spread(2.0), load(lane, on.STRENGTH))
    high = spread(0.0)
    for j in range(0, 8 * d, 8):
        v, old = load(w, var + j), load(w, level + j)
        gain = div(v, v + noise)
        new = old * fma(gain, load(w, power + j) * load(w, inverse + j) - one, one)
        store(w, level + j, new)
        store(w, var + j, above(there, half, (one - gain) * v, v))
        high = above(new, high, new, high)
    least = spread(SMALLEST_SPECTRUM) * high
    for j in range(0, 8 * d, 8):
        new = load(w, level + j) - spread(floor)
        new = above(least, new, least, new)
        store(w, lam + j, above(there, half, new, load(w, lam + j)))
