"""The members of the compiled low-rank ensemble: what each of them holds, learns and starts from.

The twin of :mod:`kgmrf.engines.low_rank_step`, where the formulas are told. The row of the track is
``w`` from ``base`` on, work is ``v`` at the offsets ``o``. Vectors over channels are taken eight
numbers at a time; what fills them up are channels that were never seen, of level 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.engines.ensemble_step import FLOOR, SIZE_RETENTION
from kgmrf.engines.layout import COUNT
from kgmrf.engines.low_rank_layout import (
    ANGLE_NOISE,
    BUFFERED,
    N_METRIC,
    N_NOISE,
    N_SPECTRUM,
    NOISE_HALF_LIFE,
    PLACE,
    RANK,
    SIZE,
    SIZE_GAIN,
    SPECTRUM_HALF_LIFE,
    STAGE,
)
from kgmrf.engines.low_rank_step import (
    DEAD,
    LEAST_ROWS,
    LIMIT,
    MEMORY,
    METRIC_HALF_LIFE,
    POLISH_EVERY,
    PRIOR_ROWS,
    SMALLEST_FACTOR,
    SMALLEST_NOISE,
)
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import above, div, fma, load, root, spread, store, total
from kgmrf.kernels.low_rank_algebra import (
    add,
    apply,
    cholesky,
    dot,
    invert,
    polish,
    products,
    put,
    spread_square,
)
from kgmrf.kernels.low_rank_places import (
    BR,
    BUFFER,
    DEVIATION,
    DIMENSION,
    GRAM,
    HALF,
    INVERSE,
    KNOWN,
    LEVEL,
    OPEN,
    PG,
    RIGHT,
    ROOT,
    SCORES,
    SMALL,
    STRIDE,
    E,
    G,
    X,
    Z,
)
from kgmrf.kernels.products import multiply, multiply_transposed

# ----------------------------------------------------------------------- drift and hold


@jit
def fade(w: Any, at: int, dt: float, half_life: float) -> None:
    """n <- 2^(-dt/h) n, not below 8."""
    w[at] = max(w[at] * 2.0 ** (-dt / half_life), min(w[at], LEAST_ROWS))


@jit
def drift(w: Any, o: Any, law: Any, base: int, dt: float) -> None:
    """Size, counts and P of a member move on by dt."""
    r, d = int(law[RANK]), o[DIMENSION]
    own = base + int(law[PLACE]) + (2 + r) * o[STRIDE]
    numbers = own + 2 * r * r
    w[numbers + SIZE] *= SIZE_RETENTION**dt
    fade(w, numbers + N_NOISE, dt, law[NOISE_HALF_LIFE])
    fade(w, numbers + N_METRIC, dt, max(METRIC_HALF_LIFE, law[NOISE_HALF_LIFE]))
    fade(w, numbers + N_SPECTRUM, dt, law[SPECTRUM_HALF_LIFE])
    for i in range(r):
        w[own + i * r + i] += law[ANGLE_NOISE] ** 2 * dt / d
        cut = math.sqrt(min(1.0, 1.0 / (d * max(w[own + i * r + i], 1e-300))))
        if cut < 1.0:
            for j in range(r):
                w[own + i * r + j] *= cut
                w[own + j * r + i] *= cut


@jit
def hold(
    w: Any, o: Any, law: Any, base: int, v: Any, share: float, factors: int, noise: int
) -> None:
    """sqrt(share) F ``(r, s)`` and the noise ``(s,)`` of a member into v."""
    r, s = int(law[RANK]), o[STRIDE]
    at = base + int(law[PLACE])
    own = at + (2 + r) * s
    grow, lowest = math.exp(w[own + 2 * r * r + SIZE]), spread(FLOOR)
    for i in range(0, s, 8):
        own_noise, least = spread(grow) * load(w, at + i), lowest * load(w, base + o[LEVEL] + i)
        store(v, noise + i, above(own_noise, least, own_noise, least))
    if w[base + BUFFERED] < law[STAGE]:
        for i in range(0, r * s, 8):
            store(v, factors + i, spread(0.0))
        return
    c, p = o[ROOT], 8 * ((r + 7) // 8)
    spread_square(w, own + r * r, v, c, 0.0, r, p)
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
    r, s = int(law[RANK]), o[STRIDE]
    at = base + int(law[PLACE])
    axes = at + 2 * s
    own = axes + r * s
    lam, numbers = own + r * r, own + 2 * r * r
    size = w[numbers + SIZE]
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
    started, p = w[base + BUFFERED] >= law[STAGE], 8 * ((r + 7) // 8)
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
    limit = math.sqrt(min(1.0, LIMIT * n / max(square, 1e-300)))
    if started:
        gain = 1.0 / (w[numbers + N_SPECTRUM] + 1.0)
        for a in range(r):
            v[o[G] + a] *= limit
            v[o[SCORES] + a] *= limit
        for a in range(r):
            for b in range(r):
                seen = v[o[SCORES] + a] * v[o[SCORES] + b] + v[o[INVERSE] + a * p + b]
                w[lam + a * r + b] += gain * (seen - w[lam + a * r + b])
            w[lam + a * r + a] = max(w[lam + a * r + a], DEAD)
        cholesky(v, o[INVERSE], r, p)
    for k in range(N_NOISE, N_SPECTRUM + 1):
        w[numbers + k] += 1.0
    rows_noise, rows_metric = spread(w[numbers + N_NOISE]), spread(w[numbers + N_METRIC])
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
        count = load(w, base + o[LEVEL] + s + i) + spread(PRIOR_ROWS)
        for k in range(2):
            rows = rows_noise if k == 0 else rows_metric
            old = load(w, at + k * s + i)
            new = old + div(seen - old, above(rows, count, count, rows))
            new = above(new, lowest, new, lowest)
            store(w, at + k * s + i, above(here, half, new, old))
    if started:
        turn(w, o, law, axes, own, v, share)
        if w[base + COUNT] % POLISH_EVERY == 0.0:
            polish(w, axes, r, s, base + o[LEVEL])
    ratio = min(square / n, LIMIT) - 1.0
    w[numbers + SIZE] += math.log1p(law[SIZE_GAIN] * ratio)


@jit
def turn(w: Any, o: Any, law: Any, axes: int, own: int, v: Any, share: float) -> None:
    """The axes turn towards E, what they left over, along a great circle."""
    r, s, pg, g = int(law[RANK]), o[STRIDE], o[PG], o[G]
    c = 1.0
    for a in range(r):
        v[pg + a] = 0.0
        for b in range(r):
            v[pg + a] += w[own + a * r + b] * v[g + b]
        c += share * v[g + a] * v[pg + a]
    size = 0.0
    for a in range(r):
        for b in range(r):
            w[own + a * r + b] -= share * v[pg + a] * v[pg + b] / c
        size += (v[pg + a] / c) ** 2
    size = math.sqrt(size)
    for a in range(r):
        v[o[BR] + a] = dot(w, axes + a * s, v, o[E], s)
    for a in range(r):
        add(v, o[E], -v[o[BR] + a], w, axes + a * s, s)
    length = math.sqrt(dot(v, o[E], v, o[E], s))
    angle = length * size
    if not angle > 0.0:
        return
    rise, fall = spread(math.sin(angle) / length), spread(math.cos(angle) - 1.0)
    for a in range(r):
        v[pg + a] /= c * size
    for i in range(0, s, 8):
        along = spread(0.0)
        for a in range(r):
            along = fma(spread(v[pg + a]), load(w, axes + a * s + i), along)
        way = fma(rise, load(v, o[E] + i), fall * along)
        for a in range(r):
            p = axes + a * s + i
            store(w, p, fma(spread(v[pg + a]), way, load(w, p)))


# ----------------------------------------------------------------------- start


@jit
def start_axes(w: Any, o: Any, law: Any, base: int, n: int, d: int) -> None:
    """Axes and spectrum from the singular values of the first n rows, x / sqrt(v)."""
    r, s = int(law[RANK]), o[STRIDE]
    at, level = base + int(law[PLACE]), base + o[LEVEL]
    axes = at + 2 * s
    own = axes + r * s
    lam, numbers = own + r * r, own + 2 * r * r
    variance, z, size = np.ones(s), np.zeros((n, s)), np.zeros(n)
    for t in range(n):
        for i in range(s):
            z[t, i] = w[base + o[BUFFER] + t * s + i]
            if w[level + i] > 0.0:
                size[t] += z[t, i] ** 2 / w[level + i] / d
    usual = LIMIT * np.sort(size)[n // 2]
    for t in range(n):  # a row far beyond the usual size counts as one at the limit
        if usual > 0.0 and size[t] > usual:
            z[t] *= math.sqrt(usual / size[t])
    for i in range(s):
        if w[level + i] > 0.0:
            power, guess = 0.0, w[level + 2 * s + i]
            for t in range(n):
                power += z[t, i] ** 2
            if power > 0.0:
                guess = min(guess, LIMIT * power / n)
            variance[i] = (power + PRIOR_ROWS * guess) / (w[level + s + i] + PRIOR_ROWS)
            w[level + i] = variance[i]
        for t in range(n):
            z[t, i] /= math.sqrt(variance[i])
    flat = z.reshape(n * s)
    gram = np.zeros(n * n)
    for i in range(n):
        for j in range(i + 1):
            put(gram, 0, i, j, n, dot(flat, i * s, flat, j * s, s))
    values, vectors = np.linalg.eigh(gram.reshape(n, n))
    rest, largest = 0.0, max(values[n - 1], 1e-300)
    for k in range(n - r):
        rest += max(values[k], 0.0)
    floor = min(max(rest / ((n - r) * d), SMALLEST_NOISE), 1.0)
    spikes, left = np.empty(r), np.ones(s)
    for a in range(r):
        value = values[n - 1 - a]
        spikes[a] = floor * spike(value / (n * floor), d / n)
        for i in range(s):
            acc = 0.0
            if value > 1e-12 * largest:
                for t in range(n):
                    acc += vectors[t, n - 1 - a] * z[t, i]
                acc /= math.sqrt(value)
            w[axes + a * s + i] = acc
            left[i] -= spikes[a] * acc * acc
    shrink = math.exp(-w[numbers + SIZE])
    for i in range(s):
        here = w[level + i] > 0.0
        p = max(left[i], SMALLEST_NOISE)
        w[at + i] = shrink * variance[i] * p if here else 0.0
        w[at + s + i] = w[at + i]
        for a in range(r):
            w[axes + a * s + i] = w[axes + a * s + i] / math.sqrt(p) if here else 0.0
    before = np.empty(r * s)
    for k in range(r * s):
        before[k] = w[axes + k]
    polish(w, axes, r, s, level)
    mixing = np.empty((r, r))
    for a in range(r):
        for b in range(r):
            mixing[a, b] = dot(w, axes + a * s, before, b * s, s)
        if not dot(before, a * s, before, a * s, s) > 0.0:
            mixing[a, a] = 1.0
    for a in range(r):
        for b in range(r):
            acc = 0.0
            for c in range(r):
                acc += mixing[a, c] * spikes[c] * mixing[b, c]
            w[lam + a * r + b] = acc
            w[own + a * r + b] = 0.0
        sure = 1.0 / (n * max(spikes[a], SMALLEST_FACTOR))
        w[own + a * r + a] = min(sure, 1.0 / o[DIMENSION])
    metric = max(METRIC_HALF_LIFE, law[NOISE_HALF_LIFE])
    w[numbers + N_SPECTRUM] = min(float(n), MEMORY * law[SPECTRUM_HALF_LIFE])
    w[numbers + N_NOISE] = min(n + PRIOR_ROWS, MEMORY * law[NOISE_HALF_LIFE])
    w[numbers + N_METRIC] = min(n + PRIOR_ROWS, MEMORY * metric)


@jit
def spike(value: float, ratio: float) -> float:
    """Variance of a factor behind a sample eigenvalue, with d/n channels per row, noise 1."""
    if not value > (1.0 + math.sqrt(ratio)) ** 2:
        return math.sqrt(ratio)
    b = value + 1.0 - ratio
    return max(0.5 * (b + math.sqrt(max(b * b - 4.0 * value, 0.0))) - 1.0, SMALLEST_FACTOR)
