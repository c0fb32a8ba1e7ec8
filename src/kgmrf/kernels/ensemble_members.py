"""Members of the compiled ensemble: how each drifts, what it holds, how it learns.

The twin of the functions of the same names in :mod:`kgmrf.engines.ensemble_step`. ``w`` is the one
array of :mod:`kgmrf.kernels.ensemble_places` and ``o`` its offsets.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines.ensemble_step import (
    FLOOR,
    OUTLIER,
    POLISH_EVERY,
    POOL_SAMPLES,
    SHRINKAGE,
    SIZE_RETENTION,
    UNLIKE,
)
from kgmrf.engines.layout import (
    ACCELERATION,
    AVERAGE,
    CHANNEL,
    COUNT,
    HALF_LIFE,
    KIND,
    LIMITED,
    POOLED,
    RATE_PRIOR,
    SIZE_GAIN,
    SPECTRUM_RATE,
    TURNING,
)
from kgmrf.gains import ANGLE_VARIANCE_LIMIT, RATE_VARIANCE_LIMIT
from kgmrf.kernels.compile import jit
from kgmrf.kernels.eigen import jacobi, sort_rows
from kgmrf.kernels.ensemble_places import (
    BODY,
    CHANNEL_GAIN,
    CLOCK_PARTS,
    CLOCK_SIZES,
    DEVIATION,
    DIMENSION,
    EIGENVECTORS,
    EXP_SIZES,
    FADE,
    GAP,
    HEAD,
    IDENTITY,
    INTERVAL,
    INVERSE,
    LAMBDA,
    LAST_DT,
    LEVEL,
    MASS,
    MEAN,
    MEAN_FULL,
    N_AVERAGE,
    N_MEMBERS,
    N_PAIRS,
    N_PLANES,
    N_TURNING,
    NOISE,
    OTHER,
    PAIR_MASK,
    PARTS,
    PLANE_MASK,
    POWER,
    RESIDUAL,
    REST,
    SCALED,
    SIZE,
    SIZE_KEEP,
    STRIDE,
    THERE,
    TOTAL,
    TURNED,
    X,
    Y,
)
from kgmrf.kernels.lanes import above, div, fma, load, spread, store
from kgmrf.kernels.layout import BODY as BODY_FRAME
from kgmrf.kernels.layout import FRAME, SCRATCH_A
from kgmrf.kernels.layout import TURNING as TURN_MATRIX
from kgmrf.kernels.plane import correct, widen, within_circle
from kgmrf.kernels.products import (
    matrix,
    multiply,
    multiply_transposed,
    polish_frame,
    turn_frame,
)

# ----------------------------------------------------------------------- packed and full


@jit
def packed_room(n: int) -> int:
    """Numbers that one packed matrix of n pairs takes."""
    return -(-n // 8) * 8 + 8


@jit
def unpack(w: Any, packed: int, full: int, d: int, s: int) -> None:
    """The symmetric matrix of a lower triangle."""
    p = packed
    for i in range(d):
        for j in range(i):
            v = w[p + j]
            w[full + i * s + j] = v
            w[full + j * s + i] = v
        w[full + i * s + i] = w[p + i]
        p += i + 1


@jit
def pack(w: Any, full: int, packed: int, d: int, s: int, n: int) -> None:
    """The lower triangle of a matrix; what a row writes too far, the next one overwrites."""
    p = packed
    for i in range(d):
        for j in range(0, i + 1, 8):
            store(w, p + j, load(w, full + i * s + j))
        p += i + 1
    for k in range(packed + n, packed + -(-n // 8) * 8):
        w[k] = 0.0


@jit
def invert(w: Any, a: int, factors: int, unit: int, d: int, s: int) -> float:
    """A <- A^-1 in place, by Gauss-Jordan without pivoting; returns log |A|.

    factors: room for d numbers; unit: the identity. The column of a pivot is set by choosing
    lanes: a number stored alone, just before the eight around it are loaded, would be waited for.
    """
    logs, product = 0.0, 1.0
    half, zero = spread(0.5), spread(0.0)
    for k in range(d):
        row = a + k * s
        pivot = w[row + k]
        product *= pivot
        if not 1e-100 < product < 1e100:
            logs += math.log(product)
            product = 1.0
        inverse = spread(1.0 / pivot)
        for i in range(d):
            w[factors + i] = w[a + i * s + k]
        for j in range(0, s, 8):
            lanes = inverse * load(w, row + j)
            here = load(w, unit + k * s + j)
            for i in range(d):
                at = a + i * s + j
                factor = zero - spread(w[factors + i])
                new = fma(factor, lanes, load(w, at))
                store(w, at, above(here, half, factor * inverse, new))
            store(w, row + j, above(here, half, inverse, lanes))
    return logs + math.log(product)


@jit
def distances(w: Any, o: Any) -> None:
    """z_k = x^T S_k^-1 x of the members with a size clock, side by side; into CLOCK_SIZES.

    CLOCK_PARTS holds their packed matrices with the members in lanes.
    """
    d, a = o[DIMENSION], o[CLOCK_PARTS]
    x = a + 8 * o[N_PAIRS]
    z = spread(0.0)
    for k in range(d):
        row = k * (k + 1) // 2
        inverse = div(spread(1.0), load(w, a + 8 * (row + k)))
        v = load(w, x + 8 * k)
        z = fma(v * inverse, v, z)
        for i in range(k + 1, d):
            under = i * (i + 1) // 2
            factor = spread(0.0) - load(w, a + 8 * (under + k)) * inverse
            store(w, x + 8 * i, fma(factor, v, load(w, x + 8 * i)))
            for j in range(k + 1, i + 1):
                left = load(w, a + 8 * (j * (j + 1) // 2 + k))
                at = a + 8 * (under + j)
                store(w, at, fma(factor, left, load(w, at)))
    store(w, o[CLOCK_SIZES], z)


@jit
def lay_out(w: Any, o: Any, part: int, lane: int) -> None:
    """A packed matrix into one lane of CLOCK_PARTS; 1 on the diagonal of absent channels."""
    a = o[CLOCK_PARTS] + lane
    for p in range(o[N_PAIRS]):
        w[a + 8 * p] = w[part + p]
    for i in range(o[DIMENSION]):
        if w[o[THERE] + i] == 0.0:
            w[a + 8 * (i * (i + 3) // 2)] = 1.0


@jit
def open_frame(w: Any, q: int, d: int, s: int) -> None:
    """Q of a turning member onto the desk, zero beyond its columns."""
    frame, mask = matrix(s, FRAME), 0
    half, zero = spread(0.5), spread(0.0)
    for i in range(d):
        for j in range(0, s, 8):
            inside = load(w, mask + j)
            store(w, frame + i * s + j, above(inside, half, load(w, q + i * d + j), zero))


@jit
def close_frame(w: Any, q: int, d: int, s: int) -> None:
    """Q from the desk back into its member."""
    frame, mask, half = matrix(s, FRAME), 0, spread(0.5)
    for i in range(d):
        for j in range(0, s, 8):
            inside, at = load(w, mask + j), q + i * d + j
            store(w, at, above(inside, half, load(w, frame + i * s + j), load(w, at)))


@jit
def set_turn(w: Any, planes: int, share: float, d: int, s: int) -> None:
    """The next turn is share X, X skew with these planes i > j.

    Some other work should lie between this and `turn_frame`: numbers that were stored one by one
    are slow to load by eight at once.
    """
    x = matrix(s, TURN_MATRIX)
    p = planes
    for i in range(d):
        w[x + i * s + i] = 0.0
        for j in range(i):
            v = share * w[p]
            w[x + i * s + j] = v
            w[x + j * s + i] = -v
            p += 1


@jit
def turning_size(d: int) -> int:
    """Numbers of a turning member."""
    return d * d + 2 * d * (d - 1) + 2 * d + 1


# ----------------------------------------------------------------------- drift


@jit
def take_interval(w: Any, o: Any, table: Any, dt: float) -> None:
    """What dt does to every clock, unless it is known already."""
    at = o[INTERVAL]
    if w[at + LAST_DT] == dt:
        return
    w[at + LAST_DT] = dt
    w[at + SIZE_KEEP] = SIZE_RETENTION**dt
    for k in range(o[N_MEMBERS]):
        if table[k, KIND] == AVERAGE:
            w[o[FADE] + k] = 2.0 ** (-dt / table[k, HALF_LIFE])
        if table[k, CHANNEL] > 0.0:
            w[o[CHANNEL_GAIN] + k] = 1.0 - 2.0 ** (-dt / table[k, CHANNEL])


@jit
def drift(w: Any, o: Any, table: Any, dt: float) -> None:
    """s <- .98^dt s, V <- 2^(-dt/h) V; turning members turn on and widen."""
    take_interval(w, o, table, dt)
    d, s = o[DIMENSION], o[STRIDE]
    clock, average, turning = o[SIZE], o[MASS], o[TURNED]
    live = w[o[HEAD] + POOLED] < 0.0
    for k in range(o[N_MEMBERS]):
        if table[k, KIND] == AVERAGE:
            w[average] *= w[o[FADE] + k]
            average += 1
            if table[k, SIZE_GAIN] > 0.0:
                w[clock] *= w[o[INTERVAL] + SIZE_KEEP]
                clock += 1
        elif table[k, KIND] == TURNING:
            if live:
                drift_turning(w, o, turning, table[k, ACCELERATION], dt, d, s)
                w[turning + turning_size(d) - 1] += table[k, SPECTRUM_RATE] * dt
            turning += turning_size(d)


@jit
def drift_turning(w: Any, o: Any, q: int, noise: float, dt: float, d: int, s: int) -> None:
    """Q <- Q Exp(dt W), P <- F P F^T + noise in every plane."""
    n, mask, half = o[N_PLANES], o[PLANE_MASK], spread(0.5)
    velocity = q + d * d
    set_turn(w, velocity, dt, d, s)
    open_frame(w, q, d, s)
    turn, keep = spread(dt), spread(1.0)
    angle, cross = spread(noise * dt * dt * dt / 3.0), spread(noise * dt * dt / 2.0)
    rate = spread(noise * dt)
    a, b, c = velocity + n, velocity + 2 * n, velocity + 3 * n
    for p in range(0, n, 8):
        inside = load(w, mask + p)
        o11, o12, o22 = load(w, a + p), load(w, b + p), load(w, c + p)
        p11, p12, p22 = widen(o11, o12, o22, turn, keep, angle, cross, rate)
        p11, p12, p22 = within_circle(p11, p12, p22, RATE_VARIANCE_LIMIT)
        # In this order: what a store writes too far is what was there, or is written next.
        store(w, a + p, above(inside, half, p11, o11))
        store(w, b + p, above(inside, half, p12, o12))
        store(w, c + p, above(inside, half, p22, o22))
    turn_frame(w, d, s)
    close_frame(w, q, d, s)


# ----------------------------------------------------------------------- hold


@jit
def hold(w: Any, o: Any, table: Any) -> None:
    """S_k of every member, packed, into PARTS."""
    d, s, n = o[DIMENSION], o[STRIDE], o[N_PAIRS]
    clock, average, channel = 0, 0, o[DEVIATION]
    part, turning, live = o[PARTS], o[TURNED], w[o[HEAD] + POOLED] < 0.0
    if live:
        for k in range(o[N_TURNING]):
            transpose_frame(w, o, turning + k * turning_size(d), k, d, s)
    for k in range(o[N_MEMBERS]):
        if table[k, KIND] == TURNING:
            if live:
                hold_turning(w, o, turning, part, k + o[N_TURNING] - o[N_MEMBERS], d, s)
            else:
                pooled = w[o[HEAD] + POOLED]
                scaled(w, turning, part, pooled / (pooled + 1.0), 1.0, n, d)
            turning += turning_size(d)
            part += packed_room(n)
            continue
        if table[k, KIND] == AVERAGE:
            mass, size = w[o[MASS] + average], 1.0
            if table[k, SIZE_GAIN] > 0.0:
                size = math.exp(w[o[SIZE] + clock])
                w[o[EXP_SIZES] + clock] = size
                clock += 1
            rho = SHRINKAGE / (mass + SHRINKAGE)
            scaled(w, o[BODY] + average * n, part, size * (1.0 - rho), size, n, d)
            average += 1
        else:
            for p in range(part, part + n):
                w[p] = 0.0
            for i in range(d):
                w[part + i * (i + 3) // 2] = 1.0
        if table[k, CHANNEL] > 0.0:
            p = part
            for i in range(d):
                v = w[channel + i]
                for j in range(i + 1):
                    w[p + j] *= v * w[channel + j]
                p += i + 1
            channel += d
        for i in range(d):
            p = part + i * (i + 3) // 2
            level = w[o[LEVEL] + i]
            w[p] = max(w[p], FLOOR * level) * (1.0 + 1e-9) if level > 0.0 else 0.0
        part += packed_room(n)


@jit
def scaled(w: Any, a: int, b: int, off: float, on: float, n: int, d: int) -> None:
    """B = off A, its diagonal on A."""
    share = spread(off)
    for p in range(0, n, 8):
        store(w, b + p, share * load(w, a + p))
    for i in range(d):
        w[b + i * (i + 3) // 2] = on * w[a + i * (i + 3) // 2]


@jit
def transpose_frame(w: Any, o: Any, q: int, index: int, d: int, s: int) -> None:
    """Rows of (E Q)^T, for `hold_turning`, which comes later (see `set_turn`)."""
    units, right = q + turning_size(d) - d - 1, o[EIGENVECTORS] + index * s * s
    for i in range(d):
        unit = w[units + i]
        for j in range(d):
            w[right + j * s + i] = unit * w[q + i * d + j]


@jit
def hold_turning(w: Any, o: Any, q: int, part: int, index: int, d: int, s: int) -> None:
    """E Q diag(lam) Q^T E."""
    left, whole = matrix(s, SCRATCH_A), o[OTHER]
    right, lam = o[EIGENVECTORS] + index * s * s, q + turning_size(d) - 2 * d - 1
    for i in range(d):
        level = spread(w[lam + i])
        for j in range(0, s, 8):
            store(w, left + i * s + j, level * load(w, right + i * s + j))
    multiply_transposed(w, left, right, whole, d, s)
    pack(w, whole, part, d, s, o[N_PAIRS])


# ----------------------------------------------------------------------- learn


@jit
def learn_averages(
    w: Any, o: Any, table: Any, u: float, limited: float, n_there: float, single: bool, rest: bool
) -> None:
    """Clocks, deviations and averages take in what was seen.

    u: weight of the observation; limited: that of members without a size clock that limit it
    themselves. single: it is one complete sample, in X. rest: cells were missing.
    """
    d, n = o[DIMENSION], o[N_PAIRS]
    clock, average, channel, part = 0, 0, o[DEVIATION], o[PARTS]
    half = spread(0.5)
    first = 1.0 / w[o[HEAD] + COUNT]
    if single:
        sizes_of_one(w, o, table)
    for k in range(o[N_MEMBERS]):
        if table[k, KIND] == TURNING:
            continue
        weight, size = u, 1.0
        if table[k, SIZE_GAIN] > 0.0:
            z, spare = w[o[CLOCK_SIZES] + clock % 8], 0.0
            if not single:
                z, spare = size_of(w, o, part, rest)
            if table[k, LIMITED] > 0.0:
                weight = OUTLIER * n_there / max(z, OUTLIER * n_there)
            grown = 1.0 + table[k, SIZE_GAIN] * ((weight * z + spare) / n_there - 1.0)
            w[o[SIZE] + clock] += math.log(grown)
            size = 1.0 / (w[o[EXP_SIZES] + clock] * grown)
            clock += 1
        elif table[k, LIMITED] > 0.0:
            weight = limited
        part += packed_room(n)
        # What B learns from: the mean, or, where channels have clocks, a copy in their units.
        source, more = o[MEAN], o[REST]
        if table[k, CHANNEL] > 0.0:
            gain = max(w[o[CHANNEL_GAIN] + k], first)
            for i in range(d):
                level = w[o[LEVEL] + i]
                if level > 0.0:
                    p = i * (i + 3) // 2
                    seen = size * (weight * w[source + p] + w[more + p])
                    square = w[channel + i] ** 2
                    square = max(square + gain * (seen - square), FLOOR * level)
                    w[channel + i] = math.sqrt(square)
            if table[k, KIND] == AVERAGE:
                p = 0
                for i in range(d):
                    a = 1.0 / w[channel + i] if w[channel + i] > 0.0 else 1.0
                    for j in range(i + 1):
                        b = w[channel + j] if w[channel + j] > 0.0 else 1.0
                        v = weight * w[source + p] + w[more + p]
                        w[o[SCALED] + p] = v * a / b
                        p += 1
            channel += d
        if table[k, KIND] != AVERAGE:
            continue
        mass = w[o[MASS] + average] + 1.0
        w[o[MASS] + average] = mass
        body = o[BODY] + average * n
        keep, gain = spread(1.0 - 1.0 / mass), spread(size / mass)
        heavy = spread(weight)
        for p in range(0, n, 8):
            if table[k, CHANNEL] > 0.0:
                seen = load(w, o[SCALED] + p)
            else:
                seen = heavy * load(w, source + p)
                if rest:
                    seen = seen + load(w, more + p)
            old = load(w, body + p)
            new = fma(gain, seen, keep * old)
            store(w, body + p, above(load(w, o[PAIR_MASK] + p), half, new, old))
        average += 1


@jit
def sizes_of_one(w: Any, o: Any, table: Any) -> None:
    """tr(S_k^-1 x x^T) of the members with a size clock, for the one sample in X."""
    d, lane, part = o[DIMENSION], 0, o[PARTS]
    x = o[CLOCK_PARTS] + 8 * o[N_PAIRS]
    for k in range(o[N_AVERAGE]):
        if table[k, SIZE_GAIN] > 0.0 and lane < 8:
            lay_out(w, o, part, lane)
            lane += 1
        part += packed_room(o[N_PAIRS])
    if lane == 0:
        return
    for i in range(d):
        store(w, x + 8 * i, spread(w[o[X] + i]))
    distances(w, o)


@jit
def size_of(w: Any, o: Any, part: int, rest: bool) -> Any:
    """tr(S_k^-1 C) of what was seen, and of the conditional covariance of missing cells."""
    d, s = o[DIMENSION], o[STRIDE]
    a = o[INVERSE]
    unpack(w, part, a, d, s)
    for i in range(d):
        if w[o[THERE] + i] == 0.0:
            w[a + i * s + i] = 1.0
    invert(w, a, o[Y], o[IDENTITY], d, s)
    z, spare, p = 0.0, 0.0, 0
    for i in range(d):
        for j in range(i + 1):
            v = w[a + i * s + j] if i == j else 2.0 * w[a + i * s + j]
            z += v * w[o[MEAN] + p]
            if rest:
                spare += v * w[o[REST] + p]
            p += 1
    return z, spare


@jit
def learn_turning(w: Any, o: Any, table: Any, u: float, m: float, single: bool) -> None:
    """Turning members pool u C, or correct their planes and eigenvalues by it."""
    head, d, n = o[HEAD], o[DIMENSION], o[N_PAIRS]
    if o[N_TURNING] == 0:
        return
    first = o[TURNED]
    if w[head + POOLED] < 0.0:
        for k in range(o[N_TURNING]):
            correct_turning(w, o, first + k * turning_size(d), u, m, single)
        return
    w[head + POOLED] += 1.0
    count = w[head + POOLED]
    for k in range(o[N_TURNING]):
        q = first + k * turning_size(d)
        for p in range(n):
            w[q + p] += (u * w[o[MEAN] + p] + w[o[REST] + p] - w[q + p]) / count
    channels = 0.0
    for i in range(d):
        channels += 1.0 if w[o[LEVEL] + i] > 0.0 else 0.0
    if count * m >= POOL_SAMPLES * channels:
        for k in range(o[N_TURNING]):
            q = first + k * turning_size(d)
            prior = table[o[N_MEMBERS] - o[N_TURNING] + k, RATE_PRIOR]
            start_turning(w, o, q, count, m, prior)
        w[head + POOLED] = -1.0


@jit
def correct_turning(w: Any, o: Any, q: int, u: float, m: float, single: bool) -> None:
    """One Kalman step per plane, one random-walk step per log eigenvalue."""
    d, s, n = o[DIMENSION], o[STRIDE], o[N_PLANES]
    frame, body, half = matrix(s, FRAME), matrix(s, BODY_FRAME), spread(0.5)
    velocity, lam = q + d * d, q + turning_size(d) - 2 * d - 1
    units, spectrum, power = lam + d, o[LAMBDA], o[POWER]
    open_frame(w, q, d, s)
    for i in range(d):
        w[spectrum + i] = w[lam + i]
    if single:
        for j in range(0, s, 8):
            acc = spread(0.0)
            for i in range(d):
                acc = fma(spread(w[o[X] + i] / w[units + i]), load(w, frame + i * s + j), acc)
            store(w, power + j, acc)
    else:
        whole, other = o[OTHER], matrix(s, SCRATCH_A)
        for i in range(d):
            for j in range(i + 1):
                p = i * (i + 1) // 2 + j
                v = u * w[o[MEAN] + p] + w[o[REST] + p]
                v /= w[units + i] * w[units + j]
                w[whole + i * s + j] = v
                w[whole + j * s + i] = v
        multiply(w, whole, frame, other, whole, 0.0, d, s)
        multiply_transposed(w, frame, other, body, d, s)
    p = 0
    for i in range(d):
        level = spread(w[spectrum + i])
        noise = spread(w[spectrum + i] / m)
        v = spread(u * w[power + i])
        for j in range(0, i, 8):
            other_level = load(w, spectrum + j)
            if single:
                store(w, o[RESIDUAL] + p + j, v * load(w, power + j))
            else:
                store(w, o[RESIDUAL] + p + j, load(w, body + i * s + j))
            store(w, o[GAP] + p + j, other_level - level)  # the sign of -C~ G
            store(w, o[NOISE] + p + j, noise * other_level)
        p += i
    a, b, c = velocity + n, velocity + 2 * n, velocity + 3 * n
    for p in range(0, n, 8):
        inside = load(w, o[PLANE_MASK] + p)
        gap = load(w, o[GAP] + p)
        pull, information = load(w, o[RESIDUAL] + p) * gap, gap * gap
        o11, o12, o22 = load(w, a + p), load(w, b + p), load(w, c + p)
        old = load(w, velocity + p)
        angle, kick, p11, p12, p22, _ = correct(
            o11, o12, o22, pull, information, load(w, o[NOISE] + p)
        )
        store(w, o[RESIDUAL] + p, angle)
        store(w, velocity + p, above(inside, half, old + kick, old))
        store(w, a + p, above(inside, half, p11, o11))
        store(w, b + p, above(inside, half, p12, o12))
        store(w, c + p, above(inside, half, p22, o22))
    set_turn(w, o[RESIDUAL], 1.0, d, s)
    var = w[units + d]
    gain = var / (var + 2.0 / m)
    w[units + d] = (1.0 - gain) * var
    for i in range(d):
        seen = u * w[power + i] ** 2 if single else w[body + i * s + i]
        w[lam + i] += gain * (seen - w[lam + i])
    keep_above(w, o, lam, d)
    turn_frame(w, d, s)
    if w[o[HEAD] + COUNT] % POLISH_EVERY == 0.0:
        polish_frame(w, d, s, frame)
    close_frame(w, q, d, s)


@jit
def keep_above(w: Any, o: Any, lam: int, d: int) -> None:
    """lam_i >= phi^2 max(lam_max, L_i/E_i^2)."""
    most = 0.0
    for i in range(d):
        unit = w[lam + d + i]
        most = max(most, w[lam + i], w[o[LEVEL] + i] / (unit * unit))
    least = FLOOR * FLOOR * most
    for i in range(d):
        w[lam + i] = max(w[lam + i], least)


@jit
def start_turning(w: Any, o: Any, q: int, count: float, m: float, rate_prior: float) -> None:
    """One eigendecomposition of the pooled covariance."""
    d, s, n = o[DIMENSION], o[STRIDE], o[N_PLANES]
    a, v = o[OTHER], o[MEAN_FULL]
    lam = q + turning_size(d) - 2 * d - 1
    units, velocity = lam + d, q + d * d
    scaled(w, q, o[TOTAL], count / (count + 1.0), 1.0, o[N_PAIRS], d)
    unpack(w, o[TOTAL], a, d, s)
    low, high = math.inf, 0.0
    for i in range(d):
        if w[o[LEVEL] + i] > 0.0:
            low, high = min(low, w[a + i * s + i]), max(high, w[a + i * s + i])
    for i in range(d):
        apart = high > UNLIKE * low and w[o[LEVEL] + i] > 0.0
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
    w[units + d] = 2.0 / (count * m)
    keep_above(w, o, lam, d)
