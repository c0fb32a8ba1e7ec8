"""The isotropic members of the compiled rotation engine: start, predict, score, take in.

All that is remembered of a track is its row ``x`` (see :mod:`kgmrf.kernels.rotation_rows`);
``laws`` are the members, ``w`` is scratch. The readable twin, formula by formula, is
`readable_rotations` in the tests.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels import rotation_rows as at
from kgmrf.kernels.compile import jit
from kgmrf.kernels.quaternions import logarithm, turn, turning

K = at.MEMBERS
LOG_2PI = math.log(2.0 * math.pi)
SWITCHING = 1e-3
PRIORS = (0.25, 0.25, 0.5)  # of the experts: joint weights, weights per axis, dense members
LEAST = 1e-30 ** (1.0 - at.FORGETTING)  # of the probability of a level, so that it can return
LEAST_FADING = 0.98  # of the memory of the least noise, at every observation
UNLIKELY = 1e-6  # levels of the noise are left out if they and their neighbours are below this
WIDEST = math.pi**2  # no angle is less certain
# In the scratch: first what `turning` writes, then
WHOLE, FAR = 27, 36  # a matrix and a quaternion,
MOVES = 40  # (3, K) how far the members move,
SQUARES = MOVES + 3 * K  # (4, K) squared innovations over S, (K,) log S,
FOUND = SQUARES + 5 * K  # (2, L) evidence of levels
NEW = FOUND + 2 * at.LEVELS  # and (4, L, K) weights.
SCRATCH = NEW + 4 * at.LEVELS * K


@jit
def begin(x: Any, z: Any, laws: Any, settings: Any, anew: bool) -> None:
    """Q = Z, delta = 0, P = diag(1, c). Anew: velocities, weights stay; the noise is forgotten."""
    n_levels = int(settings[at.S_COUNT])
    noise = 0.0
    for m in range(n_levels):
        noise += settings[at.S_LEVELS + n_levels + m] * math.log(settings[at.S_LEVELS + m])
    x[at.NOISE] = math.exp(noise)
    x[at.BASE] = -1.0
    x[at.YOUNG] = 6.0
    x[at.PRECISION] = 0.0
    for m in range(2 * at.LEVELS):
        x[at.LEVEL + m] = 1.0 / at.LEVELS
    for a in range(4):
        x[at.FRAME + a] = z[a]
    for k in range(K):
        x[at.P00 + k] = 1.0 + laws[k, at.JITTER_VAR]
        x[at.P01 + k] = 0.0
        x[at.P11 + k] = laws[k, at.RATE_PRIOR] + (x[at.P11 + k] if anew else 0.0)
        for a in range(3):
            x[at.DELTA + K * a + k] = 0.0
        if not anew:
            for a in range(3):
                x[at.EXPERTS + a] = PRIORS[a]
                x[at.RATE + K * a + k] = 0.0
                x[at.WEIGHT + K * a + k] = laws[k, at.EACH]
            for m in range(4 * at.LEVELS):
                x[at.TABLES + K * m + k] = laws[k, at.JOINT if m < at.LEVELS else at.EACH]


@jit
def predict(x: Any, h: float, laws: Any, w: Any) -> None:
    """Members move by d_k = beta v_k, the frame by their mean m; P <- F P F^T + lambda q.

    F = [[1, beta], [0, keep]], keep = exp(-g h), beta = (1 - keep) / g;
    delta_k <- Exp(-m) delta_k + Exp(-m/2) (d_k - m).
    """
    decay = 0.0
    keep = 1.0
    beta = h
    q0 = h
    q2 = h * h * h / 3.0
    most = 1e6 * WIDEST / x[at.NOISE]
    for a in range(3):
        w[a] = 0.0
    for k in range(K):
        if laws[k, at.DECAY] != decay:  # members are listed by their decay
            decay = laws[k, at.DECAY]
            g = decay * h
            keep = math.exp(-g)
            beta = -math.expm1(-g) / decay
            q0 = -math.expm1(-2.0 * g) / (2.0 * decay)
            q2 = (h - 2.0 * beta + q0) / (decay * decay)
            if g < 0.02:
                q2 = h * h * h * (1.0 / 3.0 - g * (0.25 - g * (7.0 / 60.0 - g / 24.0)))
        noise = laws[k, at.LAMBDA]
        p = x[at.P00 + k] + beta * (2.0 * x[at.P01 + k] + beta * x[at.P11 + k]) + noise * q2
        c = keep * (x[at.P01 + k] + beta * x[at.P11 + k]) + noise * 0.5 * beta * beta
        if p > most:  # nothing is known of this angle any more
            c *= math.sqrt(most / p)
            p = most
        x[at.P00 + k] = p
        x[at.P01 + k] = c
        x[at.P11 + k] = keep * keep * x[at.P11 + k] + noise * q0
        for a in range(3):
            w[MOVES + K * a + k] = beta * x[at.RATE + K * a + k]
            w[a] += x[at.WEIGHT + K * a + k] * w[MOVES + K * a + k]
            x[at.RATE + K * a + k] *= keep
    turn(x, at.FRAME, w[0], w[1], w[2])
    shift(x, -1.0, w)


@jit
def shift(x: Any, whole: float, w: Any) -> None:
    """delta <- Exp(whole m) delta + Exp(-m/2) (w[MOVES:] - m), m = w[:3]; angles stay principal."""
    m0, m1, m2 = w[0], w[1], w[2]
    turning(whole * m0, whole * m1, whole * m2, w)
    for a in range(9):
        w[WHOLE + a] = w[a]
    turning(-0.5 * m0, -0.5 * m1, -0.5 * m2, w)
    for k in range(K):
        u0, u1, u2 = x[at.DELTA + k], x[at.DELTA + K + k], x[at.DELTA + 2 * K + k]
        d0 = w[MOVES + k] - m0
        d1 = w[MOVES + K + k] - m1
        d2 = w[MOVES + 2 * K + k] - m2
        far = 0.0
        for a in range(3):
            j = 3 * a
            y = w[WHOLE + j] * u0 + w[WHOLE + j + 1] * u1 + w[WHOLE + j + 2] * u2
            y += w[j] * d0 + w[j + 1] * d1 + w[j + 2] * d2
            x[at.DELTA + K * a + k] = y
            far += y * y
        if far > WIDEST:
            q = FAR
            w[q], w[q + 1], w[q + 2], w[q + 3] = 1.0, 0.0, 0.0, 0.0
            turn(w, q, x[at.DELTA + k], x[at.DELTA + K + k], x[at.DELTA + 2 * K + k])
            u0, u1, u2, _ = logarithm(w[q], w[q + 1], w[q + 2], w[q + 3])
            x[at.DELTA + k], x[at.DELTA + K + k], x[at.DELTA + 2 * K + k] = u0, u1, u2


@jit
def place(x: Any, e: Any, settings: Any) -> None:
    """The first innovation says which levels of the noise are tabulated: up to its square."""
    n_levels = int(settings[at.S_COUNT])
    square = e[0] * e[0] + e[1] * e[1] + e[2] * e[2]
    base = 0
    while base + at.LEVELS < n_levels and settings[at.S_LEVELS + base + at.LEVELS - 2] < square:
        base += 1
    x[at.BASE] = base
    for j in range(2):
        for m in range(at.LEVELS):
            prior = settings[at.S_LEVELS + n_levels + base + m] if m < n_levels else 0.0
            x[at.LEVEL + at.LEVELS * j + m] = prior
        normalise(x, at.LEVEL + at.LEVELS * j, at.LEVELS)


@jit
def normalise(x: Any, first: int, n: int) -> None:
    """Divide x[first : first + n] by its sum."""
    total = 0.0
    for m in range(n):
        total += x[first + m]
    for m in range(n):
        x[first + m] /= total


@jit
def slide(x: Any, settings: Any) -> None:
    """The tabulated levels follow the noise; one that enters is as likely as its neighbour."""
    n_levels = int(settings[at.S_COUNT])
    middle = 0.0
    for m in range(2 * at.LEVELS):
        middle += 0.5 * (m % at.LEVELS) * x[at.LEVEL + m]
    base = int(x[at.BASE])
    steps = round(middle - 0.5 * (at.LEVELS - 1))
    steps = min(max(steps, -base), n_levels - at.LEVELS - base)
    if n_levels < at.LEVELS or steps == 0:
        return
    x[at.BASE] += steps
    for j in range(6):
        size = 1 if j < 2 else K
        first = at.LEVEL + at.LEVELS * j if j < 2 else at.TABLES + at.LEVELS * K * (j - 2)
        for m in range(at.LEVELS) if steps > 0 else range(at.LEVELS - 1, -1, -1):
            source = min(max(m + steps, 0), at.LEVELS - 1)
            for k in range(size):
                x[first + size * m + k] = x[first + size * source + k]
    for j in range(2):
        normalise(x, at.LEVEL + at.LEVELS * j, at.LEVELS)


@jit
def score(x: Any, e: Any, rel: float, laws: Any, settings: Any, w: Any) -> None:
    """New weights and what they say of the noise to the scratch; log evidence to e[3], e[4].

    At a level r of the noise y_k = e - delta_k is N(0, r S_k), S_k = P00_k + rho_k + rel. Each
    level has weights of its own, for all axes together (e[3]) and for each axis (e[4]).
    """
    n_levels = min(int(settings[at.S_COUNT]), at.LEVELS)
    if x[at.BASE] < 0.0:
        place(x, e, settings)
    levels = at.S_LEVELS + int(x[at.BASE])
    for k in range(K):
        s = x[at.P00 + k] + rel + laws[k, at.JITTER_VAR]
        w[SQUARES + 4 * K + k] = math.log(s)
        w[SQUARES + k] = 0.0
        for a in range(3):
            y = e[a] - x[at.DELTA + K * a + k]
            w[SQUARES + K * (a + 1) + k] = y * y / s
            w[SQUARES + k] += y * y / s
    for expert in range(2):
        p = at.LEVEL + at.LEVELS * expert
        top = -math.inf
        for m in range(n_levels):
            near = x[p + m] + x[p + max(m - 1, 0)] + x[p + min(m + 1, n_levels - 1)]
            value = -math.inf
            if near > UNLIKELY:
                value = math.log(x[p + m])
                for j in range(2 * expert + 1):
                    value += level(x, settings[levels + m], expert + j, m, laws, w)
            w[FOUND + at.LEVELS * expert + m] = value
            top = max(top, value)
        total = 0.0
        for m in range(n_levels):
            found = FOUND + at.LEVELS * expert + m
            w[found] = math.exp(w[found] - top)
            total += w[found]
        normalise(w, FOUND + at.LEVELS * expert, n_levels)
        e[3 + expert] = top + math.log(total) - 1.5 * LOG_2PI


@jit
def level(x: Any, r: float, j: int, m: int, laws: Any, w: Any) -> float:
    """New weights at level m of the noise, of all axes (j = 0) or one; their log evidence."""
    size = 3.0 if j == 0 else 1.0
    old = at.TABLES + K * (at.LEVELS * j + m)
    new = NEW + K * (at.LEVELS * j + m)
    prior = at.JOINT if j == 0 else at.EACH
    top = -math.inf
    for k in range(K):
        value = -0.5 * (size * w[SQUARES + 4 * K + k] + w[SQUARES + K * j + k] / r)
        w[new + k] = value if laws[k, prior] > 0.0 else -math.inf
        top = max(top, w[new + k])
    total = 0.0
    for k in range(K):
        weight = (1.0 - SWITCHING) * x[old + k] + SWITCHING * laws[k, prior]
        w[new + k] = weight * math.exp(w[new + k] - top)
        total += w[new + k]
    normalise(w, new, K)
    return top + math.log(total) - 0.5 * size * math.log(r)


@jit
def learn(x: Any, settings: Any, w: Any) -> None:
    """Take over weights and noise from the scratch; what is known of the noise fades."""
    n_all = int(settings[at.S_COUNT])
    n_levels = min(n_all, at.LEVELS)
    levels = at.S_LEVELS + int(x[at.BASE])
    joint = x[at.EXPERTS] / (x[at.EXPERTS] + x[at.EXPERTS + 1])
    for j in range(3 * K):
        x[at.WEIGHT + j] = 0.0
    noise = 0.0
    for expert in range(2):
        share = joint if expert == 0 else 1.0 - joint
        for m in range(n_levels):
            found = w[FOUND + at.LEVELS * expert + m]
            noise += share * found * settings[levels + m]
            if found > 0.0:
                for j in range(2 * expert + 1):
                    table = K * (at.LEVELS * (expert + j) + m)
                    for k in range(K):
                        x[at.TABLES + table + k] = w[NEW + table + k]
                for a in range(3):
                    table = NEW + K * (at.LEVELS * (a + 1) * expert + m)
                    for k in range(K):
                        x[at.WEIGHT + K * a + k] += share * found * w[table + k]
            found = LEAST if found < 1e-30 else found ** (1.0 - at.FORGETTING)
            found *= settings[levels + 2 * n_all + m]
            x[at.LEVEL + at.LEVELS * expert + m] = found
        normalise(x, at.LEVEL + at.LEVELS * expert, n_levels)
    x[at.NOISE] = noise
    slide(x, settings)
    x[at.YOUNG] = max(x[at.YOUNG] - 1.0, 0.0)
    if settings[at.S_JITTER] > 0.0:
        keep_least(x, settings)


@jit
def keep_least(x: Any, settings: Any) -> None:
    """The least noise of late as a precision: noise of a sensor is steady, jitter comes in bursts.

    By the harmonic mean of the levels, which counts errors relative to the noise.
    """
    found = 0.0
    for m in range(2 * at.LEVELS):
        found += 0.5 * x[at.LEVEL + m] / settings[at.S_LEVELS + int(x[at.BASE]) + m % at.LEVELS]
    old = 0.0 if x[at.YOUNG] > 0.0 else LEAST_FADING * x[at.PRECISION]
    x[at.PRECISION] = max(found, old)


@jit
def take(x: Any, e: Any, rel: float, laws: Any, settings: Any, w: Any) -> float:
    """Kalman step and weights (from ``w``) of every member; then recentre. Returns nis."""
    nis = 0.0
    gain = 0.0
    r = x[at.NOISE]
    for j in range(3 * K):
        y = w[SQUARES + K + j]
        nis += x[at.WEIGHT + j] * y / r
    learn(x, settings, w)
    for k in range(K):
        s = x[at.P00 + k] + rel + laws[k, at.JITTER_VAR]
        k0 = x[at.P00 + k] / s
        k1 = x[at.P01 + k] / s
        for a in range(3):
            j = K * a + k
            y = e[a] - x[at.DELTA + j]
            x[at.DELTA + j] += k0 * y
            x[at.RATE + j] += k1 * y
            gain += x[at.WEIGHT + j] * k0 / 3.0
        x[at.P11 + k] = max(x[at.P11 + k] - k1 * x[at.P01 + k], 1e-300)
        x[at.P00 + k] = (rel + laws[k, at.JITTER_VAR]) * k0
        x[at.P01 + k] = (rel + laws[k, at.JITTER_VAR]) * k1
    x[at.GAIN] = gain
    recentre(x, laws, w)
    return nis


@jit
def recentre(x: Any, laws: Any, w: Any) -> None:
    """The frame moves to the mean of the members, m; delta <- Exp(-m/2) (delta - m).

    A member that ran away starts again there, with their mean velocity.
    """
    for a in range(3):
        w[a] = 0.0
        for k in range(K):
            j = K * a + k
            if x[at.WEIGHT + j] > 1e-12:
                w[a] += x[at.WEIGHT + j] * x[at.DELTA + j]
            w[MOVES + j] = x[at.DELTA + j]
            x[at.DELTA + j] = 0.0
    turn(x, at.FRAME, w[0], w[1], w[2])
    shift(x, 0.0, w)
    for k in range(K):
        far = 0.0
        fast = 0.0
        for a in range(3):
            far += x[at.DELTA + K * a + k] ** 2
            fast += x[at.RATE + K * a + k] ** 2
        if not (far < 0.99 * WIDEST and fast < WIDEST):
            x[at.P00 + k] = 1.0 + laws[k, at.JITTER_VAR]
            x[at.P01 + k] = 0.0
            x[at.P11 + k] = laws[k, at.RATE_PRIOR]
            for a in range(3):
                v = 0.0
                for i in range(K):
                    if abs(x[at.RATE + K * a + i]) < 4.0:
                        v += x[at.WEIGHT + K * a + i] * x[at.RATE + K * a + i]
                x[at.DELTA + K * a + k] = 0.0
                x[at.RATE + K * a + k] = v


@jit
def lost(x: Any) -> bool:
    """Whether nothing is known of the angle any more, as after a long gap."""
    total = 0.0
    for a in range(3):
        for k in range(K):
            total += x[at.WEIGHT + K * a + k] * min(x[at.P00 + k] * x[at.NOISE], WIDEST)
    return total > 2.9 * WIDEST
