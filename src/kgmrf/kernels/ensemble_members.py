"""Members of the compiled ensemble: how each drifts, what it holds, how it learns.

Functions have the names of those in `tests/readable_ensemble.py`. ``w`` is the one array of
:mod:`kgmrf.kernels.ensemble_places` and ``o`` its offsets.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.engines import layout as row
from kgmrf.engines import members as tuning
from kgmrf.kernels import ensemble_places as at
from kgmrf.kernels.compile import jit
from kgmrf.kernels.ensemble_turning import (
    drift_turning,
    hold_turning,
    member,
    transpose_frame,
    turning_size,
)
from kgmrf.kernels.lanes import div, first, fma, load, spread, store
from kgmrf.kernels.products import invert, packed_room, scaled, unpack


@jit
def distances(w: Any, o: Any) -> None:
    """z_k = x^T S_k^-1 x of the members with a size clock, side by side; into CLOCK_SIZES.

    CLOCK_PARTS holds their packed matrices with the members in lanes.
    """
    d, a = o[at.DIMENSION], o[at.CLOCK_PARTS]
    x = a + 8 * o[at.N_PAIRS]
    z = spread(0.0)
    for k in range(d):
        first = k * (k + 1) // 2
        inverse = div(spread(1.0), load(w, a + 8 * (first + k)))
        v = load(w, x + 8 * k)
        z = fma(v * inverse, v, z)
        for i in range(k + 1, d):
            under = i * (i + 1) // 2
            factor = spread(0.0) - load(w, a + 8 * (under + k)) * inverse
            store(w, x + 8 * i, fma(factor, v, load(w, x + 8 * i)))
            for j in range(k + 1, i + 1):
                left = load(w, a + 8 * (j * (j + 1) // 2 + k))
                spot = a + 8 * (under + j)
                store(w, spot, fma(factor, left, load(w, spot)))
    store(w, o[at.CLOCK_SIZES], z)


@jit
def lay_out(w: Any, o: Any, part: int, lane: int) -> None:
    """A packed matrix into one lane of CLOCK_PARTS; 1 on the diagonal of absent channels."""
    a = o[at.CLOCK_PARTS] + lane
    for p in range(o[at.N_PAIRS]):
        w[a + 8 * p] = w[part + p]
    for i in range(o[at.DIMENSION]):
        if w[o[at.THERE] + i] == 0.0:
            w[a + 8 * (i * (i + 3) // 2)] = 1.0


@jit
def take_interval(w: Any, o: Any, dt: float) -> None:
    """What dt does to every clock, unless it is known already."""
    spot = o[at.INTERVAL]
    if w[spot + at.LAST_DT] == dt:
        return
    w[spot + at.LAST_DT] = dt
    w[spot + at.SIZE_KEEP] = tuning.SIZE_RETENTION**dt
    for k in range(o[at.N_MEMBERS]):
        if member(w, o, k, row.KIND) == row.AVERAGE:
            w[o[at.FADE] + k] = 2.0 ** (-dt / member(w, o, k, row.HALF_LIFE))
        if member(w, o, k, row.CHANNEL) > 0.0:
            w[o[at.CHANNEL_GAIN] + k] = 1.0 - 2.0 ** (-dt / member(w, o, k, row.CHANNEL))


@jit
def drift(w: Any, o: Any, dt: float) -> None:
    """s <- .98^dt s, V <- 2^(-dt/h) V; turning members turn on and widen."""
    take_interval(w, o, dt)
    d, s = o[at.DIMENSION], o[at.STRIDE]
    clock, average, turning = o[at.SIZE], o[at.MASS], o[at.TURNED]
    live = w[o[at.HEAD] + row.POOLED] < 0.0
    for k in range(o[at.N_MEMBERS]):
        if member(w, o, k, row.KIND) == row.AVERAGE:
            w[average] *= w[o[at.FADE] + k]
            average += 1
            if member(w, o, k, row.SIZE_GAIN) > 0.0:
                w[clock] *= w[o[at.INTERVAL] + at.SIZE_KEEP]
                clock += 1
        elif member(w, o, k, row.KIND) == row.TURNING:
            if live:
                drift_turning(w, o, turning, member(w, o, k, row.ACCELERATION), dt, d, s)
                w[turning + turning_size(d) - 1] += member(w, o, k, row.SPECTRUM_RATE) * dt
            turning += turning_size(d)


@jit
def hold(w: Any, o: Any) -> None:
    """S_k of every member, packed, into PARTS."""
    d, s, n = o[at.DIMENSION], o[at.STRIDE], o[at.N_PAIRS]
    clock, average, channel = 0, 0, o[at.DEVIATION]
    part, turning, live = o[at.PARTS], o[at.TURNED], w[o[at.HEAD] + row.POOLED] < 0.0
    if live:
        for k in range(o[at.N_TURNING]):
            transpose_frame(w, o, turning + k * turning_size(d), k, d, s)
    for k in range(o[at.N_MEMBERS]):
        if member(w, o, k, row.KIND) == row.TURNING:
            if live:
                hold_turning(w, o, turning, part, k + o[at.N_TURNING] - o[at.N_MEMBERS], d, s)
            else:
                pooled = w[o[at.HEAD] + row.POOLED]
                scaled(w, turning, part, pooled / (pooled + 1.0), 1.0, n, d)
            turning += turning_size(d)
            part += packed_room(n)
            continue
        if member(w, o, k, row.KIND) == row.AVERAGE:
            mass, size = w[o[at.MASS] + average], 1.0
            if member(w, o, k, row.SIZE_GAIN) > 0.0:
                size = math.exp(w[o[at.SIZE] + clock])
                w[o[at.EXP_SIZES] + clock] = size
                clock += 1
            rho = tuning.SHRINKAGE / (mass + tuning.SHRINKAGE)
            scaled(w, o[at.BODY] + average * n, part, size * (1.0 - rho), size, n, d)
            average += 1
        else:
            for p in range(part, part + n):
                w[p] = 0.0
            for i in range(d):
                w[part + i * (i + 3) // 2] = 1.0
        if member(w, o, k, row.CHANNEL) > 0.0:
            p = part
            for i in range(d):
                v = w[channel + i]
                for j in range(i + 1):
                    w[p + j] *= v * w[channel + j]
                p += i + 1
            channel += d
        for i in range(d):
            p = part + i * (i + 3) // 2
            level = w[o[at.LEVEL] + i]
            w[p] = max(w[p], tuning.FLOOR * level) * (1.0 + 1e-9) if level > 0.0 else 0.0
        part += packed_room(n)


@jit
def learn_averages(
    w: Any,
    o: Any,
    u: float,
    limited: float,
    n_there: float,
    single: bool,
    rest: bool,
    early: bool,
) -> None:
    """Clocks, deviations and averages take in what was seen.

    u: weight of the observation; limited: that of members without a size clock that limit it
    themselves. single: it is one complete sample, in X. rest: cells were missing. early: hardly
    anything came before, so that all of it counts and no size clock moves.
    """
    d, n = o[at.DIMENSION], o[at.N_PAIRS]
    clock, average, channel, part = 0, 0, o[at.DEVIATION], o[at.PARTS]
    young = 1.0 / w[o[at.HEAD] + row.COUNT]
    if single:
        sizes_of_one(w, o)
    for k in range(o[at.N_MEMBERS]):
        if member(w, o, k, row.KIND) == row.TURNING:
            continue
        weight, size = u, 1.0
        if member(w, o, k, row.SIZE_GAIN) > 0.0:
            if single and clock < 8:
                z, spare = w[o[at.CLOCK_SIZES] + clock], 0.0
            else:
                z, spare = size_of(w, o, part, rest)
            if member(w, o, k, row.LIMITED) > 0.0:
                weight = tuning.OUTLIER * n_there / max(z, tuning.OUTLIER * n_there)
            grown = 1.0 + member(w, o, k, row.SIZE_GAIN) * ((weight * z + spare) / n_there - 1.0)
            if early:
                weight, grown = 1.0, 1.0
            w[o[at.SIZE] + clock] += math.log(grown)
            size = 1.0 / (w[o[at.EXP_SIZES] + clock] * grown)
            clock += 1
        elif member(w, o, k, row.LIMITED) > 0.0:
            weight = limited
        part += packed_room(n)
        # What B learns from: the mean, or, where channels have clocks, a copy in their units.
        source, more = o[at.MEAN], o[at.REST]
        if member(w, o, k, row.CHANNEL) > 0.0:
            gain = max(w[o[at.CHANNEL_GAIN] + k], young)
            for i in range(d):
                level = w[o[at.LEVEL] + i]
                if level > 0.0:
                    p = i * (i + 3) // 2
                    seen = size * (weight * w[source + p] + w[more + p])
                    square = w[channel + i] ** 2
                    square = max(square + gain * (seen - square), tuning.FLOOR * level)
                    w[channel + i] = math.sqrt(square)
            if member(w, o, k, row.KIND) == row.AVERAGE:
                p = 0
                for i in range(d):
                    a = 1.0 / w[channel + i] if w[channel + i] > 0.0 else 1.0
                    for j in range(i + 1):
                        b = w[channel + j] if w[channel + j] > 0.0 else 1.0
                        v = weight * w[source + p] + w[more + p]
                        w[o[at.SCALED] + p] = v * a / b
                        p += 1
            channel += d
        if member(w, o, k, row.KIND) != row.AVERAGE:
            continue
        mass = w[o[at.MASS] + average] + 1.0
        w[o[at.MASS] + average] = mass
        body = o[at.BODY] + average * n
        keep, gain = spread(1.0 - 1.0 / mass), spread(size / mass)
        heavy = spread(weight)
        for p in range(0, n, 8):
            if member(w, o, k, row.CHANNEL) > 0.0:
                seen = load(w, o[at.SCALED] + p)
            else:
                seen = heavy * load(w, source + p)
                if rest:
                    seen = seen + load(w, more + p)
            old = load(w, body + p)
            new = fma(gain, seen, keep * old)
            store(w, body + p, first(n - p, new, old))
        average += 1


@jit
def sizes_of_one(w: Any, o: Any) -> None:
    """tr(S_k^-1 x x^T) of the first eight members with a size clock, for the one sample in X."""
    d, lane, part = o[at.DIMENSION], 0, o[at.PARTS]
    x = o[at.CLOCK_PARTS] + 8 * o[at.N_PAIRS]
    for k in range(o[at.N_AVERAGE]):
        if member(w, o, k, row.SIZE_GAIN) > 0.0 and lane < 8:
            lay_out(w, o, part, lane)
            lane += 1
        part += packed_room(o[at.N_PAIRS])
    if lane == 0:
        return
    for i in range(d):
        store(w, x + 8 * i, spread(w[o[at.X] + i]))
    distances(w, o)


@jit
def size_of(w: Any, o: Any, part: int, rest: bool) -> Any:
    """tr(S_k^-1 C) of what was seen, and of the conditional covariance of missing cells."""
    d, s = o[at.DIMENSION], o[at.STRIDE]
    a = o[at.INVERSE]
    unpack(w, part, a, d, s)
    for i in range(d):
        if w[o[at.THERE] + i] == 0.0:
            w[a + i * s + i] = 1.0
    invert(w, a, o[at.Y], o[at.IDENTITY], d, s)
    z, spare, p = 0.0, 0.0, 0
    for i in range(d):
        for j in range(i + 1):
            v = w[a + i * s + j] if i == j else 2.0 * w[a + i * s + j]
            z += v * w[o[at.MEAN] + p]
            if rest:
                spare += v * w[o[at.REST] + p]
            p += 1
    return z, spare


# ----------------------------------------------------------------------- channels come


@jit
def enter(w: Any, o: Any, power: int, m: float) -> None:
    """Channels whose first value other than zero is in this observation; C_ii lies at power."""
    head, d, n = o[at.HEAD], o[at.DIMENSION], o[at.N_PAIRS]
    new = False
    for i in range(d):
        w[o[at.HIDDEN] + i] = 1.0 if w[o[at.LEVEL] + i] == 0.0 and w[power + i] > 0.0 else 0.0
        new = new or w[o[at.HIDDEN] + i] != 0.0
    if not new:
        return
    if w[head + row.POOLED] < 0.0:  # turning members pool anew from what they hold
        hold(w, o)
        part = o[at.PARTS] + (o[at.N_MEMBERS] - o[at.N_TURNING]) * packed_room(n)
        for k in range(o[at.N_TURNING]):
            q = o[at.TURNED] + k * turning_size(d)
            p = 0
            for i in range(d):
                for j in range(i + 1):
                    gone = w[o[at.HIDDEN] + i] != 0.0 or w[o[at.HIDDEN] + j] != 0.0
                    w[q + p] = 0.0 if gone else w[part + p]
                    p += 1
            part += packed_room(n)
    w[head + row.POOLED] = 1.0
    if w[head + row.COUNT] == 0.0:
        w[head + row.COUNT] = 1.0
        w[head + row.SAMPLES] = m
        for k in range(o[at.N_AVERAGE]):
            w[o[at.MASS] + k] = 1.0
    for i in range(d):
        if w[o[at.HIDDEN] + i] == 0.0:
            continue
        level = (1.0 + 1.0 / m) * w[power + i]
        w[o[at.LEVEL] + i] = level
        p = i * (i + 3) // 2
        clock, average, channel, turning = o[at.SIZE], 0, o[at.DEVIATION], o[at.TURNED]
        for k in range(o[at.N_MEMBERS]):
            if member(w, o, k, row.KIND) == row.TURNING:
                w[turning + p] = level
                turning += turning_size(d)
                continue
            variance = level
            if member(w, o, k, row.SIZE_GAIN) > 0.0:
                variance = math.exp(-w[clock]) * level
                clock += 1
            if member(w, o, k, row.CHANNEL) > 0.0:
                w[channel + i] = math.sqrt(variance)
                variance = 1.0
                channel += d
            if member(w, o, k, row.KIND) == row.AVERAGE:
                w[o[at.BODY] + average * n + p] = variance
                average += 1


@jit
def start(w: Any, o: Any, m: float) -> None:
    """The first observation, in OUTER: B = C with the diagonal (1 + 1/m) C_ii."""
    d, s, n, seen = o[at.DIMENSION], o[at.STRIDE], o[at.N_PAIRS], o[at.OUTER]
    for i in range(d):
        w[o[at.Y] + i] = w[seen + i * s + i]
    enter(w, o, o[at.Y], m)
    if w[o[at.HEAD] + row.COUNT] == 0.0:
        return
    for i in range(d):
        for j in range(i):
            p, v = i * (i + 1) // 2 + j, w[seen + i * s + j]
            average, channel, turning = 0, o[at.DEVIATION], o[at.TURNED]
            for k in range(o[at.N_MEMBERS]):
                if member(w, o, k, row.KIND) == row.TURNING:
                    w[turning + p] = v
                    turning += turning_size(d)
                    continue
                scale = 1.0
                if member(w, o, k, row.CHANNEL) > 0.0:
                    a, b = w[channel + i], w[channel + j]
                    scale = 1.0 / (a * b) if a * b > 0.0 else 1.0
                    channel += d
                if member(w, o, k, row.KIND) == row.AVERAGE:
                    w[o[at.BODY] + average * n + p] = scale * v
                    average += 1
