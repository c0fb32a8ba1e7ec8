"""The members of the compiled low-rank ensemble, and the algebra that they need.

The twin of :mod:`kgmrf.engines.low_rank_step`, where the formulas are told. The row of the track is
``w`` from ``base`` on, work is ``v`` at the offsets ``o``. Vectors over channels are taken eight
numbers at a time; what fills them up are channels that were never seen, of level 0. Small matrices
have a stride p that is a multiple of eight, and are filled up with zeros.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines import layout as row
from kgmrf.engines import low_rank_step as maths
from kgmrf.engines.ensemble_step import FLOOR, SIZE_RETENTION
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, div, fma, load, root, spread, store, total
from kgmrf.kernels.products import multiply, multiply_transposed

# Places of the work space. Vectors over channels (NOISES has one for each member, FACTORS and HALF
# one for each column) ...
X, OPEN, DEVIATION, KNOWN, Z, E, NOISE, Y, PRECISION, NOISES, FACTORS, HALF = range(12)
# ... square matrices and vectors of the blend's columns, and of the factors of a member ...
INNER, LEFT, B, OUT, ROOT, RIGHT, GRAM, SMALL, INVERSE, BR, SCORES, G, PG = range(12, 25)
# ... numbers of members and tails ...
WEIGHTS, GRADIENT, LOGS, SHARES = range(25, 29)
# ... and counts: channels, stride, columns of the blend; where level and buffer begin in a row.
DIMENSION, STRIDE, COLUMNS, LEVEL, BUFFER, ROWS, SIZE_OF_ROW, N_PLACES = range(29, 37)

# ----------------------------------------------------------------------- algebra


@jit
def dot(w: Any, a: int, v: Any, b: int, n: int) -> float:
    """sum_i w_(a + i) v_(b + i) for n a multiple of eight."""
    acc = spread(0.0)
    for i in range(0, n, 8):
        acc = fma(load(w, a + i), load(v, b + i), acc)
    return total(acc)


@jit
def add(w: Any, a: int, share: float, v: Any, b: int, n: int) -> None:
    """w_a += share v_b for n numbers, a multiple of eight."""
    part = spread(share)
    for i in range(0, n, 8):
        store(w, a + i, fma(part, load(v, b + i), load(w, a + i)))


@jit
def products(w: Any, a: int, v: Any, b: int, c: int, n: int, p: int, s: int) -> None:
    """C = A B^T ``(n, n)``, stride p, in v, symmetric, of rows of length s; four at a time."""
    for i in range(0, n, 2):
        a0 = a + i * s
        a1 = a0 + s if i + 1 < n else a0
        for j in range(0, i + 1, 2):
            b0 = b + j * s
            b1 = b0 + s if j + 1 < n else b0
            c00, c01, c10, c11 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
            for k in range(0, s, 8):
                x0, x1, y0, y1 = load(w, a0 + k), load(w, a1 + k), load(v, b0 + k), load(v, b1 + k)
                c00, c01 = fma(x0, y0, c00), fma(x0, y1, c01)
                c10, c11 = fma(x1, y0, c10), fma(x1, y1, c11)
            put(v, c, i, j, p, total(c00))
            if j + 1 < n:
                put(v, c, i, j + 1, p, total(c01))
            if i + 1 < n:
                put(v, c, i + 1, j, p, total(c10))
                if j + 1 < n:
                    put(v, c, i + 1, j + 1, p, total(c11))


@jit
def put(v: Any, c: int, i: int, j: int, p: int, x: float) -> None:
    """C_ij = C_ji = x."""
    v[c + i * p + j] = x
    v[c + j * p + i] = x


@jit
def cholesky(v: Any, a: int, n: int, p: int) -> float:
    """A = L L^T in place, zeros above; returns log |A|."""
    logs, product = 0.0, 1.0
    for i in range(n):
        row = a + i * p
        whole = v[row + i]
        for j in range(i + 1):
            other, most = a + j * p, 8 * (j // 8)
            acc = v[row + j]
            if most > 0:
                acc -= dot(v, row, v, other, most)
            for k in range(most, j):
                acc -= v[row + k] * v[other + k]
            if i == j:
                # Rounding may leave nothing of a pivot.
                acc = max(acc, max(1e-14 * whole, 1e-300))
                product *= acc
                if not 1e-100 < product < 1e100:
                    logs += math.log(product)
                    product = 1.0
                v[row + i] = math.sqrt(acc)
            else:
                v[row + j] = acc / v[other + j]
        for j in range(i + 1, n):
            v[row + j] = 0.0
    return logs + math.log(product)


@jit
def invert(v: Any, a: int, b: int, n: int, p: int) -> None:
    """B = L^-1 of a lower L, row by row."""
    for i in range(n):
        row = b + i * p
        end = 8 * (i // 8 + 1)
        for j in range(0, p, 8):
            store(v, row + j, spread(0.0))
        for k in range(i):
            add(v, row, -v[a + i * p + k], v, b + k * p, end)
        inverse = 1.0 / v[a + i * p + i]
        for j in range(i):
            v[row + j] *= inverse
        v[row + i] = inverse


@jit
def apply(v: Any, a: int, b: int, out: int, n: int, p: int) -> None:
    """out = A^T A b, for rows of length p that are filled up with zeros, as is b."""
    for j in range(0, p, 8):
        store(v, out + j, spread(0.0))
    for i in range(n):
        add(v, out, dot(v, a + i * p, v, b, p), v, a + i * p, p)


@jit
def project(w: Any, axes: int, j: int, n: int, s: int) -> float:
    """Row j without its part along the first n; returns its squared length."""
    a = axes + j * s
    for k in range(n):
        add(w, a, -dot(w, axes + k * s, w, a, s), w, axes + k * s, s)
    return dot(w, a, w, a, s)


@jit
def polish(w: Any, axes: int, r: int, s: int, level: int) -> None:
    """Gram-Schmidt, in place; an axis of which nothing is left becomes that of a channel."""
    for j in range(r):
        a = axes + j * s
        whole = dot(w, a, w, a, s)
        length = project(w, axes, j, j, s)
        if not length > maths.LOST * whole:
            channel = 0
            while channel < s and not 2.0 * r * length >= 1.0:
                if w[level + channel] > 0.0:
                    for i in range(s):
                        w[a + i] = 1.0 if i == channel else 0.0
                    length = project(w, axes, j, j, s)
                channel += 1
        if length > 0.0:
            add(w, a, 1.0 / math.sqrt(length) - 1.0, w, a, s)


@jit
def spread_square(w: Any, a: int, v: Any, b: int, share: float, n: int, p: int) -> None:
    """B = A + share I, from stride n to stride p, filled up with zeros to p rows."""
    for j in range(0, p * p, 8):
        store(v, b + j, spread(0.0))
    for i in range(n):
        for j in range(n):
            v[b + i * p + j] = w[a + i * n + j]
        v[b + i * p + i] += share


# ----------------------------------------------------------------------- drift and hold


@jit
def fade(w: Any, at: int, dt: float, half_life: float) -> None:
    """n <- 2^(-dt/h) n, not below 8."""
    w[at] = max(w[at] * 2.0 ** (-dt / half_life), min(w[at], maths.LEAST_ROWS))


@jit
def drift(w: Any, o: Any, law: Any, base: int, dt: float) -> None:
    """Size, counts and P of a member move on by dt; `coast` has moved its axes."""
    states, d = int(law[maths.STATES]), o[DIMENSION]
    own, numbers = base + int(law[maths.ANGLES]), base + int(law[maths.NUMBERS])
    w[numbers + maths.SIZE] *= SIZE_RETENTION**dt
    fade(w, numbers + maths.N_NOISE, dt, law[maths.NOISE_HALF_LIFE])
    fade(w, numbers + maths.N_METRIC, dt, max(maths.METRIC_HALF_LIFE, law[maths.NOISE_HALF_LIFE]))
    fade(w, numbers + maths.N_SPECTRUM, dt, law[maths.SPECTRUM_HALF_LIFE])
    for i in range(states):
        diagonal = own + i * (states + 1)
        if i < law[maths.RANK]:
            w[diagonal] += law[maths.ANGLE_NOISE] ** 2 * dt / d
        cut = math.sqrt(min(1.0, 1.0 / (d * max(w[diagonal], 1e-300))))
        if cut < 1.0:
            for j in range(states):
                w[own + i * states + j] *= cut
                w[own + j * states + i] *= cut


@jit
def hold(
    w: Any, o: Any, law: Any, base: int, v: Any, share: float, factors: int, noise: int
) -> None:
    """sqrt(share) F ``(r, s)`` and the noise ``(s,)`` of a member into v."""
    r, s = int(law[maths.RANK]), o[STRIDE]
    at, numbers = base + int(law[maths.PLACE]), base + int(law[maths.NUMBERS])
    grow, lowest = math.exp(w[numbers + maths.SIZE]), spread(FLOOR)
    for i in range(0, s, 8):
        own_noise, least = spread(grow) * load(w, at + i), lowest * load(w, base + o[LEVEL] + i)
        store(v, noise + i, above(own_noise, least, own_noise, least))
    if w[base + maths.BUFFERED] < law[maths.STAGE]:
        for i in range(0, r * s, 8):
            store(v, factors + i, spread(0.0))
        return
    c, p = o[ROOT], 8 * ((r + 7) // 8)
    spread_square(w, base + int(law[maths.SPECTRUM]), v, c, 0.0, r, p)
    cholesky(v, c, r, p)
    scale = spread(share * grow)
    for i in range(0, s, 8):
        deviation = root(scale * load(w, at + s + i))
        for a in range(r):
            acc = spread(0.0)
            for b in range(a, r):
                acc = fma(spread(v[c + b * p + a]), load(w, at + (2 + b) * s + i), acc)
            store(v, factors + a * s + i, deviation * acc)


# ----------------------------------------------------------------------- learn


@jit
def weigh_factors(v: Any, o: Any, n: int, p: int, out: int) -> None:
    """out = (Lam^-1 + G)^-1 BR for Lam in ROOT, which is used up; the inverse into INVERSE."""
    c, r, t, g = o[ROOT], o[RIGHT], o[INVERSE], o[SMALL]
    cholesky(v, c, n, p)
    for i in range(n):
        for j in range(p):
            v[r + i * p + j] = v[c + j * p + i]
    multiply(v, o[GRAM], c, t, c, 0.0, n, p)
    multiply(v, r, t, g, c, 0.0, n, p)  # C^T G C
    for i in range(n):
        v[g + i * p + i] += 1.0
    cholesky(v, g, n, p)
    invert(v, g, t, n, p)
    multiply(v, t, r, c, r, 0.0, n, p)  # L^-1 C^T
    apply(v, c, o[BR], out, n, p)
    multiply_transposed(v, c, c, t, n, p)


@jit
def learn(w: Any, o: Any, law: Any, base: int, v: Any, n: float, share: float) -> None:
    """One member takes in the sample X: noise, spectrum, axes, size."""
    r, s = int(law[maths.RANK]), o[STRIDE]
    at = base + int(law[maths.PLACE])
    axes, lam = at + 2 * s, base + int(law[maths.SPECTRUM])
    numbers = base + int(law[maths.NUMBERS])
    size = w[numbers + maths.SIZE]
    shrink, least = spread(math.exp(-0.5 * size)), spread(math.exp(-size) * FLOOR)
    one, half, zero, acc = spread(1.0), spread(0.5), spread(0.0), spread(0.0)
    for i in range(0, s, 8):
        here = load(v, o[OPEN] + i)
        metric = above(here, half, load(w, at + s + i), one)
        noise, lowest = load(w, at + i), least * load(w, base + o[LEVEL] + i)
        noise = above(here, half, above(noise, lowest, noise, lowest), one)
        deviation = root(metric)
        z, known = div(shrink * load(v, o[X] + i), deviation), here * div(metric, noise)
        store(v, o[DEVIATION] + i, deviation)
        store(v, o[KNOWN] + i, known)
        store(v, o[Z] + i, z)
        acc = fma(z * known, z, acc)
    square = total(acc)
    started, p = w[base + maths.BUFFERED] >= law[maths.STAGE], 8 * ((r + 7) // 8)
    if started:
        for a in range(r):
            for i in range(0, s, 8):
                u = load(w, axes + a * s + i) * load(v, o[KNOWN] + i)
                store(v, o[HALF] + a * s + i, u)
            v[o[BR] + a] = dot(v, o[HALF] + a * s, v, o[Z], s)
        products(w, axes, v, o[HALF], o[GRAM], r, p, s)
        for a in range(r, p):
            v[o[BR] + a] = 0.0
        spread_square(w, lam, v, o[ROOT], 1.0, r, p)
        weigh_factors(v, o, r, p, o[G])
        spread_square(w, lam, v, o[ROOT], 0.0, r, p)
        weigh_factors(v, o, r, p, o[SCORES])
        for a in range(r):
            square -= v[o[BR] + a] * v[o[SCORES] + a]
    limit = math.sqrt(min(1.0, maths.LIMIT * n / max(square, 1e-300)))
    if started:
        gain = 1.0 / (w[numbers + maths.N_SPECTRUM] + 1.0)
        for a in range(r):
            v[o[G] + a] *= limit
            v[o[SCORES] + a] *= limit
        for a in range(r):
            for b in range(r):
                seen = v[o[SCORES] + a] * v[o[SCORES] + b] + v[o[INVERSE] + a * p + b]
                w[lam + a * r + b] += gain * (seen - w[lam + a * r + b])
            w[lam + a * r + a] = max(w[lam + a * r + a], maths.DEAD)
        cholesky(v, o[INVERSE], r, p)
    for k in range(maths.N_NOISE, maths.N_SPECTRUM + 1):
        w[numbers + k] += 1.0
    rows_noise, rows_metric = (
        spread(w[numbers + maths.N_NOISE]),
        spread(w[numbers + maths.N_METRIC]),
    )
    for i in range(0, s, 8):
        here, e, spare = load(v, o[OPEN] + i), spread(limit) * load(v, o[Z] + i), zero
        if started:
            for a in range(r):
                e = fma(spread(-v[o[G] + a]), load(w, axes + a * s + i), e)
                acc = zero
                for b in range(a, r):
                    part = spread(v[o[INVERSE] + b * p + a])
                    acc = fma(part, load(w, axes + b * s + i), acc)
                spare = fma(acc, acc, spare)
            e = here * e
        store(v, o[E] + i, e)
        deviation, lowest = load(v, o[DEVIATION] + i), least * load(w, base + o[LEVEL] + i)
        seen = deviation * deviation * fma(e, e, spare)
        count = load(w, base + o[LEVEL] + s + i) + spread(maths.PRIOR_ROWS)
        for k in range(2):
            rows = rows_noise if k == 0 else rows_metric
            old = load(w, at + k * s + i)
            new = old + div(seen - old, above(rows, count, count, rows))
            new = above(new, lowest, new, lowest)
            store(w, at + k * s + i, above(here, half, new, old))
    if started:
        turn(w, o, law, base, v, share)
        if w[base + row.COUNT] % maths.POLISH_EVERY == 0.0:
            polish(w, axes, r, s, base + o[LEVEL])
            for a in range(r, int(law[maths.STATES])):
                project(w, axes, a, r, s)
    ratio = min(square / n, maths.LIMIT) - 1.0
    w[numbers + maths.SIZE] += math.log1p(law[maths.SIZE_GAIN] * ratio)


@jit
def turn(w: Any, o: Any, law: Any, base: int, v: Any, share: float) -> None:
    """The axes turn towards E, what they left over, along a great circle, and V with them."""
    r, n, s, pg, g = int(law[maths.RANK]), int(law[maths.STATES]), o[STRIDE], o[PG], o[G]
    axes, own = base + int(law[maths.PLACE]) + 2 * s, base + int(law[maths.ANGLES])
    c = 1.0
    for a in range(n):
        v[pg + a] = 0.0
        for b in range(r):
            v[pg + a] += w[own + a * n + b] * v[g + b]
    for a in range(r):
        c += share * v[g + a] * v[pg + a]
    size = 0.0
    for a in range(n):
        for b in range(n):
            w[own + a * n + b] -= share * v[pg + a] * v[pg + b] / c
        size += (v[pg + a] / c) ** 2 if a < r else 0.0
    size = math.sqrt(size)
    for a in range(r):
        v[o[BR] + a] = dot(w, axes + a * s, v, o[E], s)
    for a in range(r):
        add(v, o[E], -v[o[BR] + a], w, axes + a * s, s)
    length = math.sqrt(dot(v, o[E], v, o[E], s))
    if not length * size > 0.0:
        return
    rise, fall = spread(math.sin(length * size)), spread(math.cos(length * size) - 1.0)
    inverse = spread(1.0 / length)
    for a in range(r, n):
        add(w, axes + a * s, v[pg + a] / c, v, o[E], s)
        v[pg + a] = dot(w, axes + a * s, v, o[E], s) / length
    for a in range(r):
        v[pg + a] /= c * size
    for i in range(0, s, 8):
        along, unit = spread(0.0), inverse * load(v, o[E] + i)
        for a in range(r):
            along = fma(spread(v[pg + a]), load(w, axes + a * s + i), along)
        way, back = fma(rise, unit, fall * along), fall * unit - rise * along
        for a in range(n):
            p = axes + a * s + i
            store(w, p, fma(spread(v[pg + a]), way if a < r else back, load(w, p)))
