"""The step of :mod:`kgmrf.step` for one track, compiled: the same verbs on a desk.

Everything works on one array ``w`` (see :mod:`kgmrf.kernels.layout`) whose matrices have rows of
``s`` numbers, a multiple of eight; what lies beyond the d-th row or column is zero and stays so.
The loops over frames and tracks are in the files beside this one.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.gains import ANGLE_VARIANCE_LIMIT
from kgmrf.geometry.orbit import RELATIVE_RIDGE
from kgmrf.kernels.compile import jit
from kgmrf.kernels.lanes import (
    above,
    any_above,
    div,
    fma,
    load,
    root,
    spread,
    store,
    total,
)
from kgmrf.kernels.layout import (
    ANGLE,
    BODY,
    COAST,
    CROSS,
    DT,
    FRAME,
    INFORMATION,
    KEEP,
    KICK,
    KNOWN,
    KNOWN_SPECTRUM,
    LEVEL,
    LIKELIHOOD,
    LOG_SCALE,
    NIS,
    NOISE_FLOOR,
    P11,
    P12,
    P22,
    PLANES,
    POOL,
    POOL_FRAMES,
    POOL_SAMPLES,
    POSITION,
    POWER,
    RATE,
    RIDGE,
    SCALE_RATE,
    SCALE_RETENTION,
    SCALE_VAR,
    SCRATCH_A,
    SCRATCH_B,
    SEEN,
    SEEN_MATRIX,
    SPECTRUM,
    SPECTRUM_RATE,
    SPECTRUM_VAR,
    STEPS,
    TIME,
    TURN,
    TURNING,
    VELOCITY,
    WARMUP_FRAMES,
    WARMUP_SAMPLES,
)
from kgmrf.kernels.products import (
    copy,
    matrix,
    multiply,
    multiply_transposed,
    polish_frame,
    turn_frame,
    vector,
)
from kgmrf.step import CORRELATION_LIMIT, POLISH_EVERY, SMALLEST_SPECTRUM

LOG_TWO_PI = math.log(2.0 * math.pi)
MOST_CORRELATED = CORRELATION_LIMIT**2


@jit
def drift(w: Any, d: int, s: int, observed: bool) -> None:
    """Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise; clocks widen."""
    dt = w[DT]
    turn = spread(w[TURN])
    decay = spread(w[KEEP] if observed else w[COAST])
    velocity, x = matrix(s, VELOCITY), matrix(s, TURNING)
    for at in range(0, d * s, 8):
        v = load(w, velocity + at)
        store(w, x + at, turn * v)
        store(w, velocity + at, decay * v)
    turn_frame(w, d, s)
    if dt > 0.0:
        w[STEPS] += 1.0
        if w[STEPS] % POLISH_EVERY == 0.0:
            polish_frame(w, d, s, matrix(s, FRAME))
    if w[INFORMATION] != 0.0:
        widen(w, d, s, w[TURN], w[KEEP] if observed else w[COAST])
    if w[SPECTRUM_RATE] != 0.0:
        var = vector(s, SPECTRUM_VAR)
        for j in range(d):
            w[var + j] += w[SPECTRUM_RATE] * dt
    if w[SCALE_RATE] != 0.0:
        keep = w[SCALE_RETENTION] ** dt
        w[LOG_SCALE] *= keep
        w[SCALE_VAR] = keep * keep * w[SCALE_VAR] + w[SCALE_RATE] * dt


@jit
def widen(w: Any, d: int, s: int, turned: float, kept: float) -> None:
    """P <- F P F^T + noise in every plane, then back within the circle."""
    m11, m12, m22 = matrix(s, P11), matrix(s, P12), matrix(s, P22)
    planes = matrix(s, PLANES)
    turn, decay = spread(turned), spread(kept)
    limit, one, most = spread(ANGLE_VARIANCE_LIMIT), spread(1.0), spread(MOST_CORRELATED)
    for i in range(d):
        for j in range(0, s, 8):
            at = i * s + j
            inside = load(w, planes + at)
            p11, p12, p22 = load(w, m11 + at), load(w, m12 + at), load(w, m22 + at)
            reach = fma(turn, p22, p12)
            p11 = p11 + turn * (p12 + reach) + inside * spread(w[ANGLE])
            p12 = decay * reach + inside * spread(w[CROSS])
            p22 = decay * decay * p22 + inside * spread(w[RATE])
            if any_above(p11, limit):
                share = root(div(limit, above(p11, limit, p11, limit)))
                p12 = share * p12
                p11 = above(p11, limit, limit, p11)
            bound, square = most * p11 * p22, p12 * p12
            if any_above(square, bound):
                back = root(
                    div(above(square, bound, bound, one), above(square, bound, square, one))
                )
                p12 = back * p12
            store(w, m11 + at, p11)
            store(w, m12 + at, p12)
            store(w, m22 + at, p22)


# ----------------------------------------------------------------------- correct and kick


@jit
def correct_by_information(w: Any, d: int, s: int, gap: bool, noise: float, residual: int) -> None:
    """Kalman gains in every plane; the residual is -C~ (with gaps) or a rotation's logarithm.

    With gaps the noise of plane (i, j) is d_i d_j times ``noise``; without it is ``noise``.
    """
    x, velocity = matrix(s, TURNING), matrix(s, VELOCITY)
    m11, m12, m22 = matrix(s, P11), matrix(s, P12), matrix(s, P22)
    lam, level = vector(s, SPECTRUM), vector(s, LEVEL)
    one = spread(1.0)
    squares = spread(0.0)
    for i in range(d):
        for j in range(0, s, 8):
            at = i * s + j
            r = load(w, residual + at)
            if gap:
                sensitivity = load(w, lam + j) - spread(w[lam + i])  # the sign of -C~ G
                variance = spread(noise * w[level + i]) * load(w, level + j)
            else:
                sensitivity = one
                variance = spread(noise)
            information = sensitivity * sensitivity
            p11, p12, p22 = load(w, m11 + at), load(w, m12 + at), load(w, m22 + at)
            precision = div(one, fma(p11, information, variance))
            pull = r * sensitivity * precision
            rest = variance * precision
            cross = p12 * precision
            store(w, x + at, p11 * pull)
            store(w, velocity + at, fma(p12, pull, load(w, velocity + at)))
            store(w, m11 + at, p11 * rest)
            store(w, m12 + at, p12 * rest)
            store(w, m22 + at, p22 - cross * p12 * information)
            squares = fma(r * r, precision, squares)
    w[NIS] = 0.5 * total(squares)


@jit
def correct_by_fixed_gains(w: Any, d: int, s: int, gap: bool, residual: int) -> None:
    """Gains from tables; with gaps the innovation is -C~ G / (G^2 + ridge)."""
    x, velocity = matrix(s, TURNING), matrix(s, VELOCITY)
    position, kick = matrix(s, POSITION), matrix(s, KICK)
    lam = vector(s, SPECTRUM)
    ridge = w[RIDGE]
    if gap and math.isnan(ridge):
        low, high = w[lam], w[lam]
        for j in range(1, d):
            low, high = min(low, w[lam + j]), max(high, w[lam + j])
        ridge = RELATIVE_RIDGE * (high - low) * (high - low)
    one, zero = spread(1.0), spread(0.0)
    for i in range(d):
        for j in range(0, s, 8):
            at = i * s + j
            innovation = load(w, residual + at)
            if gap:
                sensitivity = load(w, lam + j) - spread(w[lam + i])
                stiffness = fma(sensitivity, sensitivity, spread(ridge))
                stiffness = above(stiffness, zero, stiffness, one)
                innovation = div(innovation * sensitivity, stiffness)
            store(w, x + at, load(w, position + at) * innovation)
            store(w, velocity + at, fma(load(w, kick + at), innovation, load(w, velocity + at)))
    w[NIS] = math.nan


# ----------------------------------------------------------------------- covariance


@jit
def covariance_frame(w: Any, d: int, s: int, observed: bool, m: float) -> None:
    """One frame of `kgmrf.step.covariance_step`; the observation is in SEEN_MATRIX."""
    w[NIS] = math.nan
    w[LIKELIHOOD] = math.nan
    pooling = w[POOL_SAMPLES] < w[WARMUP_SAMPLES] and w[POOL_FRAMES] < w[WARMUP_FRAMES]
    w[TIME] += w[DT]
    if not (pooling or math.isnan(w[SEEN])):
        drift(w, d, s, observed)
    if not observed:
        return
    w[SEEN] = w[TIME]
    if pooling:
        pool(w, d, s, m)
        return
    frame, seen, body = matrix(s, FRAME), matrix(s, SEEN_MATRIX), matrix(s, BODY)
    half = matrix(s, SCRATCH_A)
    power, level, lam = vector(s, POWER), vector(s, LEVEL), vector(s, SPECTRUM)
    multiply(w, seen, frame, half, seen, 0.0, d, s)
    multiply_transposed(w, frame, half, body, d, s)
    if w[LOG_SCALE] != 0.0:
        shrink = spread(math.exp(-w[LOG_SCALE]))
        for at in range(0, d * s, 8):
            store(w, body + at, shrink * load(w, body + at))
    product, logs, share = 1.0, 0.0, 0.0
    for i in range(d):
        at = body + i * s + i
        w[power + i] = w[at]
        w[at] = 0.0
        w[level + i] = w[lam + i] + w[NOISE_FLOOR]
        product *= w[level + i]
        if not 1e-100 < product < 1e100:
            logs += math.log(product)
            product = 1.0
    logs += math.log(product)
    ratios = spread(0.0)
    for j in range(0, s, 8):
        ratios = ratios + div(load(w, power + j), load(w, level + j))
    share = total(ratios)
    w[LIKELIHOOD] = -0.5 * m * (d * (LOG_TWO_PI + w[LOG_SCALE]) + logs + share)
    if w[INFORMATION] != 0.0:
        correct_by_information(w, d, s, True, 1.0 / m, body)
    else:
        correct_by_fixed_gains(w, d, s, True, body)
    turn_frame(w, d, s)
    if w[SCALE_RATE] != 0.0:
        adapt_scale(w, d, s, m)
    if w[SPECTRUM_RATE] != 0.0:
        adapt_spectrum(w, d, s, m)


@jit
def adapt_scale(w: Any, d: int, s: int, m: float) -> None:
    """s += log1p(k (mean C~_ii / lam_i - 1))."""
    power, lam = vector(s, POWER), vector(s, SPECTRUM)
    ratios = 0.0
    for j in range(d):
        ratios += w[power + j] / w[lam + j]
    gain = w[SCALE_VAR] / (w[SCALE_VAR] + 2.0 / (m * d))
    w[LOG_SCALE] += math.log1p(gain * (ratios / d - 1.0))
    w[SCALE_VAR] *= 1.0 - gain


@jit
def adapt_spectrum(w: Any, d: int, s: int, m: float) -> None:
    """log d_i += log1p(k (C~_ii / d_i - 1))."""
    power, level = vector(s, POWER), vector(s, LEVEL)
    lam, var = vector(s, SPECTRUM), vector(s, SPECTRUM_VAR)
    one, noise, floor = spread(1.0), spread(2.0 / m), spread(w[NOISE_FLOOR])
    for j in range(0, s, 8):
        v, old = load(w, var + j), load(w, level + j)
        gain = div(v, v + noise)
        ratio = div(load(w, power + j), old)
        store(w, var + j, (one - gain) * v)
        store(w, lam + j, old * fma(gain, ratio - one, one))
    high = w[lam]
    for j in range(1, d):
        high = max(high, w[lam + j])
    least = spread(SMALLEST_SPECTRUM * high)
    for j in range(0, s, 8):
        new = load(w, lam + j) - floor
        store(w, lam + j, above(least, new, least, new))


@jit
def pool(w: Any, d: int, s: int, m: float) -> None:
    """Cold start: the eigendecomposition of the mean of all samples so far."""
    mean, seen = matrix(s, POOL), matrix(s, SEEN_MATRIX)
    a, v, frame = matrix(s, SCRATCH_A), matrix(s, SCRATCH_B), matrix(s, FRAME)
    lam, var, known = vector(s, SPECTRUM), vector(s, SPECTRUM_VAR), vector(s, KNOWN_SPECTRUM)
    count = w[POOL_SAMPLES] + m
    weight = spread(m / count)
    for at in range(0, d * s, 8):
        old = load(w, mean + at)
        new = fma(weight, load(w, seen + at) - old, old)
        store(w, mean + at, new)
        store(w, a + at, new)
        store(w, v + at, spread(0.0))
    for i in range(d):
        w[v + i * s + i] = 1.0
    jacobi(w, a, v, d, s)
    sign = 1.0
    top = 0.0
    for i in range(d):  # largest first; the eigenvalues are on the diagonal of A
        best = i
        for k in range(i + 1, d):
            if w[a + k * s + k] > w[a + best * s + best]:
                best = k
        if best != i:
            w[a + i * s + i], w[a + best * s + best] = w[a + best * s + best], w[a + i * s + i]
            for k in range(0, s, 8):
                x, y = load(w, v + i * s + k), load(w, v + best * s + k)
                store(w, v + i * s + k, y)
                store(w, v + best * s + k, x)
            sign = -sign
        level = w[a + i * s + i]
        if i == 0:
            top = level
        lowest = SMALLEST_SPECTRUM * top
        w[lam + i] = max(level - w[NOISE_FLOOR], lowest)
        if w[KNOWN] != 0.0:
            w[lam + i] = w[known + i]
        w[var + i] = 2.0 / count
    for k in range(d):
        for i in range(d):
            w[frame + k * s + i] = w[v + i * s + k]
        w[frame + k * s + d - 1] *= sign
    w[POOL_SAMPLES] = count
    w[POOL_FRAMES] += 1.0


@jit
def jacobi(w: Any, a: int, v: int, d: int, s: int) -> None:
    """A <- J A J^T diagonal, V <- J V, by cyclic plane rotations of whole rows.

    Columns of A follow by symmetry; the rows of V end as the eigenvectors.
    """
    for _ in range(40):
        off, on = 0.0, 0.0
        for i in range(d):
            on += w[a + i * s + i] ** 2
            for j in range(i + 1, d):
                off += w[a + i * s + j] ** 2
        if off <= 1e-36 * on:
            return
        least = 1e-36 * on / (d * d)
        for p in range(d - 1):
            for q in range(p + 1, d):
                ap, aq, vp, vq = a + p * s, a + q * s, v + p * s, v + q * s
                apq = w[ap + q]
                if apq * apq <= least:
                    continue
                app, aqq = w[ap + p], w[aq + q]
                half = 0.5 * (aqq - app) / apq
                t = 1.0 / (abs(half) + math.sqrt(1.0 + half * half))
                if half < 0.0:
                    t = -t
                cosine = 1.0 / math.sqrt(1.0 + t * t)
                c, sn = spread(cosine), spread(t * cosine)
                for k in range(0, s, 8):
                    x, y = load(w, ap + k), load(w, aq + k)
                    store(w, ap + k, c * x - sn * y)
                    store(w, aq + k, fma(sn, x, c * y))
                    x, y = load(w, vp + k), load(w, vq + k)
                    store(w, vp + k, c * x - sn * y)
                    store(w, vq + k, fma(sn, x, c * y))
                for k in range(d):
                    w[a + k * s + p] = w[ap + k]
                    w[a + k * s + q] = w[aq + k]
                w[ap + p], w[aq + q] = app - t * apq, aqq + t * apq
                w[ap + q], w[aq + p] = 0.0, 0.0


# ----------------------------------------------------------------------- rotation


@jit
def rotation_frame(w: Any, d: int, s: int, observed: bool, noise: float) -> None:
    """One frame of `kgmrf.step.rotation_step` for d <= 3; the observation is in SEEN_MATRIX."""
    w[NIS] = math.nan
    w[LIKELIHOOD] = math.nan
    started = not math.isnan(w[SEEN])
    w[TIME] += w[DT]
    if started:
        drift(w, d, s, observed)
    if not observed:
        return
    w[SEEN] = w[TIME]
    frame, seen, body = matrix(s, FRAME), matrix(s, SEEN_MATRIX), matrix(s, BODY)
    m11 = matrix(s, P11)
    information = w[INFORMATION] != 0.0
    if not started:
        copy(w, seen, frame, d, s)
        if information:
            for i in range(d):
                for j in range(d):
                    w[m11 + i * s + j] = 0.0 if i == j else min(noise, ANGLE_VARIANCE_LIMIT)
        return
    multiply_transposed(w, frame, seen, body, d, s)
    logarithm(w, d, s, body)
    terms = 0.0
    for i in range(d):
        for j in range(i + 1, d):
            spread_ij = noise + w[m11 + i * s + j] if information else noise
            r = w[body + i * s + j]
            terms += LOG_TWO_PI + math.log(spread_ij) + r * r / spread_ij
    w[LIKELIHOOD] = -0.5 * terms
    if information:
        correct_by_information(w, d, s, False, noise, body)
    else:
        correct_by_fixed_gains(w, d, s, False, body)
    turn_frame(w, d, s)


@jit
def logarithm(w: Any, d: int, s: int, r: int) -> None:
    """R <- log R in place, for d = 2 and 3 (see `kgmrf.geometry.so`)."""
    if d == 2:
        angle = math.atan2(w[r + s] - w[r + 1], w[r] + w[r + s + 1])
        w[r], w[r + 1], w[r + s], w[r + s + 1] = 0.0, -angle, angle, 0.0
        return
    r00, r01, r02 = w[r], w[r + 1], w[r + 2]
    r10, r11, r12 = w[r + s], w[r + s + 1], w[r + s + 2]
    r20, r21, r22 = w[r + 2 * s], w[r + 2 * s + 1], w[r + 2 * s + 2]
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
    x, y, z = factor * x, factor * y, factor * z
    w[r], w[r + 1], w[r + 2] = 0.0, -z, y
    w[r + s], w[r + s + 1], w[r + s + 2] = z, 0.0, -x
    w[r + 2 * s], w[r + 2 * s + 1], w[r + 2 * s + 2] = -y, x, 0.0
