"""The isotropic members of the compiled rotation engine: start, predict, score, take in.

All that is remembered of a track is its row ``x`` (see :mod:`kgmrf.kernels.rotation_rows`);
``laws`` are the members, ``w`` is scratch. The readable twin, formula by formula, is
`readable_rotations` in the tests.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels.compile import jit
from kgmrf.kernels.quaternions import turn, turning
from kgmrf.kernels.rotation_rows import (
    AXES,
    DELTA,
    EXPERTS,
    FRAME,
    GAIN,
    JOINT,
    MEMBERS,
    NOISE,
    P00,
    P01,
    P11,
    RATE,
    S_GIVEN,
    S_NOISE,
    S_SHAPE,
    SCALE,
    SCALES,
    SHAPE,
    WEIGHT,
)

K = MEMBERS
LOG_2PI = math.log(2.0 * math.pi)
SWITCHING = 1e-3
PRIORS = (0.25, 0.25, 0.5)  # of the experts: joint weights, weights per axis, dense members
LONGEST = 750.0  # memory of the noise, as its shape a_J
WIDEST = math.pi**2  # no angle is less certain
LEAST = 1e-12  # floor of the noise variance
MOST = 36.0  # what one observation may tell of the noise, over its variance ...
SETTLED = 9.0  # ... once its shape a_J is beyond this
MIXED = 4 * K  # in the scratch: where the geometric mean of an axis' scales is


@jit
def begin(x: Any, z: Any, laws: Any, settings: Any, anew: bool) -> None:
    """Q = Z, delta = 0, P = diag(1, c). Anew: velocities, weights stay; the noise is forgotten."""
    for a in range(4):
        x[FRAME + a] = z[a]
    fade = 1.0
    if not anew:
        x[SHAPE] = settings[S_SHAPE]
        x[NOISE] = settings[S_NOISE]
        for a in range(3):
            x[EXPERTS + a] = PRIORS[a]
    elif settings[S_GIVEN] == 0.0:
        fade = min(1.0, 0.15 / x[SHAPE])
        x[SHAPE] *= fade
    for k in range(len(laws)):
        x[P00 + k] = 1.0
        x[P01 + k] = 0.0
        x[P11 + k] = laws[k, 2] + (x[P11 + k] if anew else 0.0)
        x[SCALE + k] = fade * x[SCALE + k] if anew else x[SHAPE] * x[NOISE]
        if not anew:
            x[JOINT + k] = laws[k, 3]
        for a in range(3):
            j = K * a + k
            x[DELTA + j] = 0.0
            x[SCALES + j] = fade * x[SCALES + j] if anew else x[SHAPE] / 3.0 * x[NOISE]
            if not anew:
                x[RATE + j] = 0.0
                x[AXES + j] = laws[k, 3]
                x[WEIGHT + j] = laws[k, 3]


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
    most = 1e6 * WIDEST / x[NOISE]
    for a in range(3):
        w[a] = 0.0
    for k in range(len(laws)):
        if laws[k, 1] != decay:  # members are listed by their decay
            decay = laws[k, 1]
            g = decay * h
            keep = math.exp(-g)
            beta = -math.expm1(-g) / decay
            q0 = -math.expm1(-2.0 * g) / (2.0 * decay)
            q2 = (h - 2.0 * beta + q0) / (decay * decay)
            if g < 0.02:
                q2 = h * h * h * (1.0 / 3.0 - g * (0.25 - g * (7.0 / 60.0 - g / 24.0)))
        p = x[P00 + k] + beta * (2.0 * x[P01 + k] + beta * x[P11 + k]) + laws[k, 0] * q2
        c = keep * (x[P01 + k] + beta * x[P11 + k]) + laws[k, 0] * 0.5 * beta * beta
        if p > most:  # nothing is known of this angle any more
            c *= math.sqrt(most / p)
            p = most
        x[P00 + k] = p
        x[P01 + k] = c
        x[P11 + k] = keep * keep * x[P11 + k] + laws[k, 0] * q0
        for a in range(3):
            w[40 + K * a + k] = beta * x[RATE + K * a + k]
            w[a] += x[WEIGHT + K * a + k] * w[40 + K * a + k]
            x[RATE + K * a + k] *= keep
    turn(x, FRAME, w[0], w[1], w[2])
    shift(x, -1.0, w, len(laws))


@jit
def shift(x: Any, whole: float, w: Any, n: int) -> None:
    """delta <- Exp(whole m) delta + Exp(-m/2) (w[40:] - m), m = w[:3]; angles stay principal."""
    m0 = w[0]
    m1 = w[1]
    m2 = w[2]
    turning(whole * m0, whole * m1, whole * m2, w)
    for a in range(9):
        w[27 + a] = w[a]
    turning(-0.5 * m0, -0.5 * m1, -0.5 * m2, w)
    for k in range(n):
        u0 = x[DELTA + k]
        u1 = x[DELTA + K + k]
        u2 = x[DELTA + 2 * K + k]
        d0 = w[40 + k] - m0
        d1 = w[40 + K + k] - m1
        d2 = w[40 + 2 * K + k] - m2
        far = 0.0
        for a in range(3):
            y = w[27 + 3 * a] * u0 + w[28 + 3 * a] * u1 + w[29 + 3 * a] * u2
            y += w[3 * a] * d0 + w[3 * a + 1] * d1 + w[3 * a + 2] * d2
            x[DELTA + K * a + k] = y
            far += y * y
        if far > WIDEST:
            w[36] = 1.0
            w[37] = 0.0
            w[38] = 0.0
            w[39] = 0.0
            turn(w, 36, x[DELTA + k], x[DELTA + K + k], x[DELTA + 2 * K + k])
            u0 = w[37] * w[37] + w[38] * w[38] + w[39] * w[39]
            u1 = 2.0 * math.atan2(math.sqrt(u0), abs(w[36])) / math.sqrt(u0)
            for a in range(3):
                x[DELTA + K * a + k] = math.copysign(u1, w[36]) * w[37 + a]


@jit
def mean_scales(x: Any, w: Any, n: int) -> None:
    """w[MIXED + a] = exp sum_k omega_ka ln b_ka."""
    for a in range(3):
        total = 0.0
        for k in range(n):
            total += x[AXES + K * a + k] * math.log(x[SCALES + K * a + k])
        w[MIXED + a] = math.exp(total)
    w[MIXED + 3] = w[MIXED] + w[MIXED + 1] + w[MIXED + 2]


@jit
def score(x: Any, e: Any, rel: float, laws: Any, settings: Any, w: Any) -> None:
    """New weights to w[:4K] (joint, then per axis); their log evidence to e[3], e[4].

    y_k = e - delta_k is N(0, r S_k) where the noise is given, S_k = P00_k + rel; learned, Student's
    t with shape a_J and scale b_k S_k (joint) or B_ki S_k (per axis).
    """
    n = len(laws)
    given = settings[S_GIVEN] > 0.0
    shape = x[SHAPE]
    if not given:
        mean_scales(x, w, n)
    for j in range(4):  # 0: all axes together; 1, 2, 3: one axis
        size = 3.0 if j == 0 else 1.0
        base = math.lgamma(shape + 0.5 * size) - math.lgamma(shape)
        field = JOINT if j == 0 else AXES + K * (j - 1)
        top = -1e300
        for k in range(n):
            square = 0.0
            for a in range(3):
                if j == 0 or j == a + 1:
                    square += (e[a] - x[DELTA + K * a + k]) ** 2
            s = x[P00 + k] + rel
            if given:
                value = -0.5 * (size * math.log(x[NOISE] * s) + square / (x[NOISE] * s))
            else:
                b = x[SCALE + k]
                if j > 0:
                    b = x[SCALES + K * (j - 1) + k] + w[MIXED + 3] - w[MIXED + j - 1]
                value = base - 0.5 * size * math.log(b * s)
                value -= (shape + 0.5 * size) * math.log1p(0.5 * square / (b * s))
            w[K * j + k] = value
            top = max(top, value)
        total = 0.0
        for k in range(n):
            weight = (1.0 - SWITCHING) * x[field + k] + SWITCHING * laws[k, 3]
            w[K * j + k] = weight * math.exp(w[K * j + k] - top)
            total += w[K * j + k]
        for k in range(n):
            w[K * j + k] /= total
        value = top + math.log(total) - 0.5 * size * LOG_2PI
        if j < 2:
            e[3 + j] = value
        else:
            e[4] += value


@jit
def take(x: Any, e: Any, rel: float, laws: Any, settings: Any, w: Any) -> float:
    """Kalman step, noise and weights (from ``w``) of every member; then recentre. Returns nis."""
    n = len(laws)
    fade = 1.0
    given = settings[S_GIVEN] > 0.0
    most = MOST / x[SHAPE] if x[SHAPE] > SETTLED else math.inf
    if not given:
        fade = min(1.0, LONGEST / (x[SHAPE] + 1.5))
        x[SHAPE] = fade * (x[SHAPE] + 1.5)
    nis = 0.0
    gain = 0.0
    joint = x[EXPERTS] / (x[EXPERTS] + x[EXPERTS + 1])
    for k in range(n):
        s = x[P00 + k] + rel
        k0 = x[P00 + k] / s
        k1 = x[P01 + k] / s
        square = 0.0
        x[JOINT + k] = w[k]
        for a in range(3):
            j = K * a + k
            y = e[a] - x[DELTA + j]
            nis += x[WEIGHT + j] * y * y / (x[NOISE] * s)
            square += y * y / s
            x[DELTA + j] += k0 * y
            x[RATE + j] += k1 * y
            told = min(y * y / s, 3.0 * most * x[SCALES + j])
            x[SCALES + j] = max(fade * (x[SCALES + j] + 0.5 * told), x[SHAPE] / 3.0 * LEAST)
            x[AXES + j] = w[K + j]
            x[WEIGHT + j] = joint * w[k] + (1.0 - joint) * w[K + j]
            gain += x[WEIGHT + j] * k0 / 3.0
        told = min(square, 3.0 * most * x[SCALE + k])
        x[SCALE + k] = max(fade * (x[SCALE + k] + 0.5 * told), x[SHAPE] * LEAST)
        x[P11 + k] = max(x[P11 + k] - k1 * x[P01 + k], 1e-300)
        x[P00 + k] = rel * k0
        x[P01 + k] = rel * k1
    x[GAIN] = gain
    if not given:
        mean_scales(x, w, n)
        total = 0.0
        for a in range(3):
            rest = w[MIXED + 3] - w[MIXED + a]
            for k in range(n):
                total += x[WEIGHT + K * a + k] * math.log(x[SCALES + K * a + k] + rest)
        x[NOISE] = math.exp(total / 3.0) / x[SHAPE]
    recentre(x, laws, w)
    return nis


@jit
def recentre(x: Any, laws: Any, w: Any) -> None:
    """The frame moves to the mean of the members, m; delta <- Exp(-m/2) (delta - m).

    A member that ran away starts again there, with their mean velocity.
    """
    n = len(laws)
    for a in range(3):
        w[a] = 0.0
        w[36 + a] = 0.0
        for k in range(n):
            j = K * a + k
            if x[WEIGHT + j] > 1e-12:
                w[a] += x[WEIGHT + j] * x[DELTA + j]
            w[40 + j] = x[DELTA + j]
            x[DELTA + j] = 0.0
    turn(x, FRAME, w[0], w[1], w[2])
    shift(x, 0.0, w, n)
    for k in range(n):
        far = 0.0
        fast = 0.0
        for a in range(3):
            far += x[DELTA + K * a + k] ** 2
            fast += x[RATE + K * a + k] ** 2
        if not (far < 0.99 * WIDEST and fast < WIDEST):
            x[P00 + k] = 1.0
            x[P01 + k] = 0.0
            x[P11 + k] = laws[k, 2]
            for a in range(3):
                v = 0.0
                for i in range(n):
                    if abs(x[RATE + K * a + i]) < 4.0:
                        v += x[WEIGHT + K * a + i] * x[RATE + K * a + i]
                x[DELTA + K * a + k] = 0.0
                x[RATE + K * a + k] = v


@jit
def lost(x: Any, n: int) -> bool:
    """Whether nothing is known of the angle any more, as after a long gap."""
    total = 0.0
    for a in range(3):
        for k in range(n):
            total += x[WEIGHT + K * a + k] * min(x[P00 + k] * x[NOISE], WIDEST)
    return total > 2.9 * WIDEST
