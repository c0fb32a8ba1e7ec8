"""Many channels: forecast, judge and learn, one sample at a time.

    drift     s, the counts, U, V and P move on by dt
    hold      S_k = F_k F_k^T + diag N_k
    blend     S = sum_k w_k S_k, again factors plus a diagonal;  p(x) as of the small ensemble
    judge     tails, kappa and w learn from how well the forecast did
    learn     noise, spectrum, axes and size of every member
    enter     channels come; `kgmrf.readable.low_rank_start` finds axes in the first rows

A member is S_k = e^s [D U^T Lam U D + diag psi] with axes U ``(r, d)``, U U^T = I, that turn by a
Kalman filter whose covariance P all channels share: ``(r, r)``, or ``(2 r, 2 r)`` for axes that
keep turning with a velocity V ``(r, d)``, U V^T = 0. src/core/low_rank.hpp has the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    FLOOR,
    INVALID,
    LEVEL_MEMORY,
    LOW_RANK_DEAD,
    LOW_RANK_DECAY,
    LOW_RANK_FASTEST,
    LOW_RANK_LARGEST,
    LOW_RANK_LARGEST_LOG,
    LOW_RANK_LEAST_ROWS,
    LOW_RANK_LIMIT,
    LOW_RANK_LONGEST,
    LOW_RANK_POLISH_EVERY,
    LOW_RANK_PRIOR_ROWS,
    MISSING,
    OBSERVED,
    SIZE_RETENTION,
    SMALLEST,
)
from kgmrf.engines import layout as at
from kgmrf.engines.low_rank_layout import (
    BUFFERED,
    COLUMN,
    N_METRIC,
    N_NOISE,
    N_SPECTRUM,
    SIZE,
    Factors,
    Layout,
    Part,
    Track,
    track,
)
from kgmrf.readable.ensemble import decays
from kgmrf.readable.low_rank_start import add_channels, live, polish, present, start_axes
from kgmrf.readable.observe import take_samples
from kgmrf.readable.score import Ahead, learn_wander, look_ahead, update_weights, weights_ahead

ROOT, HORIZONS = COLUMN["root"], [COLUMN["horizon"], COLUMN["heir"]]
TOLD = [at.LIKELIHOOD, at.DISTANCE, at.VALUES]


class LowRank:
    """The loop over lines, as `kgmrf._core.LowRank` has it.

    d: channels. table: the members, ``(K, columns)``. places: where the parts of a row begin; see
    :mod:`kgmrf.engines.low_rank_layout`.
    """

    def __init__(self, d: int, table: Numbers, places: Mapping[str, int]) -> None:
        self.plan = Layout(d, table, places)
        self.size = self.plan.size

    def run(
        self,
        rows: Numbers,
        track_index: Numbers,
        values: Numbers,
        counts: Numbers,
        dt: Numbers,
        matrix: bool,
        tolerance: float,
        records: Numbers,
        status: Numbers,
    ) -> None:
        """Take in lines (`kgmrf.engines.Lines`); rows, records and status are written."""
        for line, index in enumerate(track_index):
            samples, found = values[line], MISSING
            if counts[line] > 0.0:
                found = take_samples(samples)[1]
            status[line] = found
            parts = track(rows[index], self.plan)
            if found != INVALID and counts[line] >= 0.0:
                seen = samples if found == OBSERVED else samples[:0]
                step(parts, self.plan, seen, float(dt[line]))
            if len(records):
                whole = record(rows[index], parts, self.plan, records.shape[1])
                records[line] = whole[: records.shape[1]]


def record(row: Numbers, parts: Track, plan: Layout, width: int) -> Numbers:
    """The head, tails and weights of a row and, where there is room, its factors and noise."""
    small = row[: plan.places["roots"] + len(plan.table)]
    if width <= len(small):
        return small
    sharp, there = not math.isnan(parts.head[at.VALUES]), present(parts)
    weights = weights_ahead(parts, look_ahead(parts, plan.table[:, HORIZONS]), sharp)
    factors, noises = blend(parts, plan, weights)
    noise = weights @ noises
    factors[~there], noise[~there] = np.nan, np.nan
    return np.concatenate([small, factors.reshape(-1), noise])


# ----------------------------------------------------------------------- drift and hold


def drift(track: Track, plan: Layout, dt: float) -> None:
    """s <- .98^dt s; n <- 2^(-dt/h) n, not below 8; P <- P + a^2 dt/d I, diagonal <= 1/d.

    s decays as that of the small ensemble does.
    """
    shrink = SIZE_RETENTION ** decays(track, dt)
    for law, part in zip(plan.members, track.parts, strict=True):
        part.numbers[SIZE] *= shrink
        n = part.numbers[N_NOISE:]
        n[:] = np.maximum(n * 2.0 ** (-dt / law.half_lives), np.minimum(n, LOW_RANK_LEAST_ROWS))
        within = min(dt, LOW_RANK_LONGEST)
        if law.acceleration and live(track, law):
            coast(law, part, plan.d, within)
        own = part.angle_var
        own[np.diag_indices(law.rank)] += law.angle_noise**2 * within / plan.d
        # Shrink whole rows and columns: cutting a variance alone could make P indefinite.
        cut = np.sqrt(np.minimum(1.0, 1.0 / (plan.d * np.maximum(np.diag(own), 1e-300))))
        own *= cut[:, None] * cut


def coast(law: Factors, part: Part, d: int, dt: float) -> None:
    """Axes with a velocity go on along their geodesic, [U; V] <- M [U; V]; P <- M P M^T + noise.

    M = exp(t [[0, I], [-K, 0]]), K = V V^T; a velocity that decays at the rate c leads as far as
    one that does not would in t = (1 - exp(-c dt))/c.
    """
    r, own, c = law.rank, part.angle_var, LOW_RANK_DECAY
    keep = math.exp(-c * dt)
    t, rate = (1.0 - keep) / c, (1.0 - keep * keep) / (2.0 * c)
    noise = np.array([[(dt - 2.0 * t + rate) / c**2, 0.5 * t * t], [0.5 * t * t, rate]])
    values, vectors = np.linalg.eigh(part.states[r:] @ part.states[r:].T)
    speed = np.sqrt(np.maximum(values, 0.0))
    cos = (vectors * np.cos(t * speed)) @ vectors.T
    sin = (vectors * (t * np.sinc(t * speed / math.pi))) @ vectors.T
    back = (vectors * (speed * np.sin(t * speed))) @ vectors.T
    move = np.block([[cos, sin], [-keep * back, keep * cos]])
    part.states[:] = move @ part.states
    own[:] = move @ own @ move.T + law.acceleration**2 / d * np.kron(noise, np.eye(r))


def hold(track: Track, law: Factors, part: Part) -> tuple[Numbers, Numbers]:
    """F = e^(s/2) D U^T Lam^(1/2) ``(d, r)`` and the noise e^s psi >= phi L ``(d,)``."""
    grow = math.exp(part.numbers[SIZE])
    noise = np.maximum(grow * part.noise, FLOOR * track.level)
    if not live(track, law):
        return np.zeros((len(noise), law.rank)), noise
    deviation = np.sqrt(grow * part.metric)
    return deviation[:, None] * (part.axes.T @ np.linalg.cholesky(part.spectrum)), noise


def blend(track: Track, plan: Layout, weights: Numbers) -> tuple[Numbers, Numbers]:
    """S = sum_k w_k S_k = F F^T + diag w N: F ``(d, sum r)``, the noises N ``(K, d)``."""
    held = [hold(track, law, part) for law, part in zip(plan.members, track.parts, strict=True)]
    factors = [math.sqrt(w) * f for w, (f, _) in zip(weights, held, strict=True)]
    return np.concatenate(factors, axis=1), np.array([n for _, n in held])


# ----------------------------------------------------------------------- score


def score(track: Track, plan: Layout, x: Numbers, o: Numbers, ahead: Ahead) -> None:
    """log p(x) over the observed channels o; the tails, kappa and the weights learn from it."""
    weights = weights_ahead(track, ahead)
    factors, noises = blend(track, plan, weights)
    f, noises = factors[o], noises[:, o]
    noise = weights @ noises
    inner = np.linalg.cholesky(np.eye(f.shape[1]) + f.T @ (f / noise[:, None]))
    half = np.linalg.solve(inner, f.T) / noise  # (sum r, n): S^-1 = 1/N - half^T half
    y = x[o] / noise - half.T @ (half @ x[o])
    n, kappa = float(o.sum()), float(track.head[at.KAPPA])
    distance = math.exp(-kappa) * min(max(float(x[o] @ y), 0.0), LOW_RANK_LARGEST)
    log_det = float(np.log(noise).sum()) + 2.0 * float(np.log(np.diag(inner)).sum()) + n * kappa
    # <S^-1 x x^T S^-1, S_k> and <S^-1, S_k>, where F^T S^-1 F = I - (I + F^T N^-1 F)^-1.
    inverse = np.linalg.inv(inner)
    taken = 1.0 - (inverse**2).sum(axis=0)
    along = (f.T @ y) ** 2
    precision = 1.0 / noise - (half**2).sum(axis=0)
    k = np.repeat(np.arange(len(plan.members)), [law.rank for law in plan.members])
    outer = np.bincount(k, along) / weights + noises @ np.minimum(y * y, LOW_RANK_LARGEST)
    trace = np.bincount(k, taken) / weights + noises @ precision
    update_weights(track, plan.table[:, ROOT], outer, trace, n, distance, log_det, n**-0.5, ahead)
    learn_wander(track, (log_det - float(np.log(track.level[o]).sum())) / n, ahead.age)


# ----------------------------------------------------------------------- learn


def weigh_factors(root: Numbers, gram: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """(Lam^-1 + G)^-1, and that times b, for Lam = root root^T; factors may have no variance."""
    inner = np.linalg.cholesky(np.eye(len(b)) + root.T @ gram @ root)
    half = np.linalg.solve(inner, root.T)
    return half.T @ half, half.T @ (half @ b)


def learn(track: Track, law: Factors, part: Part, x: Numbers, o: Numbers) -> None:
    """One member takes in a sample: noise, spectrum, axes, size."""
    numbers, axes, there = part.numbers, part.axes, present(track)
    n, started = float(o.sum()), live(track, law)
    s = numbers[SIZE]
    deviation = np.sqrt(np.where(o, part.metric, 1.0))
    z = np.where(o, x, 0.0) * math.exp(-0.5 * s) / deviation
    lowest = math.exp(-s) * FLOOR * track.level
    noise = np.maximum(part.noise, lowest) / deviation**2
    known = np.where(o, 1.0 / np.where(o, noise, 1.0), 0.0)
    square = min(float((z * known) @ z), LOW_RANK_LARGEST)
    if started:
        gram, b = (axes * known) @ axes.T, (axes * known) @ z
        inverse, scores = weigh_factors(np.linalg.cholesky(part.spectrum), gram, b)
        square -= float(b @ scores)
    limit = math.sqrt(min(1.0, LOW_RANK_LIMIT * n / max(square, 1e-300)))
    e, spread = limit * z, np.zeros(len(z))
    numbers[N_NOISE:] += 1.0
    if started:
        wide = np.linalg.cholesky(part.spectrum + np.eye(law.rank))  # dead factors come back
        g = weigh_factors(wide, gram, limit * b)[1]
        e = np.where(o, e - g @ axes, 0.0)
        spread = ((inverse @ axes) * axes).sum(axis=0)
        lam = part.spectrum
        lam += (limit**2 * np.outer(scores, scores) + inverse - lam) / numbers[N_SPECTRUM]
        lam[np.diag_indices(law.rank)] = np.maximum(np.diag(lam), LOW_RANK_DEAD)
    target = deviation**2 * (e**2 + spread)
    for values, place in ((part.noise, N_NOISE), (part.metric, N_METRIC)):
        gain = 1.0 / np.minimum(numbers[place], track.counts + LOW_RANK_PRIOR_ROWS)
        values[o] = np.maximum(values + gain * (target - values), lowest)[o]
    if started:
        turn(part, e, g, n / there.sum())
        if track.head[at.COUNT] % LOW_RANK_POLISH_EVERY == 0:
            polish(axes, track.level)
            velocity = part.states[law.rank :]
            velocity -= (velocity @ axes.T) @ axes
    grown = s + math.log1p(law.size_gain * (min(square / n, LOW_RANK_LIMIT) - 1.0))
    numbers[SIZE] = min(max(grown, -LOW_RANK_LARGEST_LOG), LOW_RANK_LARGEST_LOG)


def turn(part: Part, e: Numbers, g: Numbers, share: float) -> None:
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
        speed = np.sqrt((velocity**2).sum(axis=1, keepdims=True))
        velocity *= LOW_RANK_FASTEST / np.maximum(speed, LOW_RANK_FASTEST)
        axes += np.outer(gain, fall * along + rise * unit)


# ----------------------------------------------------------------------- one step


def step(track: Track, plan: Layout, samples: Numbers, dt: float) -> None:
    """One step of one track, in place; samples ``(m, d)``, NaN where a cell is missing.

    The samples are taken one after the other, at one time, and their log-densities add up: that is
    their joint density. m = 0: no observation.
    """
    head = track.head
    if head[at.COUNT] > 0.0:
        drift(track, plan, dt)
    head[at.TIME] += dt
    ahead, scores = look_ahead(track, plan.table[:, HORIZONS]), []
    if len(samples):
        head[at.SEEN] = head[at.TIME]
    wide = ahead.size_std
    head[at.SIZE_STD] = head[at.DOUBT] = 0.0
    for x in samples:
        before = head[at.COUNT]
        if take(track, plan, x, ahead):
            scores.append(head[TOLD].copy())
        if head[at.COUNT] > before:  # further samples come at the same time
            ahead = look_ahead(track, plan.table[:, HORIZONS])
    if scores:
        head[at.SIZE_STD] = wide
    head[TOLD] = np.sum(scores, axis=0) if scores else np.nan


def take(track: Track, plan: Layout, x: Numbers, ahead: Ahead) -> bool:
    """One sample ``(d,)``; returns whether it was scored."""
    head, o, limit = track.head, present(track) & ~np.isnan(x), 1.0
    n, fresh = float(o.sum()), head[at.COUNT] == 0.0
    if fresh and not (x**2 > 0.0).any():
        return False
    if n > 0:
        score(track, plan, x, o, ahead)
        limit = min(1.0, LOW_RANK_LIMIT * n / max(head[at.DISTANCE], 1e-300))
        track.counts[o] += 1.0
        gain = 1.0 / np.minimum(track.counts[o] + LOW_RANK_PRIOR_ROWS, LEVEL_MEMORY)
        level = track.level[o]
        track.level[o] = np.maximum(level + gain * (limit * x[o] ** 2 - level), SMALLEST)
    counted = fresh or n > 0
    head[[at.COUNT, at.SAMPLES]] += counted
    if n > 0:
        for law, part in zip(plan.members, track.parts, strict=True):
            learn(track, law, part, x, o)
    filled = int(head[BUFFERED])
    counted = counted and filled < len(track.buffer)
    if counted:
        track.buffer[filled] = math.sqrt(limit) * np.nan_to_num(x)
        head[BUFFERED] = filled + 1.0
    add_channels(track, x)
    for law, part in zip(plan.members, track.parts, strict=True):
        if counted and filled + 1 in law.stages:
            start_axes(track, law, part, track.buffer[: filled + 1])
    return n > 0
