"""One step of the ensemble once more, to be read beside its formulas: numpy, one track.

One Student-t forecast from K members, weighted by the gradient of its own likelihood:

    drift     every member moves on by dt
    hold      S_k, the covariance that member k forecasts
    forecast  S = sum_k w_k S_k,  p(x) = sum_j pi_j t_{nu_j}(x; scale e^kappa S)
    judge     pi, kappa and w learn from how well the forecast did; u weighs the observation
    learn     every member takes in u C

Tests compare the loop of `kgmrf.kernels.ensemble` with this. Here everything is a d x d matrix and
nothing is fast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kgmrf.density import TAILS
from kgmrf.engines import layout as at
from kgmrf.engines.layout import blend_weights, turned, unpack
from kgmrf.engines.members import (
    BLEND_LIMIT,
    BLEND_RATE,
    BLEND_SHARE,
    EARLY,
    FILL_LIMIT,
    FLOOR,
    KAPPA_GAIN,
    KAPPA_LIMIT,
    LEVEL_MEMORY,
    OUTLIER,
    POOL_SAMPLES,
    RETURN,
    SHRINKAGE,
    SIZE_RETENTION,
    TAIL_SHARE,
    UNLIKE,
)
from kgmrf.factors import heaviness
from kgmrf.gains import ANGLE_VARIANCE_LIMIT, RATE_VARIANCE_LIMIT
from kgmrf.geometry import so
from kgmrf.kernels.layout import folded
from kgmrf.motion import CORRELATION_LIMIT, POLISH_EVERY

NU = np.array(TAILS)


def run(engine, rows, seen, counts, dt, *, matrix):
    """Take in lines of one track ``(n, r, d)``; the records, as `Ensemble.advance` returns them."""
    parts, records = at.track(rows[0], engine.plan), np.empty((len(seen), engine.record_size))
    for record, one, m, interval in zip(records, seen, counts, dt, strict=True):
        here = m if matrix else float((~np.isnan(one).all(axis=1)).sum())
        step(parts, engine.plan, one, here, float(interval), matrix=matrix)
        weights = blend_weights(parts.roots, not np.isnan(parts.head[at.VALUES]))
        there = present(parts)
        blend = np.tensordot(weights, hold(parts, engine.plan), 1)
        blend[~there], blend[:, ~there] = np.nan, np.nan
        blend *= growth(parts)
        record[:] = np.concatenate([rows[0, : engine.small], blend.reshape(-1)])
    return records


def growth(track):
    """The covariance over S: e^kappa sum_j pi_j nu_j/(nu_j - 2), from the second observation on."""
    heavy = np.exp(track.head[at.KAPPA]) * heaviness(track.tails)
    return heavy if track.head[at.COUNT] > 1.0 else 1.0


def pack(full):
    """The lower triangle of a symmetric matrix, row by row."""
    return full[np.tril_indices(len(full))]


# ----------------------------------------------------------------------- drift and hold


def drift(track, plan, dt):
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
        own.frame[:] = own.frame @ so.exp(dt * folded(own.velocity, plan.d, -1.0))
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


def pooling(track):
    """Whether the turning members still pool their first observations."""
    return bool(track.head[at.POOLED] >= 0.0)


def present(track):
    """Channels that have had a value other than zero."""
    return track.level > 0.0


def hold(track, plan):
    """S_k of every member, ``(K, d, d)``; zero for channels that are absent."""
    d, there = plan.d, present(track)
    out = np.zeros((len(plan.table), d, d))
    clock, channel, average, turning = 0, 0, 0, 0
    for whole, law in zip(out, plan.table, strict=True):
        if law[at.KIND] == at.TURNING:
            whole[:] = hold_turning(track, plan, turning)
            turning += 1
            continue
        whole[:] = np.eye(d)
        if law[at.KIND] == at.AVERAGE:
            keep = 1.0 - SHRINKAGE / (track.mass[average] + SHRINKAGE) * (1.0 - np.eye(d))
            whole[:] = keep * unpack(track.body[average], d)
            average += 1
            if law[at.SIZE_GAIN] > 0:
                whole *= np.exp(track.size[clock])
                clock += 1
        if law[at.CHANNEL] > 0:
            whole *= np.outer(track.deviation[channel], track.deviation[channel])
            channel += 1
        level = np.maximum(np.diag(whole), FLOOR * track.level) * (1.0 + 1e-9)
        np.fill_diagonal(whole, np.where(there, level, 0.0))
    return out


def hold_turning(track, plan, index):
    """E Q diag(lam) Q^T E, or the pooled covariance with its off-diagonal times n/(n + 1)."""
    d, numbers, n = plan.d, track.turning[index], track.head[at.POOLED]
    if pooling(track):
        pooled = unpack(numbers[: d * (d + 1) // 2], d)
        return pooled * np.where(np.eye(d) > 0, 1.0, n / (n + 1.0))
    own = turned(numbers, d)
    whole = (own.frame * own.spectrum) @ own.frame.T
    return track.units[:, None] * whole * track.units


# ----------------------------------------------------------------------- compare


class Frame(NamedTuple):
    """What one observation says, once the forecast S is known (sums over its m samples).

    m: samples. values: N, observed numbers. distance: Q = sum x^T Sigma^-1 x. log_det: sum of
    log |Sigma|. outer: sum of S^-1 x x^T S^-1. precision: sum of S^-1. mean: E[x x^T | observed],
    without the conditional covariance of missing cells, which is ``rest``.
    """

    m: float
    values: float
    distance: float
    log_det: float
    outer: np.ndarray
    precision: np.ndarray
    mean: np.ndarray
    rest: np.ndarray


def compare(samples, total, kappa, there):
    """An observation of samples ``(m, d)``, NaN where a cell is missing, beside the forecast."""
    d = total.shape[-1]
    known = samples[~np.isnan(samples[:, there]).all(axis=1)]
    m, grow = float(len(known)), math.exp(kappa)
    outer, precision, mean, rest = np.zeros((4, d, d))
    values = distance = log_det = 0.0
    for x in known:
        o = there & ~np.isnan(x)
        hidden = there & np.isnan(x)
        block = total[np.ix_(o, o)]
        inverse = np.linalg.inv(block)
        y = np.zeros(d)
        y[o] = inverse @ x[o]
        filled = np.where(o, x, 0.0)
        # What is surprising in one channel must not make another surprising that nobody saw.
        apart = float(x[o] @ y[o]) / (FILL_LIMIT * o.sum())
        share = 1.0 / math.sqrt(max(apart, 1.0))
        filled[hidden] = share * (total @ y)[hidden]
        values += o.sum()
        distance += float(x[o] @ y[o]) / grow
        log_det += np.linalg.slogdet(block)[1] + o.sum() * kappa
        outer += np.outer(y, y)
        precision[np.ix_(o, o)] += inverse
        mean += np.outer(filled, filled) / m
        h = np.ix_(hidden, hidden)
        across = total[np.ix_(hidden, o)]
        rest[h] += grow * (total[h] - across @ inverse @ across.T) / m
    return Frame(m, values, distance, log_det, outer, precision, mean, rest)


def compare_matrix(seen, m, total, kappa, there):
    """An observation C = mean of x x^T over m samples beside the forecast."""
    d = total.shape[-1]
    o = np.ix_(there, there)
    inverse = np.zeros((d, d))
    inverse[o] = np.linalg.inv(total[o])
    n = float(there.sum())
    log_det = m * (np.linalg.slogdet(total[o])[1] + n * kappa)
    mean = np.where(there[:, None] & there, seen, 0.0)
    outer = m * inverse @ mean @ inverse
    distance = m * math.exp(-kappa) * float((inverse * mean).sum())
    return Frame(m, m * n, distance, log_det, outer, m * inverse, mean, np.zeros((d, d)))


# ----------------------------------------------------------------------- judge


def log_student(values, distance, log_det):
    """log t_nu of N values at squared distance Q, for each nu of `TAILS`."""
    rise = np.array([math.lgamma(0.5 * (nu + values)) - math.lgamma(0.5 * nu) for nu in TAILS])
    spread = 0.5 * values * np.log(math.pi * NU) + 0.5 * log_det
    return rise - spread - 0.5 * (NU + values) * np.log1p(distance / NU)


def judge(track, plan, parts, frame):
    """log p(x); the tails, kappa and the weights learn from it. Returns the weight u of x."""
    n, q = frame.values, frame.distance
    outer, trace = (np.einsum("ij,kij->k", a, parts) for a in (frame.outer, frame.precision))
    each = log_student(n, q, frame.log_det)
    return weigh(track, plan.table[:, at.ROOT], outer, trace, each, n, q, frame.m / n)


def weigh(
    track,
    prior,
    outer,
    trace,
    each,
    n,
    q,
    rate,
):
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


def learn(track, plan, parts, frame, u, dt):
    """Every member takes in u C; those that are limited weigh it by min(1, 20 d/z) instead.

    The first samples count in full, and no size clock moves: what they were expected to be is what
    one sample was.
    """
    table, there = plan.table, present(track)
    n_there = float(there.sum())
    track.head[at.COUNT] += 1.0
    track.head[at.SAMPLES] += frame.m
    n = track.head[at.COUNT]
    early = track.head[at.SAMPLES] <= EARLY
    u = 1.0 if early else u
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
            if early:
                weight, excess = 1.0, 0.0
            track.size[clock] += math.log1p(law[at.SIZE_GAIN] * excess)
            s = track.size[clock]
            clock += 1
        elif law[at.LIMITED]:
            # z = Q/m of N/m values
            weight = OUTLIER * frame.values / max(frame.distance, OUTLIER * frame.values)
            weight = 1.0 if early else weight
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


def learn_turning(track, plan, seen, m):
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
        own.frame[:] = own.frame @ so.exp(folded(angle, d, -1.0))
        if track.head[at.COUNT] % POLISH_EVERY == 0:
            own.frame[:] = so.polish(own.frame)


def smallest(own, track):
    """Eigenvalues stay above phi^2 times the largest, and times the long-run level."""
    return FLOOR**2 * max(own.spectrum.max(), float(np.max(track.level / track.units**2)))


def start_turning(track, plan, m):
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


def enter(track, plan, power, m, parts):
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


def start(track, plan, samples, m, *, matrix):
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


def step(track, plan, samples, m, dt, *, matrix):
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
