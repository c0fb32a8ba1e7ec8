"""Single laws for eight tracks side by side: the step of :mod:`kgmrf.kernels.law`, faster.

Most tracks of a bank move by the same step: running, observed, information gains, few channels.
Then the eight lanes are eight tracks: number k of their rows is the eight numbers from 8 k on, so a
block is opened and closed by transposing rows. Every sum is taken in the order of the step for one
track, so both give the same bits (but for the last one of a logarithm). What is not plain in a
block, that step does.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from kgmrf.kernels import layout as row
from kgmrf.kernels.check import OBSERVED, are_covariances, fits_side_by_side, side_by_side
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import (
    above,
    after,
    any_above,
    dense_row,
    div,
    flip,
    fma,
    load,
    root,
    spread,
    store,
)
from kgmrf.kernels.law_places import ANGLE, CROSS, DT, KEEP, LOG_TWO_PI, N_STEP, RATE, TURN
from kgmrf.kernels.plane import correct, widen, within_circle
from kgmrf.kernels.products import FEW_HALVINGS, REACH, note_square, note_sums
from kgmrf.kernels.turning import expect, move, polish_is_due
from kgmrf.state import SMALLEST_SPECTRUM

LARGEST_FLOAT = sys.float_info.max

# Places of a block: parts of the rows; matrices; eigenvalues of the observations, their inverses,
# C~_ii and angles to turn by; the interval and m of every track; eight partial sums; sizes.
FRAME, LAM, LAM_VAR, MOVING, SEEN, SKEW, SQUARE, B, C, E = range(10)
LEVEL, INVERSE, POWER, PLANES, OVER, STRENGTH, SUMS, END, D, N = range(10, 20)
N_BLOCK = 20


@jit
def set_block(o: Any, d: int) -> None:
    """Fill ``o`` for dimension d."""
    o[D], o[N] = d, d * (d - 1) // 2
    o[FRAME] = 8 * row.N_CLOCKS
    o[LAM] = o[FRAME] + 8 * d * d
    o[LAM_VAR] = o[LAM] + 8 * d
    o[MOVING] = o[LAM_VAR] + 8 * d
    o[SEEN] = o[MOVING] + 32 * o[N]
    for k in range(SKEW, LEVEL + 1):
        o[k] = o[k - 1] + 8 * d * d
    for k in range(INVERSE, PLANES + 1):
        o[k] = o[k - 1] + 8 * d
    o[OVER] = o[PLANES] + 8 * o[N]
    o[STRENGTH] = o[OVER] + 8 * N_STEP
    o[SUMS] = o[STRENGTH] + 8
    o[END] = o[SUMS] + 64


@jit
def multiply(
    w: Any, a: int, down: int, along: int, b: int, c: int, plus: int, share: float, d: int
) -> None:
    """C = share PLUS + A B; C may be A or PLUS.

    A begins at ``a``; ``down`` leads to its next row, ``along`` to its next column.
    """
    weight = spread(share)
    for i in range(0, 8 * d * d, 8 * d):
        if d == 7:
            dense_row(w, a, along, b, c + i, plus + i, weight, 7)
        elif d == 8:
            dense_row(w, a, along, b, c + i, plus + i, weight, 8)
        elif d == 6:
            dense_row(w, a, along, b, c + i, plus + i, weight, 6)
        elif d == 5:
            dense_row(w, a, along, b, c + i, plus + i, weight, 5)
        else:
            dense_row(w, a, along, b, c + i, plus + i, weight, 4)
        a += down


@jit
def clear(w: Any, sums: int) -> None:
    """Begin eight partial sums."""
    for k in range(0, 64, 8):
        store(w, sums + k, spread(0.0))


@jit
def added(w: Any, sums: int) -> Any:
    """The eight partial sums in pairs, as `lanes.total` adds lanes."""
    low = (load(w, sums) + load(w, sums + 8)) + (load(w, sums + 16) + load(w, sums + 24))
    high = (load(w, sums + 32) + load(w, sums + 40)) + (load(w, sums + 48) + load(w, sums + 56))
    return low + high


@jit
def polish(w: Any, o: Any, due: Any) -> None:
    """Q <- Q + Q (I - Q^T Q) / 2 in tracks with due > 0."""
    d, q, g, h = o[D], o[FRAME], o[SQUARE], o[B]
    multiply(w, q, 8, 8 * d, q, g, q, 0.0, d)
    for k in range(0, 8 * d * d, 8):
        store(w, g + k, spread(-0.5) * load(w, g + k))
    for k in range(0, 8 * d * d, 8 * (d + 1)):
        store(w, g + k, load(w, g + k) + spread(0.5))
    multiply(w, q, 8 * d, 8, g, h, q, 1.0, d)
    for k in range(0, 8 * d * d, 8):
        store(w, q + k, above(due, spread(0.0), load(w, h + k), load(w, q + k)))


@jit
def turn(w: Any, o: Any, planes: int, share: Any) -> None:
    """Q <- Q Exp(share X), X skew with these planes: `turn_frame`."""
    d, sums = o[D], o[SUMS]
    x, a2, b, c, e = o[SKEW], o[SQUARE], o[B], o[C], o[E]
    zero, half, reach = spread(0.0), spread(0.5), spread(REACH)
    clear(w, sums)
    for p in range(0, 8 * o[N], 8):
        v, at = load(w, planes + p), sums + p % 64
        store(w, at, fma(v, v, load(w, at)))
    size = above(share, zero, share, zero - share) * root(added(w, sums))
    size = above(size, spread(LARGEST_FLOAT), zero, size)
    halvings, most = zero, 0
    while any_above(size, reach):
        halvings = above(size, reach, halvings + spread(1.0), halvings)
        share = above(size, reach, half * share, share)
        size = above(size, reach, half * size, size)
        most += 1
    p = planes
    for i in range(0, 8 * d, 8):
        store(w, x + i * d + i, zero)
        for j in range(0, i, 8):
            v = share * load(w, p)
            store(w, x + i * d + j, v)
            store(w, x + j * d + i, zero - v)
            p += 8
    multiply(w, x, 8 * d, 8, x, a2, x, 0.0, d)
    for k in range(0, 8 * d * d, 8):
        note_square(w, x + k, a2 + k, b + k, load(w, a2 + k))
    multiply(w, a2, 8 * d, 8, b, c, a2, 0.0, d)
    for k in range(0, 8 * d * d, 8):
        note_sums(w, x + k, a2 + k, b + k, c + k, e + k, load(w, c + k))
    multiply(w, b, 8 * d, 8, e, a2, c, 1.0, d)
    for done in range(most):
        multiply(w, a2, 8 * d, 8, a2, b, a2, 2.0, d)
        for k in range(0, 8 * d * d, 8):
            store(w, a2 + k, above(halvings, spread(done), load(w, b + k), load(w, a2 + k)))
    multiply(w, o[FRAME], 8 * d, 8, a2, o[FRAME], o[FRAME], 1.0, d)
    if most > FEW_HALVINGS:
        polish(w, o, halvings - spread(FEW_HALVINGS))


@jit
def drift(w: Any, o: Any, head: Any) -> None:
    """Frames turn, clocks go on and widen; velocities and planes wait for `correct_block`."""
    turn(w, o, o[MOVING], load(w, o[OVER] + 8 * TURN))
    dt, due, zero = load(w, o[OVER] + 8 * DT), 0.0, spread(0.0)
    if head[row.SPECTRUM_RATE] != 0.0:
        for p in range(o[LAM_VAR], o[MOVING], 8):
            store(w, p, fma(spread(head[row.SPECTRUM_RATE]), dt, load(w, p)))
    time = load(w, 8 * row.TIME) + dt
    store(w, 8 * row.TIME, time)
    store(w, 8 * row.SEEN, time)
    moved = above(dt, zero, spread(1.0), zero)
    store(w, 8 * row.STEPS, load(w, 8 * row.STEPS) + moved)
    store(w, o[SUMS], moved)
    for k in range(8):
        if not polish_is_due(w[8 * row.STEPS + k]):
            w[o[SUMS] + k] = 0.0
        due += w[o[SUMS] + k]
    if due > 0.0:
        polish(w, o, load(w, o[SUMS]))


@jit
def measure(w: Any, o: Any, head: Any) -> None:
    """C~ = u Q^T C Q into C, its diagonal and eigenvalues beside it: `law.measure`."""
    d, body, sums = o[D], o[C], o[SUMS]
    multiply(w, o[SEEN], 8 * d, 8, o[FRAME], o[SQUARE], o[SEEN], 0.0, d)
    multiply(w, o[FRAME], 8, 8 * d, o[SQUARE], body, o[SQUARE], 0.0, d)
    one, z, product = spread(1.0), spread(0.0), spread(1.0)
    store(w, sums, z)
    for i in range(0, 8 * d, 8):
        v, own = load(w, o[LAM] + i) + spread(head[row.NOISE_FLOOR]), load(w, body + i * d + i)
        inverse = div(one, v)
        store(w, o[LEVEL] + i, v)
        store(w, o[INVERSE] + i, inverse)
        store(w, o[POWER] + i, own)
        z = z + own * inverse
        product = product * v
        if any_above(spread(1e-99), product) or any_above(product, spread(1e99)):
            store(w, sums + 8, product)
            for k in range(8):
                if not 1e-100 < w[sums + 8 + k] < 1e100:
                    w[sums + k] += math.log(w[sums + 8 + k])
                    w[sums + 8 + k] = 1.0
            product = load(w, sums + 8)
    store(w, sums + 8, product)
    store(w, sums + 16, z)
    for k in range(8):
        terms = w[sums + k] + math.log(w[sums + 8 + k]) + w[sums + 16 + k] + d * LOG_TWO_PI
        w[8 * row.LIKELIHOOD + k] = -0.5 * w[o[STRENGTH] + k] * terms
    most = spread(head[row.LIMIT] * d)
    if any_above(z, most):
        share = above(z, most, div(most, z), one)
        for k in range(0, 8 * d, 8):
            store(w, o[POWER] + k, share * load(w, o[POWER] + k))
        for k in range(0, 8 * d * d, 8):
            store(w, body + k, share * load(w, body + k))


@jit
def correct_block(w: Any, o: Any, head: Any) -> None:
    """Planes widen and are corrected, the frames turn: `widen_planes` to `correct_planes`."""
    d, over, at, room = o[D], o[OVER], o[PLANES], 8 * o[N]
    ahead, keep = load(w, over + 8 * TURN), load(w, over + 8 * KEEP)
    angles, crosses = load(w, over + 8 * ANGLE), load(w, over + 8 * CROSS)
    rates, m, one = load(w, over + 8 * RATE), load(w, o[STRENGTH]), spread(1.0)
    clear(w, o[SUMS])
    for i in range(0, 8 * d, 8):
        level, own = load(w, o[LAM] + i), load(w, o[INVERSE] + i)
        for j in range(0, i, 8):
            p, sums = o[MOVING] + at - o[PLANES], o[SUMS] + (at - o[PLANES]) % 64
            p11, p12 = load(w, p + room), load(w, p + 2 * room)
            p22, velocity = load(w, p + 3 * room), keep * load(w, p)
            p11, p12, p22 = widen(p11, p12, p22, ahead, keep, angles, crosses, rates)
            p11, p12, p22 = within_circle(p11, p12, p22, head[row.RATE_LIMIT])
            r, gap = load(w, o[C] + i * d + j), load(w, o[LAM] + j) - level  # the sign of -C~ G
            other = m * load(w, o[INVERSE] + j)
            share, weight = r * own, gap * other
            pull, information = share * weight, gap * own * weight
            angle, kick, p11, p12, p22, rest = correct(p11, p12, p22, pull, information, one)
            store(w, sums, fma(share * (r * other), rest, load(w, sums)))
            store(w, at, angle)
            store(w, p, velocity + kick)
            store(w, p + room, p11)
            store(w, p + 2 * room, p12)
            store(w, p + 3 * room, p22)
            at += 8
    store(w, 8 * row.NIS, added(w, o[SUMS]))
    turn(w, o, o[PLANES], one)


@jit
def adapt(w: Any, o: Any, head: Any) -> None:
    """log d_i += log1p(k (C~_ii / d_i - 1)): `law.adapt`."""
    one, most = spread(1.0), spread(0.0)
    noise = div(spread(2.0), load(w, o[STRENGTH]))
    for k in range(0, 8 * o[D], 8):
        wide = load(w, o[LAM_VAR] + k)
        gains = div(wide, wide + noise)
        relative = load(w, o[POWER] + k) * load(w, o[INVERSE] + k) - one
        v = load(w, o[LEVEL] + k) * (one + gains * relative)
        store(w, o[LEVEL] + k, v)
        store(w, o[LAM_VAR] + k, (one - gains) * wide)
        most = above(v, most, v, most)
    least = spread(SMALLEST_SPECTRUM) * most
    for k in range(0, 8 * o[D], 8):
        v = load(w, o[LEVEL] + k) - spread(head[row.NOISE_FLOOR])
        store(w, o[LAM] + k, above(v, least, v, least))


@jit
def pools(a: Any, clocks: int, head: Any) -> bool:
    """Whether a track with these clocks has seen too little to start."""
    few = a[clocks + row.POOL_SAMPLES] < head[row.WARMUP_SAMPLES]
    return few and a[clocks + row.POOL_FRAMES] < head[row.WARMUP_FRAMES]


@jit
def plain(head: Any, d: int) -> bool:
    """Whether this law can move tracks side by side."""
    clock = head[row.SCALE_RATE] != 0.0
    return head[row.INFORMATION] != 0.0 and not clock and fits_side_by_side(d)


@jit
def alike(a: Any, size: int, which: Any, present: Any, head: Any) -> bool:
    """Whether eight lines are of tracks that lie one after the other, all running and observed."""
    for i in range(8):
        clocks = (which[0] + i) * size
        if which[i] != which[0] + i or present[i] <= 0 or pools(a, clocks, head):
            return False
        if math.isnan(a[clocks + row.SEEN]) or a[clocks + row.LOG_SCALE] != 0.0:
            return False
    return True


@jit
def step_block(
    w: Any, o: Any, head: Any, a: Any, q: int, size: int, seen: Any, at: int, tolerance: float
) -> bool:
    """One line of each of eight tracks, whose rows begin at q, with OVER and STRENGTH filled in.

    False, and nothing has changed, if an observation is missing or invalid. Meanwhile the next
    eight rows come into the cache, some at a time, for a processor waits if it is asked for many.
    """
    d, n, pair = o[D], o[SEEN] // 8, 2 * size
    side_by_side(seen, at, d * d, w, o[SEEN], d * d)
    if not are_covariances(w, o[SEEN], o[B], d, tolerance):
        return False
    side_by_side(a, q, size, w, 0, n)
    expect(seen, at + 8 * d * d, 8 * d * d)
    expect(a, q + 4 * pair, pair)
    drift(w, o, head)
    expect(a, q + 5 * pair, pair)
    measure(w, o, head)
    expect(a, q + 6 * pair, pair)
    correct_block(w, o, head)
    expect(a, q + 7 * pair, pair)
    if head[row.SPECTRUM_RATE] != 0.0:
        adapt(w, o, head)
    for k in range(0, n - 7, 8):
        flip(w, 8 * k, 8, a, q + k, size)
    flip(w, 8 * (n - 8), 8, a, q + n - 8, size)
    return True


@jit
def run_blocks(
    w: Any,
    o: Any,
    head: Any,
    over: Any,
    a: Any,
    size: int,
    line: int,
    lines: int,
    given: Any,
    tolerance: float,
    taken: Any,
) -> int:
    """Take in lines from ``line`` on, eight at a time, up to one that has to go alone.

    Returns where that is. given: which, present, strength, interval and seen, taken: status,
    records and room, all as in `law.loop`.
    """
    which, present, strength, interval, seen = given
    status, records, room = taken
    while line + 8 <= lines and alike(a, size, after(which, line), after(present, line), head):
        for i in range(8):
            w[o[STRENGTH] + i] = strength[line + i]
            for j in range(N_STEP):
                w[o[OVER] + 8 * j + i] = over[N_STEP * interval[line + i] + j]
        q = which[line] * size
        if not step_block(w, o, head, a, q, size, seen, line * o[D] * o[D], tolerance):
            break
        for i in range(8):
            status[line + i] = OBSERVED
            if room:
                move(a, q + i * size, records, (line + i) * room, room)
        line += 8
    return line
