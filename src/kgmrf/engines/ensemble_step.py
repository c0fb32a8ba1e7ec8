"""The self-tuned ensemble, one track and one step at a time, readable beside its formulas.

One Student-t forecast from K members, weighted by the gradient of its own likelihood:

    drift     every member moves on by dt
    hold      S_k, the covariance that member k forecasts
    forecast  S = sum_k w_k S_k,  p(x) = sum_j pi_j t_{nu_j}(x; scale e^kappa S)
    judge     pi, kappa and w learn from how well the forecast did; u weighs the observation
    learn     every member takes in u C

The compiled loop of :mod:`kgmrf.kernels.ensemble` is the twin of this file; tests hold the two
together. Here everything is a d x d matrix and nothing is fast.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.density import TAILS
from kgmrf.engines import layout as at
from kgmrf.engines.compare_step import Frame, compare, compare_matrix
from kgmrf.engines.layout import Layout, Track, Turned, blend_weights, pack, planes, turned, unpack
from kgmrf.gains import ANGLE_VARIANCE_LIMIT, RATE_VARIANCE_LIMIT
from kgmrf.geometry import so
from kgmrf.motion import CORRELATION_LIMIT, POLISH_EVERY

BLEND_RATE, BLEND_LIMIT, BLEND_SHARE = 0.25, 1.0, 1e-3
TAIL_SHARE, KAPPA_GAIN, KAPPA_LIMIT = 1e-3, 0.005, 0.7
FLOOR = 1e-6  # smallest variance of a channel in a forecast, relative to its long-run level
OUTLIER = 20.0  # times the forecast size: limited members learn from no more than this
RETURN = 0.5  # share of the prior weights that comes back after an observation beyond OUTLIER
SHRINKAGE = 0.01  # observations that stand for a diagonal matrix in an average
SIZE_RETENTION, LEVEL_MEMORY = 0.98, 6000.0
POOL_SAMPLES = 5.0  # samples per channel before a turning member starts
UNLIKE = 1e3  # ratio of variances above which turning members work in units of each channel
NU = np.array(TAILS)


# ----------------------------------------------------------------------- drift and hold


def drift(track: Track, plan: Layout, dt: float) -> None:
    """s <- .98^dt s, V <- 2^(-dt/h) V, Q <- Q Exp(dt W), P <- F P F^T + noise."""
    table = plan.table
    track.head[at.TIME] += dt
    track.size[:] *= SIZE_RETENTION**dt
    averages = table[:, at.KIND] == at.AVERAGE
    track.mass[:] *= 2.0 ** (-dt / table[averages, at.HALF_LIFE])
    if pooling(track):
        return
    for law, numbers in zip(table[table[:, at.KIND] == at.TURNING], track.turning, strict=True):
        own = turned(numbers, plan.d)
        own.frame[:] = own.frame @ so.exp(dt * planes(own.velocity, plan.d, -1.0))
        q = law[at.ACCELERATION]
        own.p11[:] += 2.0 * dt * own.p12 + dt**2 * own.p22 + q * dt**3 / 3.0
        own.p12[:] += dt * own.p22 + q * dt**2 / 2.0
        own.p22[:] += q * dt
        for p, limit in ((own.p11, ANGLE_VARIANCE_LIMIT), (own.p22, RATE_VARIANCE_LIMIT)):
            # Shrink the pair together: clipping a variance alone would make P indefinite.
            own.p12[:] *= np.sqrt(np.minimum(1.0, limit / p))
            p[:] = np.minimum(p, limit)
        most = CORRELATION_LIMIT * np.sqrt(own.p11 * own.p22)
        own.p12[:] = np.clip(own.p12, -most, most)
        own.spectrum_var[:] += law[at.SPECTRUM_RATE] * dt


def pooling(track: Track) -> bool:
    """Whether the turning members still pool their first observations."""
    return bool(track.head[at.POOLED] >= 0.0)


def present(track: Track) -> Mask:
    """Channels that have had a value other than zero."""
    return track.level > 0.0


def hold(parts: Track, plan: Layout) -> Numbers:
    """S_k of every member, ``(..., K, d, d)``; zero for channels that are absent."""
    d, table = plan.d, plan.table
    lead = parts.head.shape[:-1]
    out = np.zeros((*lead, len(table), d, d))
    diagonal = np.arange(d)
    lowest, present = FLOOR * parts.level, parts.level > 0.0
    clock, channel, average, turning = 0, 0, 0, 0
    for k, law in enumerate(table):
        if law[at.KIND] == at.TURNING:
            out[..., k, :, :] = hold_turning(parts, plan, turning)
            turning += 1
            continue
        whole = np.broadcast_to(np.eye(d), (*lead, d, d))
        if law[at.KIND] == at.AVERAGE:
            mass = parts.mass[..., average, None, None]
            keep = 1.0 - SHRINKAGE / (mass + SHRINKAGE) * (1.0 - np.eye(d))
            whole = keep * unpack(parts.body[..., average, :], d)
            average += 1
            if law[at.SIZE_GAIN] > 0:
                whole = np.exp(parts.size[..., clock, None, None]) * whole
                clock += 1
        if law[at.CHANNEL] > 0:
            own = parts.deviation[..., channel, :]
            whole = own[..., :, None] * whole * own[..., None, :]
            channel += 1
        out[..., k, :, :] = whole
        level = np.maximum(out[..., k, diagonal, diagonal], lowest) * (1.0 + 1e-9)
        out[..., k, diagonal, diagonal] = np.where(present, level, 0.0)
    return out


def hold_turning(parts: Track, plan: Layout, index: int) -> Numbers:
    """E Q diag(lam) Q^T E, or the pooled covariance with its off-diagonal times n/(n + 1)."""
    d = plan.d
    numbers = parts.turning[..., index, :]
    own = turned(numbers, d)
    whole = (own.frame * own.spectrum[..., None, :]) @ np.swapaxes(own.frame, -1, -2)
    whole = parts.units[..., :, None] * whole * parts.units[..., None, :]
    n = np.maximum(parts.head[..., at.POOLED], 0.0)[..., None, None]
    pooled = unpack(numbers[..., : d * (d + 1) // 2], d)
    pooled = pooled * np.where(np.eye(d) > 0, 1.0, n / (n + 1.0))
    return np.where(parts.head[..., at.POOLED, None, None] < 0.0, whole, pooled)


# ----------------------------------------------------------------------- judge


def log_student(values: float, distance: float, log_det: float) -> Numbers:
    """log t_nu of N values at squared distance Q, for each nu of `TAILS`."""
    rise = np.array([math.lgamma(0.5 * (nu + values)) - math.lgamma(0.5 * nu) for nu in TAILS])
    spread = 0.5 * values * np.log(math.pi * NU) + 0.5 * log_det
    return rise - spread - 0.5 * (NU + values) * np.log1p(distance / NU)


def judge(track: Track, plan: Layout, parts: Numbers, frame: Frame) -> float:
    """log p(x); the tails, kappa and the weights learn from it. Returns the weight u of x."""
    n, q = frame.values, frame.distance
    outer, trace = (np.einsum("ij,kij->k", a, parts) for a in (frame.outer, frame.precision))
    each = log_student(n, q, frame.log_det)
    return weigh(track, plan.table[:, at.ROOT], outer, trace, each, n, q, frame.m / n)


def weigh(
    track: Any,
    prior: Numbers,
    outer: Numbers,
    trace: Numbers,
    each: Numbers,
    n: float,
    q: float,
    rate: float,
) -> float:
    """The tails, kappa and the weights learn from n values at squared distance q; returns u.

    outer: <S^-1 x x^T S^-1, S_k>. trace: <S^-1, S_k>. each: log t of each tail. rate: of the step.
    """
    tails, before = track.tails[: at.N_TAILS], track.tails[at.N_TAILS :]
    before[:] = tails
    joint = np.log(tails) + each
    top = joint.max()
    share = np.exp(joint - top)
    track.head[at.LIKELIHOOD] = top + math.log(share.sum())
    track.head[at.DISTANCE], track.head[at.VALUES] = q, n
    share /= share.sum()
    u = float(share @ ((NU + n) / (NU + q)))
    gradient = 0.5 * (u * math.exp(-track.head[at.KAPPA]) * outer - trace)
    roots, w = track.roots, blend_weights(track.roots, False)
    step = np.clip(rate * (gradient - w @ gradient), -BLEND_LIMIT, BLEND_LIMIT)
    roots *= np.exp(BLEND_RATE * step)
    roots *= (1.0 - BLEND_SHARE) / roots.sum()
    roots += BLEND_SHARE / len(roots)
    tails[:] = (1.0 - TAIL_SHARE) * share + TAIL_SHARE / at.N_TAILS
    kappa = track.head[at.KAPPA] + math.log1p(KAPPA_GAIN * (u * q / n - 1.0))
    track.head[at.KAPPA] = min(max(kappa, -KAPPA_LIMIT), KAPPA_LIMIT)
    if q > OUTLIER * n:
        # So far from the forecast that the weights no longer mean much: half back to the start.
        roots[:] = (1.0 - RETURN) * roots + RETURN * prior
        track.head[at.KAPPA] = 0.0
    return u


# ----------------------------------------------------------------------- learn


def learn(track: Track, plan: Layout, parts: Numbers, frame: Frame, u: float, dt: float) -> None:
    """Every member takes in u C; those that are limited weigh it by min(1, 20 d/z) instead."""
    table, there = plan.table, present(track)
    n_there = float(there.sum())
    track.head[at.COUNT] += 1.0
    track.head[at.SAMPLES] += frame.m
    n = track.head[at.COUNT]
    whole = u * frame.mean + frame.rest
    gain = 1.0 / min(n, LEVEL_MEMORY)
    track.level[there] += gain * (np.diag(whole) - track.level)[there]
    clock, channel, average = 0, 0, 0
    o = np.ix_(there, there)
    for k, law in enumerate(table):
        if law[at.KIND] == at.TURNING:
            continue
        weight, s = u, 0.0
        if law[at.SIZE_GAIN] > 0:
            inverse = np.linalg.inv(parts[k][o])
            z = float((inverse * frame.mean[o]).sum())
            spare = float((inverse * frame.rest[o]).sum())
            if law[at.LIMITED]:
                weight = OUTLIER * n_there / max(z, OUTLIER * n_there)
            excess = (weight * z + spare) / n_there - 1.0
            track.size[clock] += math.log1p(law[at.SIZE_GAIN] * excess)
            s = track.size[clock]
            clock += 1
        elif law[at.LIMITED]:
            # z = Q/m of N/m values
            weight = OUTLIER * frame.values / max(frame.distance, OUTLIER * frame.values)
        target = math.exp(-s) * (weight * frame.mean + frame.rest)
        if law[at.CHANNEL] > 0:
            gain = max(1.0 - 2.0 ** (-dt / law[at.CHANNEL]), 1.0 / n)
            own = track.deviation[channel]
            square = own[there] ** 2 + gain * (np.diag(target)[there] - own[there] ** 2)
            own[there] = np.sqrt(np.maximum(square, FLOOR * track.level[there]))
            safe = np.where(there, own, 1.0)
            target = target / safe[:, None] / safe
            channel += 1
        if law[at.KIND] == at.AVERAGE:
            track.mass[average] += 1.0
            track.body[average] += (pack(target) - track.body[average]) / track.mass[average]
            average += 1
    if len(track.turning):
        learn_turning(track, plan, whole, frame.m)


def learn_turning(track: Track, plan: Layout, seen: Numbers, m: float) -> None:
    """One angle-velocity Kalman step per plane, one random-walk step per log eigenvalue."""
    d = plan.d
    if pooling(track):
        track.head[at.POOLED] += 1.0
        n = track.head[at.POOLED]
        for numbers in track.turning:
            pooled = turned(numbers, d).frame.reshape(-1)[: d * (d + 1) // 2]
            pooled += (pack(seen) - pooled) / n
        if n * m >= POOL_SAMPLES * present(track).sum():
            start_turning(track, plan, m)
        return
    for numbers in track.turning:
        own = turned(numbers, d)
        body = own.frame.T @ (seen / track.units[:, None] / track.units) @ own.frame
        low, high = np.tril_indices(d, -1)
        gap = own.spectrum[low] - own.spectrum[high]
        pull = -body[low, high] * gap
        noise = own.spectrum[low] * own.spectrum[high] / m
        inverse = 1.0 / (own.p11 * gap**2 + noise)
        angle = own.p11 * inverse * pull
        own.velocity[:] += own.p12 * inverse * pull
        own.p22[:] = np.maximum(own.p22 - own.p12**2 * gap**2 * inverse, 0.0)
        own.p12[:] *= noise * inverse
        own.p11[:] *= noise * inverse
        gain = own.spectrum_var / (own.spectrum_var + 2.0 / m)
        # the diagonal as measured before the correction
        own.spectrum[:] += gain * (np.diag(body) - own.spectrum)
        own.spectrum_var[:] *= 1.0 - gain
        own.spectrum[:] = np.maximum(own.spectrum, smallest(own, track))
        own.frame[:] = own.frame @ so.exp(planes(angle, d, -1.0))
        if track.head[at.COUNT] % POLISH_EVERY == 0:
            own.frame[:] = so.polish(own.frame)


def smallest(own: Turned, track: Track) -> float:
    """Eigenvalues stay above phi^2 times the largest, and times the long-run level."""
    return FLOOR**2 * max(own.spectrum.max(), float(np.max(track.level / track.units**2)))


def start_turning(track: Track, plan: Layout, m: float) -> None:
    """One eigendecomposition of the pooled covariance; the first member sets the units of all."""
    there = present(track)
    laws = plan.table[plan.table[:, at.KIND] == at.TURNING]
    pooled = [hold_turning(track, plan, k) for k in range(len(laws))]
    n = track.head[at.POOLED]
    variances = np.diag(pooled[0])[there]
    track.units[:] = 1.0
    if variances.max() > UNLIKE * variances.min():
        track.units[there] = np.sqrt(variances)
    for law, numbers, whole in zip(laws, track.turning, pooled, strict=True):
        own = turned(numbers, plan.d)
        values, vectors = np.linalg.eigh(whole / track.units[:, None] / track.units)
        own.spectrum[:], own.frame[:] = values[::-1], vectors[:, ::-1]
        if np.linalg.det(own.frame) < 0:
            own.frame[:, -1] *= -1.0
        own.velocity[:] = own.p12[:] = 0.0
        own.p11[:], own.p22[:] = ANGLE_VARIANCE_LIMIT, law[at.RATE_PRIOR]
        own.spectrum_var[:] = 2.0 / (n * m)
        own.spectrum[:] = np.maximum(own.spectrum, smallest(own, track))
    track.head[at.POOLED] = -1.0


# ----------------------------------------------------------------------- channels come


def enter(track: Track, plan: Layout, power: Numbers, m: float, parts: Numbers) -> None:
    """Channels whose first value other than zero was in this observation; ``power`` is C_ii."""
    new = (track.level == 0.0) & (power > 0.0)
    if not new.any():
        return
    first = track.head[at.COUNT] == 0.0
    track.level[new] = (1.0 + 1.0 / m) * power[new]
    clock, channel, average, turning = 0, 0, 0, 0
    was_pooling = pooling(track)
    diagonal = np.flatnonzero(new) * (np.flatnonzero(new) + 3) // 2
    for k, law in enumerate(plan.table):
        if law[at.KIND] == at.TURNING:
            own = turned(track.turning[turning], plan.d)
            pooled = own.frame.reshape(-1)[: plan.d * (plan.d + 1) // 2]
            if not was_pooling:
                pooled[:] = pack(np.where(new[:, None] | new, 0.0, parts[k]))
            pooled[diagonal] = track.level[new]
            turning += 1
            continue
        s = 0.0
        if law[at.SIZE_GAIN] > 0:
            s = track.size[clock]
            clock += 1
        variance = math.exp(-s) * track.level[new]
        if law[at.CHANNEL] > 0:
            track.deviation[channel][new] = np.sqrt(variance)
            variance = np.ones(int(new.sum()))
            channel += 1
        if law[at.KIND] == at.AVERAGE:
            track.body[average][diagonal] = variance
            average += 1
    track.head[at.POOLED] = 1.0
    if first:
        track.head[at.COUNT] = 1.0
        track.head[at.SAMPLES] = m
        track.mass[:] = 1.0


def start(track: Track, plan: Layout, samples: Numbers, m: float, *, matrix: bool) -> None:
    """The first observation that is not all zero: B = C with the diagonal (1 + 1/m) C_ii."""
    if matrix:
        seen = samples
    else:
        known = np.where(np.isnan(samples), 0.0, samples)
        seen = known.T @ known / m
    power = np.diag(seen).copy()
    if not (power > 0.0).any():
        return
    enter(track, plan, power, m, np.zeros((len(plan.table), plan.d, plan.d)))
    low, high = np.tril_indices(plan.d, -1)
    where = low * (low + 1) // 2 + high
    channel, average, turning = 0, 0, 0
    for law in plan.table:
        if law[at.KIND] == at.TURNING:
            turned(track.turning[turning], plan.d).frame.reshape(-1)[where] = seen[low, high]
            turning += 1
            continue
        scale = np.ones(plan.d)
        if law[at.CHANNEL] > 0:
            scale = np.where(present(track), track.deviation[channel], 1.0)
            channel += 1
        if law[at.KIND] == at.AVERAGE:
            track.body[average][where] = (seen / scale[:, None] / scale)[low, high]
            average += 1


# ----------------------------------------------------------------------- one step


def step(
    track: Track, plan: Layout, samples: Numbers, m: float, dt: float, *, matrix: bool
) -> None:
    """One step of one track, in place.

    samples: ``(m, d)``, or with ``matrix`` the mean of x x^T ``(d, d)`` over m samples; m = 0: no
    observation.
    """
    track.head[at.LIKELIHOOD : at.VALUES + 1] = np.nan
    if track.head[at.COUNT] == 0.0:
        track.head[at.TIME] += dt
        if m > 0:
            track.head[at.SEEN] = track.head[at.TIME]
            start(track, plan, samples, m, matrix=matrix)
        return
    drift(track, plan, dt)
    if m == 0:
        return
    track.head[at.SEEN] = track.head[at.TIME]
    parts = hold(track, plan)
    total = np.tensordot(blend_weights(track.roots, False), parts, 1)
    kappa, there = float(track.head[at.KAPPA]), present(track)
    if matrix:
        frame = compare_matrix(samples, m, total, kappa, there)
        power = np.diag(samples)
    else:
        frame = compare(samples, total, kappa, there)
        power = np.where(np.isnan(samples), 0.0, samples**2).sum(axis=0) / m
    if frame.values > 0:
        u = judge(track, plan, parts, frame)
        learn(track, plan, parts, frame, u, dt)
        if not pooling(track) and (power[~there] > 0).any():
            parts = hold(track, plan)
    enter(track, plan, power, m, parts)
