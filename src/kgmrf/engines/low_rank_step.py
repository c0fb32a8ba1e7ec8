"""Many channels, one track and one sample at a time, readable beside its formulas.

Every member of the ensemble holds a covariance of few factors plus a diagonal,

    S_k = e^s [D U^T Lam U D + diag psi]

with axes U ``(r, d)``, U U^T = I, that turn by a Kalman filter whose covariance P all channels
share: ``(r, r)``, or ``(2 r, 2 r)`` for axes that keep turning with a velocity V ``(r, d)``,
U V^T = 0. One step of all members:

    drift     s, the counts, U, V and P move on by dt
    hold      S_k = F_k F_k^T + diag N_k
    forecast  S = sum_k w_k S_k, again factors plus a diagonal; p(x) as of the small ensemble
    judge     tails, kappa and w learn from how well the forecast did
    learn     noise, spectrum, axes and size of every member
    arrive    channels come, and axes start from the first rows by singular values

The compiled loop of :mod:`kgmrf.kernels.low_rank` is the twin of this file, and calls `arrive`;
tests hold the two together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.engines import layout as row
from kgmrf.engines.ensemble_step import FLOOR, LEVEL_MEMORY, SIZE_RETENTION, log_student, weigh

if TYPE_CHECKING:
    from kgmrf.engines.low_rank import Layout, Part, Track

LIMIT = 10.0  # a member learns from no more than this many times the size that it forecasts
METRIC_HALF_LIFE, POLISH_EVERY = 400.0, 50
LEAST_ROWS = 8.0  # however long a gap, this many rows remain known
PRIOR_ROWS = 2.0  # rows that the first guess of a variance is worth
MEMORY = 1.0 / math.log(2.0)  # rows in an average, per row of half-life
SMALLEST_FACTOR, SMALLEST_NOISE = 0.1, 0.2  # at the start, in units of a channel's variance
LOST = 1e-12  # share of an axis that must be left when the axes before it are taken out
DEAD = 0.01  # variance of a factor from which it can come back, in units of the noise
DECAY = 0.01  # of a velocity, per unit of time
# Of log x^2, x normal: mean, variance, and the variance of a sample variance times n/var^2.
LOG_SQUARE_MEAN, LOG_SQUARE_VAR, LOG_SQUARE_SPREAD = -1.2703628454614782, 4.934802200544679, 6.0

BUFFERED = row.POOLED  # place in the head: rows in the buffer
SIZE, N_NOISE, N_METRIC, N_SPECTRUM, N_NUMBERS = range(5)
# Columns of the table of members; row.ROOT is the root of the weight at the start. STATES is r, or
# 2 r with velocity; the last four are where psi, P, Lam and the numbers begin in a row.
RANK, ANGLE_NOISE, NOISE_HALF_LIFE, SPECTRUM_HALF_LIFE, SIZE_GAIN, ACCELERATION, STATES = range(7)
STAGE, N_STAGES = row.ROOT + 1, 4
PLACE, ANGLES, SPECTRUM, NUMBERS, N_COLUMNS = range(STAGE + N_STAGES, STAGE + N_STAGES + 5)


class Factors(NamedTuple):
    """S = e^s [D U^T Lam U D + diag psi] with ``rank`` axes U.

    angle_noise: standard deviation of the angle by which an axis turns in a unit of time.
    noise_half_life, spectrum_half_life: of the averages psi and Lam.
    size_gain: gain of the size clock s; 0 leaves it out.
    acceleration: how much the velocity of an axis changes in a unit of time; 0 for no velocity.
    """

    rank: int
    angle_noise: float
    noise_half_life: float
    spectrum_half_life: float
    size_gain: float
    acceleration: float = 0.0

    @property
    def stages(self) -> tuple[int, ...]:
        """Numbers of rows after which the axes start anew."""
        r = self.rank
        return max(3, r + 1), max(8, 2 * r), max(12, 3 * r), max(20, 5 * r)

    @property
    def half_lives(self) -> Numbers:
        """Of psi, D^2 and Lam."""
        noise = self.noise_half_life
        return np.array([noise, max(METRIC_HALF_LIFE, noise), self.spectrum_half_life])


def weigh_factors(root: Numbers, gram: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """(Lam^-1 + G)^-1, and that times b, for Lam = root root^T; factors may have no variance."""
    inner = np.linalg.cholesky(np.eye(len(b)) + root.T @ gram @ root)
    half = np.linalg.solve(inner, root.T)
    return half.T @ half, half.T @ (half @ b)


def polish(axes: Numbers, there: Mask) -> None:
    """Gram-Schmidt, in place; an axis of which nothing is left becomes that of a channel."""
    for j, axis in enumerate(axes):
        whole = axis @ axis
        axis -= (axes[:j] @ axis) @ axes[:j]
        if not axis @ axis > LOST * whole:
            for channel in np.flatnonzero(there):
                axis[:] = -axes[:j, channel] @ axes[:j]
                axis[channel] += 1.0
                if 2.0 * len(axes) * (axis @ axis) >= 1.0:
                    break
        length = math.sqrt(axis @ axis)
        axis /= length if length > 0.0 else 1.0


# ----------------------------------------------------------------------- drift and hold


def drift(track: Track, plan: Layout, dt: float) -> None:
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


def coast(track: Track, plan: Layout, dt: float) -> None:
    """Axes with a velocity go on along their geodesic, [U; V] <- M [U; V]; P <- M P M^T + noise.

    M = exp(t [[0, I], [-K, 0]]), K = V V^T; a velocity that decays at the rate c leads as far as
    one that does not would in t = (1 - exp(-c dt))/c.
    """
    keep = math.exp(-DECAY * dt)
    t, rate = (1.0 - keep) / DECAY, (1.0 - keep * keep) / (2.0 * DECAY)
    noise = np.array([[(dt - 2.0 * t + rate) / DECAY**2, 0.5 * t * t], [0.5 * t * t, rate]])
    for law, part in zip(plan.members, track.parts, strict=True):
        if law.acceleration and live(track, law):
            r, own = law.rank, part.angle_var
            values, vectors = np.linalg.eigh(part.states[r:] @ part.states[r:].T)
            speed = np.sqrt(np.maximum(values, 0.0))
            cos = (vectors * np.cos(t * speed)) @ vectors.T
            sin = (vectors * (t * np.sinc(t * speed / math.pi))) @ vectors.T
            back = (vectors * (speed * np.sin(t * speed))) @ vectors.T
            move = np.empty((2 * r, 2 * r))
            move[:r, :r], move[:r, r:] = cos, sin
            move[r:, :r], move[r:, r:] = -keep * back, keep * cos
            part.states[:] = move @ part.states
            own[:] = move @ own @ move.T
            diagonals = np.einsum("aibi->iab", own.reshape(2, r, 2, r))  # views of the blocks
            diagonals += law.acceleration**2 / plan.d * noise


def present(track: Track) -> Mask:
    """Channels that have had a value other than zero."""
    return track.level > 0.0


def live(track: Track, law: Factors) -> bool:
    """Whether a member has axes yet; before, it is a diagonal."""
    return bool(track.head[BUFFERED] >= law.stages[0])


def hold(track: Track, law: Factors, part: Part) -> tuple[Numbers, Numbers]:
    """F = e^(s/2) D U^T Lam^(1/2) ``(d, r)`` and the noise e^s psi >= phi L ``(d,)``."""
    grow = math.exp(part.numbers[SIZE])
    noise = np.maximum(grow * part.noise, FLOOR * track.level)
    if not live(track, law):
        return np.zeros((len(noise), law.rank)), noise
    deviation = np.sqrt(grow * part.metric)
    return deviation[:, None] * (part.axes.T @ np.linalg.cholesky(part.spectrum)), noise


def blend(track: Track, plan: Layout, *, sharp: bool) -> tuple[Numbers, Numbers]:
    """S = sum_k w_k S_k = F F^T + diag w N: F ``(d, sum r)``, the noises N ``(K, d)``."""
    weights = row.blend_weights(track.roots, sharp)
    held = [hold(track, law, part) for law, part in zip(plan.members, track.parts, strict=True)]
    factors = [math.sqrt(w) * f for w, (f, _) in zip(weights, held, strict=True)]
    return np.concatenate(factors, axis=1), np.array([n for _, n in held])


# ----------------------------------------------------------------------- judge


def judge(track: Track, plan: Layout, x: Numbers, o: Mask) -> None:
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


# ----------------------------------------------------------------------- learn


def learn(track: Track, law: Factors, part: Part, x: Numbers, o: Mask) -> None:
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
            polish(axes, there)
            velocity = part.states[law.rank :]
            velocity -= (velocity @ axes.T) @ axes
    numbers[SIZE] += math.log1p(law.size_gain * (min(square / n, LIMIT) - 1.0))


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
        axes += np.outer(gain, fall * along + rise * unit)


# ----------------------------------------------------------------------- start


def start_axes(track: Track, law: Factors, part: Part, rows: Numbers) -> None:
    """Axes and spectrum from the singular values of the first rows ``(n, d)``, x / sqrt(v)."""
    there = present(track)
    n, r, d = len(rows), law.rank, float(there.sum())
    # A row far beyond the usual size counts as one at the limit, also if it was the first.
    size = (rows[:, there] ** 2 / track.level[there]).mean(axis=1)
    usual = LIMIT * np.sort(size)[n // 2]
    rows = rows * np.sqrt(usual / np.maximum(size, usual) if usual > 0.0 else 1.0)[:, None]
    power = (rows**2).sum(axis=0)
    guess = np.minimum(track.first, np.where(power > 0.0, LIMIT * power / n, np.inf))
    v = (power + PRIOR_ROWS * guess) / (track.counts + PRIOR_ROWS)
    track.level[there] = v[there]
    v = np.where(there, v, 1.0)
    z = rows / np.sqrt(v)
    values, vectors = np.linalg.eigh(z @ z.T)
    values, vectors = values[::-1][:r], vectors[:, ::-1][:, :r]
    found = values > 1e-12 * max(values[0], 1e-300)
    u = np.where(found, vectors / np.sqrt(np.where(found, values, 1.0)), 0.0).T @ z
    # The noise level is what the first r values leave over, spread over the other rows.
    rest = max(float((z**2).sum()) - float(values.sum()), 0.0)
    level = min(max(rest / ((n - r) * d), SMALLEST_NOISE), 1.0)
    spikes = spike(values / (n * level), d / n) * level
    p = np.maximum(1.0 - (spikes[:, None] * u**2).sum(axis=0), SMALLEST_NOISE)
    part.noise[:] = np.where(there, math.exp(-part.numbers[SIZE]) * v * p, 0.0)
    part.metric[:] = part.noise
    part.axes[:] = np.where(there, u / np.sqrt(p), 0.0)
    before = part.axes.copy()
    polish(part.axes, there)
    mixing = part.axes @ before.T
    mixing[np.diag_indices(r)] += ~before.any(axis=1)
    part.spectrum[:] = (mixing * spikes) @ mixing.T
    sure = 1.0 / (n * np.maximum(spikes, SMALLEST_FACTOR))
    still = law.acceleration**2 / (2.0 * DECAY * len(there))  # variance of a velocity in the end
    part.states[r:] = 0.0
    part.angle_var[:] = still * np.eye(len(part.angle_var))
    part.angle_var[:r, :r] = np.diag(np.minimum(sure, 1.0 / len(there)))
    part.numbers[N_NOISE:] = np.minimum([n + PRIOR_ROWS] * 2 + [n], MEMORY * law.half_lives)


def spike(values: Numbers, ratio: float) -> Numbers:
    """Variance of a factor behind a sample eigenvalue l, with d/n channels per row, noise 1.

    l = (1 + lam)(1 + ratio/lam) above (1 + sqrt(ratio))^2, where factors begin to show.
    """
    b = values + 1.0 - ratio
    root = np.sqrt(np.maximum(b * b - 4.0 * values, 0.0))
    seen = values > (1.0 + math.sqrt(ratio)) ** 2
    return np.where(seen, np.maximum(0.5 * (b + root) - 1.0, SMALLEST_FACTOR), math.sqrt(ratio))


def arrive(track: Track, plan: Layout, x: Numbers, counted: bool) -> None:
    """After a sample: channels enter; axes start if it was counted and filled a stage's rows."""
    enter(track, x)
    n = int(track.head[BUFFERED])
    for law, part in zip(plan.members, track.parts, strict=True):
        if counted and n in law.stages:
            start_axes(track, law, part, track.buffer[:n])


def enter(track: Track, x: Numbers) -> None:
    """Channels whose first value other than zero this is.

    Their variances are guessed from log x^2, drawn together as far as chance alone explains how
    different they are: channels of one unit share a guess, channels of unlike units do not.
    """
    new = (track.level == 0.0) & (x**2 > 0.0)
    if not new.any():
        return
    first = not present(track).any()
    logs = np.log(x[new] ** 2)
    mean = float(logs.mean())
    chance = LOG_SQUARE_VAR * (1.0 + 2.0 * math.sqrt(LOG_SQUARE_SPREAD / len(logs)))
    apart = max(float(((logs - mean) ** 2).mean()) - chance, 0.0)
    keep = apart / (apart + LOG_SQUARE_VAR)
    guess = np.exp(mean - LOG_SQUARE_MEAN + keep * (logs - mean))
    track.level[new] = track.first[new] = guess
    track.counts[new] = 1.0
    own = (x[new] ** 2 + PRIOR_ROWS * guess) / (1.0 + PRIOR_ROWS)
    for part in track.parts:
        if first:
            part.numbers[[N_NOISE, N_METRIC]] = 1.0 + PRIOR_ROWS
        part.noise[new] = part.metric[new] = math.exp(-part.numbers[SIZE]) * own
        part.states[:, new] = 0.0


# ----------------------------------------------------------------------- one step


def step(track: Track, plan: Layout, samples: Numbers, dt: float) -> None:
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


def take(track: Track, plan: Layout, x: Numbers) -> bool:
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
