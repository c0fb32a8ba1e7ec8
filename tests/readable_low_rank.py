"""One step of the low-rank engine once more, to be read beside its formulas: numpy, one track.

See `kgmrf.kernels.low_rank` and `kgmrf.kernels.low_rank_members`, which tests compare with this.
"""

from __future__ import annotations

import math

import numpy as np

from kgmrf.engines import layout as row
from kgmrf.engines.low_rank import track as views
from kgmrf.engines.low_rank_step import (
    BUFFERED,
    DEAD,
    LEAST_ROWS,
    LIMIT,
    N_METRIC,
    N_NOISE,
    N_SPECTRUM,
    POLISH_EVERY,
    PRIOR_ROWS,
    SIZE,
    arrive,
    coast,
    live,
    polish,
    present,
)
from kgmrf.engines.members import FLOOR, LEVEL_MEMORY, SIZE_RETENTION
from kgmrf.readable.score import log_student, weigh


def run(engine, rows, x, dt):
    """Take in rows of samples ``(n, d)``; the records, as `LowRank.advance` returns them."""
    parts, records = views(rows[0], engine.plan), np.empty((len(x), engine.record_size))
    for record, sample, interval in zip(records, x, dt, strict=True):
        here = not np.isnan(sample).all()
        step(parts, engine.plan, sample[None] if here else sample[None][:0], float(interval))
        sharp, there = not np.isnan(parts.head[row.VALUES]), present(parts)
        factors, noises = blend(parts, engine.plan, sharp=sharp)
        noise = row.blend_weights(parts.roots, sharp) @ noises
        factors[~there], noise[~there] = np.nan, np.nan
        record[:] = np.concatenate([rows[0, : engine.small], factors.reshape(-1), noise])
    return records


def weigh_factors(root, gram, b):
    """(Lam^-1 + G)^-1, and that times b, for Lam = root root^T; factors may have no variance."""
    inner = np.linalg.cholesky(np.eye(len(b)) + root.T @ gram @ root)
    half = np.linalg.solve(inner, root.T)
    return half.T @ half, half.T @ (half @ b)


def drift(track, plan, dt):
    """s <- .98^dt s; n <- 2^(-dt/h) n, not below 8; P <- P + a^2 dt/d I, diagonal <= 1/d."""
    for law, part in zip(plan.members, track.parts, strict=True):
        part.numbers[SIZE] *= SIZE_RETENTION**dt
        n = part.numbers[N_NOISE:]
        n[:] = np.maximum(n * 2.0 ** (-dt / law.half_lives), np.minimum(n, LEAST_ROWS))
        own = part.angle_var
        own[np.diag_indices(law.rank)] += law.angle_noise**2 * dt / plan.d
        # Shrink whole rows and columns: cutting a variance alone could make P indefinite.
        cut = np.sqrt(np.minimum(1.0, 1.0 / (plan.d * np.maximum(np.diag(own), 1e-300))))
        own *= cut[:, None] * cut


def hold(track, law, part):
    """F = e^(s/2) D U^T Lam^(1/2) ``(d, r)`` and the noise e^s psi >= phi L ``(d,)``."""
    grow = math.exp(part.numbers[SIZE])
    noise = np.maximum(grow * part.noise, FLOOR * track.level)
    if not live(track, law):
        return np.zeros((len(noise), law.rank)), noise
    deviation = np.sqrt(grow * part.metric)
    return deviation[:, None] * (part.axes.T @ np.linalg.cholesky(part.spectrum)), noise


def blend(track, plan, *, sharp):
    """S = sum_k w_k S_k = F F^T + diag w N: F ``(d, sum r)``, the noises N ``(K, d)``."""
    weights = row.blend_weights(track.roots, sharp)
    held = [hold(track, law, part) for law, part in zip(plan.members, track.parts, strict=True)]
    factors = [math.sqrt(w) * f for w, (f, _) in zip(weights, held, strict=True)]
    return np.concatenate(factors, axis=1), np.array([n for _, n in held])


def judge(track, plan, x, o):
    """log p(x) over the observed channels o; the tails, kappa and the weights learn from it."""
    factors, noises = blend(track, plan, sharp=False)
    weights = row.blend_weights(track.roots, False)
    f, noises = factors[o], noises[:, o]
    noise = weights @ noises
    inner = np.linalg.cholesky(np.eye(f.shape[1]) + f.T @ (f / noise[:, None]))
    half = np.linalg.solve(inner, f.T) / noise  # (sum r, n): S^-1 = 1/N - half^T half
    y = x[o] / noise - half.T @ (half @ x[o])
    n, kappa = float(o.sum()), float(track.head[row.KAPPA])
    distance = math.exp(-kappa) * float(x[o] @ y)
    log_det = float(np.log(noise).sum()) + 2.0 * float(np.log(np.diag(inner)).sum()) + n * kappa
    # <S^-1 x x^T S^-1, S_k> and <S^-1, S_k>, where F^T S^-1 F = I - (I + F^T N^-1 F)^-1.
    inverse = np.linalg.inv(inner)
    taken = 1.0 - (inverse**2).sum(axis=0)
    along = (f.T @ y) ** 2
    precision = 1.0 / noise - (half**2).sum(axis=0)
    k = np.repeat(np.arange(len(plan.members)), [law.rank for law in plan.members])
    outer = np.bincount(k, along) / weights + noises @ y**2
    trace = np.bincount(k, taken) / weights + noises @ precision
    prior, each = plan.table[:, row.ROOT], log_student(n, distance, log_det)
    weigh(track, prior, outer, trace, each, n, distance, n**-0.5)


def learn(track, law, part, x, o):
    """One member takes in a sample: noise, spectrum, axes, size."""
    numbers, axes, there = part.numbers, part.axes, present(track)
    n, started = float(o.sum()), live(track, law)
    s = numbers[SIZE]
    deviation = np.sqrt(np.where(o, part.metric, 1.0))
    z = np.where(o, x, 0.0) * math.exp(-0.5 * s) / deviation
    lowest = math.exp(-s) * FLOOR * track.level
    noise = np.maximum(part.noise, lowest) / deviation**2
    known = np.where(o, 1.0 / np.where(o, noise, 1.0), 0.0)
    square = float((z * known) @ z)
    if started:
        gram, b = (axes * known) @ axes.T, (axes * known) @ z
        inverse, scores = weigh_factors(np.linalg.cholesky(part.spectrum), gram, b)
        square -= float(b @ scores)
    limit = math.sqrt(min(1.0, LIMIT * n / max(square, 1e-300)))
    e, spread = limit * z, np.zeros(len(z))
    numbers[N_NOISE:] += 1.0
    if started:
        wide = np.linalg.cholesky(part.spectrum + np.eye(law.rank))  # dead factors come back
        g = weigh_factors(wide, gram, limit * b)[1]
        e = np.where(o, e - g @ axes, 0.0)
        spread = ((inverse @ axes) * axes).sum(axis=0)
        lam = part.spectrum
        lam += (limit**2 * np.outer(scores, scores) + inverse - lam) / numbers[N_SPECTRUM]
        lam[np.diag_indices(law.rank)] = np.maximum(np.diag(lam), DEAD)
    target = deviation**2 * (e**2 + spread)
    for values, place in ((part.noise, N_NOISE), (part.metric, N_METRIC)):
        gain = 1.0 / np.minimum(numbers[place], track.counts + PRIOR_ROWS)
        values[o] = np.maximum(values + gain * (target - values), lowest)[o]
    if started:
        turn(part, e, g, n / there.sum())
        if track.head[row.COUNT] % POLISH_EVERY == 0:
            polish(axes, track.level)
            velocity = part.states[law.rank :]
            velocity -= (velocity @ axes.T) @ axes
    numbers[SIZE] += math.log1p(law.size_gain * (min(square / n, LIMIT) - 1.0))


def turn(part, e, g, share):
    """U <- U + gain e_perp and V <- V + kick e_perp, both carried along a great circle."""
    axes, own, r = part.axes, part.angle_var, len(g)
    velocity = part.states[r:]
    pg = own[:, :r] @ g
    c = 1.0 + share * (g @ pg[:r])
    own -= share * np.outer(pg, pg) / c
    e = e - (axes @ e) @ axes
    gain, kick = pg[:r] / c, pg[r:] / c
    length, size = math.sqrt(e @ e), math.sqrt(gain @ gain)
    if length * size > 0.0:
        rise, fall = math.sin(length * size), math.cos(length * size) - 1.0
        gain, unit = gain / size, e / length
        along = gain @ axes
        velocity += np.outer(kick, e)
        velocity += np.outer(velocity @ unit, fall * unit - rise * along)
        axes += np.outer(gain, fall * along + rise * unit)


def step(track, plan, samples, dt):
    """One step of one track, in place; samples ``(m, d)``, NaN where a cell is missing.

    The samples are taken one after the other, at one time, and their log-densities add up: that is
    their joint density. m = 0: no observation.
    """
    head, told = track.head, [row.LIKELIHOOD, row.DISTANCE, row.VALUES]
    head[row.TIME] += dt
    if head[row.COUNT] > 0.0:
        coast(track, plan, dt)
        drift(track, plan, dt)
    scores = []
    for x in samples:
        head[row.SEEN] = head[row.TIME]
        if take(track, plan, x):
            scores.append(head[told])
    head[told] = np.sum(scores, axis=0) if scores else np.nan


def take(track, plan, x):
    """One sample ``(d,)``; returns whether it was scored."""
    head, o, limit = track.head, present(track) & ~np.isnan(x), 1.0
    n, fresh = float(o.sum()), head[row.COUNT] == 0.0
    if fresh and not (x**2 > 0.0).any():
        return False
    if n > 0:
        judge(track, plan, x, o)
        limit = min(1.0, LIMIT * n / max(head[row.DISTANCE], 1e-300))
        track.counts[o] += 1.0
        gain = 1.0 / np.minimum(track.counts[o] + PRIOR_ROWS, LEVEL_MEMORY)
        track.level[o] += gain * (limit * x[o] ** 2 - track.level[o])
    counted = fresh or n > 0
    head[[row.COUNT, row.SAMPLES]] += counted
    if n > 0:
        for law, part in zip(plan.members, track.parts, strict=True):
            learn(track, law, part, x, o)
    at = int(head[BUFFERED])
    counted = counted and at < len(track.buffer)
    if counted:
        track.buffer[at] = math.sqrt(limit) * np.nan_to_num(x)
        head[BUFFERED] = at + 1.0
    arrive(track, plan, x, counted)
    return n > 0
