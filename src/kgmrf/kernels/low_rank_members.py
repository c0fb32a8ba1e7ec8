"""The members of the low-rank ensemble: what one of them holds, forecasts and learns.

A member is a covariance of few factors plus a diagonal,

    S_k = e^s [D U^T Lam U D + diag psi]

with axes U ``(r, d)``, U U^T = I, that turn by a Kalman filter whose covariance P all channels
share: ``(r, r)``, or ``(2 r, 2 r)`` for axes that keep turning with a velocity V ``(r, d)``,
U V^T = 0. ``row`` is the row of the track. Vectors over channels have s numbers, d rounded up to a
multiple of eight; what fills them up are channels that were never seen, of level 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.engines import layout as head
from kgmrf.engines import low_rank_step as maths
from kgmrf.engines.members import FLOOR, SIZE_RETENTION
from kgmrf.kernels.compile import jit_views as jit

polish = jit(maths.polish)

# ----------------------------------------------------------------------- algebra


# Each of these stands alone, so that Numba makes code for its kind of product once.


@jit
def dot(x: Any, y: Any) -> Any:
    """x^T y."""
    return x @ y


@jit
def along(x: Any, a: Any) -> Any:
    """x^T A."""
    return x @ a


@jit
def apply(a: Any, x: Any) -> Any:
    """A x."""
    return a @ x


@jit
def product(a: Any, b: Any) -> Any:
    """A B."""
    return a @ b


@jit
def gram(a: Any, b: Any) -> Any:
    """A B^T."""
    return a @ b.T


@jit
def times(a: Any, v: Any) -> Any:
    """A diag v."""
    b = np.empty_like(a)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            b[i, j] = a[i, j] * v[j]
    return b


@jit
def add(a: Any, x: Any, y: Any) -> None:
    """A <- A + x y^T."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] += x[i] * y[j]


@jit
def overlap(sums: Any, a: Any, b: Any) -> None:
    """sums <- sums + diag A^T B."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            sums[j] += a[i, j] * b[i, j]


@jit
def cholesky(a: Any) -> float:
    """A = L L^T in place, zeros above; returns log |A|."""
    n, logs = a.shape[0], 0.0
    column, least = np.zeros(n), np.empty(n)
    for j in range(n):
        least[j] = max(1e-14 * a[j, j], 1e-300)
    for j in range(n):
        pivot = math.sqrt(max(a[j, j], least[j]))  # rounding may leave nothing of it
        logs += 2.0 * math.log(pivot)
        a[j, j], column[j] = pivot, 0.0
        for i in range(j + 1, n):
            a[i, j] /= pivot
            column[i] = a[i, j]
            a[j, i] = 0.0
        for i in range(j + 1, n):
            for k in range(i + 1):  # up to j the column is 0; a loop from 0 is the quicker one
                a[i, k] -= column[i] * column[k]
    return logs


@jit
def inverse_of(a: Any) -> Any:
    """L^-1 of a lower L."""
    b = np.zeros_like(a)
    for i in range(a.shape[0]):
        for k in range(i):
            for j in range(k + 1):
                b[i, j] -= a[i, k] * b[k, j]
        for j in range(i):
            b[i, j] /= a[i, i]
        b[i, i] = 1.0 / a[i, i]
    return b


@jit
def weigh_factors(lam: Any, extra: float, seen: Any, b: Any) -> Any:
    """(Lam'^-1 + G)^-1, and that times b, for Lam' = Lam + extra I and G = seen."""
    root = lam.copy()
    for i in range(len(b)):
        root[i, i] += extra
    cholesky(root)
    right = root.T.copy()
    inner = product(right, product(seen, root))
    for i in range(len(b)):
        inner[i, i] += 1.0
    cholesky(inner)
    half = product(inverse_of(inner), right).T.copy()
    inverse = gram(half, half)
    return inverse, apply(inverse, b)


# ----------------------------------------------------------------------- drift and hold


@jit
def member(row: Any, law: Any, s: int) -> Any:
    """psi, D^2 ``(s,)``, U ``(r, s)``, V, P, Lam and the numbers of a member, as views."""
    r, states = int(law[maths.RANK]), int(law[maths.STATES])
    place, angles = int(law[maths.PLACE]), int(law[maths.ANGLES])
    spectrum, numbers = int(law[maths.SPECTRUM]), int(law[maths.NUMBERS])
    axes = place + 2 * s
    return (
        row[place : place + s],
        row[place + s : axes],
        row[axes : axes + r * s].reshape(r, s),
        row[axes + r * s : axes + states * s].reshape(states - r, s),
        row[angles : angles + states * states].reshape(states, states),
        row[spectrum : spectrum + r * r].reshape(r, r),
        row[numbers : numbers + maths.N_NUMBERS],
    )


@jit
def drift(row: Any, law: Any, d: int, s: int, dt: float) -> None:
    """s <- .98^dt s; n <- 2^(-dt/h) n, not below 8; P <- P + a^2 dt/d I, diagonal <= 1/d.

    `coast` has moved the axes. Of P whole rows and columns shrink: cutting a variance alone could
    make it indefinite.
    """
    _, _, axes, _, own, _, numbers = member(row, law, s)
    numbers[maths.SIZE] *= SIZE_RETENTION**dt
    noise = law[maths.NOISE_HALF_LIFE]
    half_lives = (noise, max(maths.METRIC_HALF_LIFE, noise), law[maths.SPECTRUM_HALF_LIFE])
    for k in range(3):
        n = numbers[maths.N_NOISE + k]
        kept = n * 2.0 ** (-dt / half_lives[k])
        numbers[maths.N_NOISE + k] = max(kept, min(n, maths.LEAST_ROWS))
    for i in range(own.shape[0]):
        if i < axes.shape[0]:
            own[i, i] += law[maths.ANGLE_NOISE] ** 2 * dt / d
        cut = math.sqrt(min(1.0, 1.0 / (d * max(own[i, i], 1e-300))))
        if cut < 1.0:
            for j in range(own.shape[0]):
                own[i, j] *= cut
                own[j, i] *= cut


@jit
def hold(row: Any, law: Any, s: int, level: Any, share: float, factors: Any, noise: Any) -> None:
    """sqrt(share) F = e^(s/2) D U^T Lam^(1/2), transposed, and the noise e^s psi >= phi L."""
    psi, metric, axes, _, _, lam, numbers = member(row, law, s)
    grow = math.exp(numbers[maths.SIZE])
    for i in range(s):
        own, least = grow * psi[i], FLOOR * level[i]
        noise[i] = own if own > least else least
    if row[maths.BUFFERED] < law[maths.STAGE]:  # no axes yet
        factors[:] = 0.0
        return
    root = lam.copy()
    cholesky(root)
    mixed = product(root.T.copy(), axes)
    deviation = np.empty(s)
    for i in range(s):
        deviation[i] = math.sqrt(share * grow * metric[i])
    for a in range(axes.shape[0]):
        for i in range(s):
            factors[a, i] = deviation[i] * mixed[a, i]


# ----------------------------------------------------------------------- learn


@jit
def learn(row: Any, law: Any, s: int, known: Any, x: Any, here: Any, n: int, share: float) -> None:
    """One member takes in a sample x over the channels ``here``: noise, spectrum, axes, size.

    known: levels and counts of the channels. share: n over the number of all channels.
    """
    psi, metric, axes, velocity, own, lam, numbers = member(row, law, s)
    level, counts, r = known[0], known[1], axes.shape[0]
    size, started = numbers[maths.SIZE], row[maths.BUFFERED] >= law[maths.STAGE]
    shrink, least = math.exp(-0.5 * size), math.exp(-size) * FLOOR
    z, e, scaled, precision = np.empty(s), np.empty(s), np.empty(s), np.empty(s)
    for i in range(s):
        unit, lowest = metric[i] if here[i] > 0.0 else 1.0, least * level[i]
        noise = psi[i] if psi[i] > lowest else lowest
        z[i] = shrink * x[i] / math.sqrt(unit)
        precision[i] = here[i] * unit / (noise if here[i] > 0.0 else 1.0)
        scaled[i] = z[i] * precision[i]
    square = dot(scaled, z)
    g, scores, inverse = np.zeros(r), np.zeros(r), np.zeros((r, r))
    if started:
        seen, b = gram(times(axes, precision), axes), apply(axes, scaled)
        inverse, scores = weigh_factors(lam, 0.0, seen, b)
        g = weigh_factors(lam, 1.0, seen, b)[1]  # dead factors come back
        square -= dot(b, scores)
    limit = math.sqrt(min(1.0, maths.LIMIT * n / max(square, 1e-300)))
    for k in range(maths.N_NOISE, maths.N_NUMBERS):
        numbers[k] += 1.0
    told, spread = along(g, axes), np.zeros(s)
    overlap(spread, product(inverse, axes), axes)
    rows_noise, rows_metric = numbers[maths.N_NOISE], numbers[maths.N_METRIC]
    for i in range(s):
        e[i] = limit * here[i] * (z[i] - told[i])
        target, lowest = metric[i] * (e[i] * e[i] + spread[i]), least * level[i]
        rows = counts[i] + maths.PRIOR_ROWS
        new = psi[i] + (target - psi[i]) / (rows_noise if rows_noise < rows else rows)
        new = new if new > lowest else lowest
        psi[i] = new if here[i] > 0.0 else psi[i]
        new = metric[i] + (target - metric[i]) / (rows_metric if rows_metric < rows else rows)
        new = new if new > lowest else lowest
        metric[i] = new if here[i] > 0.0 else metric[i]
    if started:
        for a in range(r):
            for k in range(r):
                now = limit * limit * scores[a] * scores[k] + inverse[a, k]
                lam[a, k] += (now - lam[a, k]) / numbers[maths.N_SPECTRUM]
            lam[a, a] = max(lam[a, a], maths.DEAD)
        turn(axes, velocity, own, e, g, limit, share)
        if row[head.COUNT] % maths.POLISH_EVERY == 0.0:
            polish(axes, level)
            for a in range(velocity.shape[0]):
                for k in range(r):
                    add(velocity[a : a + 1], np.full(1, -dot(velocity[a], axes[k])), axes[k])
    numbers[maths.SIZE] += math.log1p(law[maths.SIZE_GAIN] * (min(square / n, maths.LIMIT) - 1.0))


@jit
def turn(axes: Any, velocity: Any, own: Any, e: Any, g: Any, limit: float, share: float) -> None:
    """U <- U + gain e_perp and V <- V + kick e_perp, both carried along a great circle.

    The scores are g times limit; e is changed.
    """
    r, n, s = axes.shape[0], own.shape[0], axes.shape[1]
    gain, c = np.zeros(n), 1.0
    for i in range(n):
        for j in range(r):
            gain[i] += limit * own[i, j] * g[j]
    for i in range(r):
        c += share * limit * g[i] * gain[i]
    for i in range(n):
        for j in range(n):
            own[i, j] -= share * gain[i] * gain[j] / c
    size = 0.0
    for i in range(n):
        gain[i] /= c
        size += gain[i] * gain[i] if i < r else 0.0
    inside = along(apply(axes, e), axes)
    for i in range(s):
        e[i] -= inside[i]
    length, size = math.sqrt(dot(e, e)), math.sqrt(size)
    if not length * size > 0.0:
        return
    rise, fall = math.sin(length * size), math.cos(length * size) - 1.0
    forth, way, back = along(gain[:r], axes), np.empty(s), np.empty(s)
    for i in range(s):
        unit, ahead = e[i] / length, forth[i] / size
        way[i] = (fall * ahead + rise * unit) / size
        back[i] = (fall * unit - rise * ahead) / length
    if n > r:
        add(velocity, gain[r:], e)
        add(velocity, apply(velocity, e), back)
    add(axes, gain[:r], way)
