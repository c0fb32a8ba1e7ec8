"""Many channels, one track and one sample at a time, readable beside its formulas.

Every member of the ensemble holds a covariance of few factors plus a diagonal,

    S_k = e^s [D U^T Lam U D + diag psi]

with axes U ``(r, d)``, U U^T = I, that turn by a Kalman filter whose covariance P ``(r, r)`` all
channels share. One step of all members:

    drift     s, the counts and P move on by dt
    hold      S_k = F_k F_k^T + diag N_k
    forecast  S = sum_k w_k S_k, again factors plus a diagonal; p(x) as of the small ensemble
    judge     tails, kappa and w learn from how well the forecast did
    learn     noise, spectrum, axes and size of every member
    start     axes from the first rows, by singular values

The compiled loop of :mod:`kgmrf.kernels.low_rank` is the twin of this file; tests hold the two
together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.engines.ensemble_step import FLOOR, LEVEL_MEMORY, SIZE_RETENTION, log_student, weigh
from kgmrf.engines.layout import (
    COUNT,
    DISTANCE,
    KAPPA,
    LIKELIHOOD,
    SAMPLES,
    SEEN,
    TIME,
    VALUES,
    blend_weights,
)
from kgmrf.engines.low_rank_layout import (
    BUFFERED,
    N_METRIC,
    N_NOISE,
    N_SPECTRUM,
    SIZE,
    Factors,
    Layout,
    Part,
    Track,
    stages,
)

LIMIT = 10.0  # a member learns from no more than this many times the size that it forecasts
METRIC_HALF_LIFE = 400.0
LEAST_ROWS = 8.0  # however long a gap, this many rows remain known
PRIOR_ROWS = 2.0  # rows that the first guess of a variance is worth
MEMORY = 1.0 / math.log(2.0)  # rows in an average, per row of half-life
SMALLEST_FACTOR, SMALLEST_NOISE = 0.1, 0.2  # at the start, in units of a channel's variance
POLISH_EVERY = 50
LOST = 1e-12  # share of an axis that must be left when the axes before it are taken out
DEAD = 0.01  # variance of a factor from which it can come back, in units of the noise
# Of log x^2, x normal: mean, variance, and the variance of a sample variance times n/var^2.
LOG_SQUARE_MEAN, LOG_SQUARE_VAR, LOG_SQUARE_SPREAD = -1.2703628454614782, 4.934802200544679, 6.0


class Forecast(NamedTuple):
    """F ``(d, sum r)`` with the factors of member k times sqrt(w_k), and the noise, blended."""

    factors: Numbers
    noise: Numbers
    noises: Numbers  # (K, d), of each member


# ----------------------------------------------------------------------- small algebra


def weigh_factors(root: Numbers, gram: Numbers, b: Numbers) -> tuple[Numbers, Numbers, float]:
    """(Lam^-1 + G)^-1, that times b, and log |I + Lam G|, for Lam = root root^T.

    Written with root so that a factor whose variance goes to zero does no harm.
    """
    inner = np.linalg.cholesky(np.eye(len(b)) + root.T @ gram @ root)
    half = np.linalg.solve(inner, root.T)
    return half.T @ half, half.T @ (half @ b), 2.0 * float(np.log(np.diag(inner)).sum())


def spectrum_root(spectrum: Numbers) -> Numbers:
    """The Cholesky factor of Lam."""
    return np.linalg.cholesky(spectrum)


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
        for place, half_life in (
            (N_NOISE, law.noise_half_life),
            (N_METRIC, max(METRIC_HALF_LIFE, law.noise_half_life)),
            (N_SPECTRUM, law.spectrum_half_life),
        ):
            n = part.numbers[place]
            part.numbers[place] = max(n * 2.0 ** (-dt / half_life), min(n, LEAST_ROWS))
        own = part.angle_var
        own[np.diag_indices(law.rank)] += law.angle_noise**2 * dt / plan.d
        # Shrink whole rows and columns: cutting a variance alone could make P indefinite.
        cut = np.sqrt(np.minimum(1.0, 1.0 / (plan.d * np.maximum(np.diag(own), 1e-300))))
        own *= cut[:, None] * cut


def present(track: Track) -> Mask:
    """Channels that have had a value other than zero."""
    return track.level > 0.0


def live(track: Track, law: Factors) -> bool:
    """Whether a member has axes yet; before, it is a diagonal."""
    return bool(track.head[BUFFERED] >= stages(law.rank)[0])


def hold(track: Track, law: Factors, part: Part) -> tuple[Numbers, Numbers]:
    """F = e^(s/2) D U^T Lam^(1/2) ``(d, r)`` and the noise e^s psi >= phi L ``(d,)``."""
    grow = math.exp(part.numbers[SIZE])
    noise = np.maximum(grow * part.noise, FLOOR * track.level)
    if not live(track, law):
        return np.zeros((len(noise), law.rank)), noise
    deviation = np.sqrt(grow * part.metric)
    return deviation[:, None] * (part.axes.T @ spectrum_root(part.spectrum)), noise


def blend(track: Track, plan: Layout, *, sharp: bool) -> Forecast:
    """S = sum_k w_k S_k = F F^T + diag N."""
    weights = blend_weights(track.roots, sharp)
    held = [hold(track, law, part) for law, part in zip(plan.members, track.parts, strict=True)]
    factors = [math.sqrt(w) * f for w, (f, _) in zip(weights, held, strict=True)]
    noises = np.array([n for _, n in held])
    return Forecast(np.concatenate(factors, axis=1), weights @ noises, noises)


# ----------------------------------------------------------------------- judge


def judge(track: Track, plan: Layout, x: Numbers, o: Mask) -> None:
    """log p(x) over the observed channels o; the tails, kappa and the weights learn from it."""
    whole = blend(track, plan, sharp=False)
    f, noise = whole.factors[o], whole.noise[o]
    inner = np.linalg.cholesky(np.eye(f.shape[1]) + f.T @ (f / noise[:, None]))
    half = np.linalg.solve(inner, f.T) / noise  # (sum r, n): S^-1 = 1/N - half^T half
    y = x[o] / noise - half.T @ (half @ x[o])
    n, kappa = float(o.sum()), float(track.head[KAPPA])
    distance = math.exp(-kappa) * float(x[o] @ y)
    log_det = float(np.log(noise).sum()) + 2.0 * float(np.log(np.diag(inner)).sum()) + n * kappa
    # <S^-1 x x^T S^-1, S_k> and <S^-1, S_k>, where F^T S^-1 F = I - (I + F^T N^-1 F)^-1.
    inverse = np.linalg.inv(inner)
    taken = 1.0 - (inverse**2).sum(axis=0)
    along = (f.T @ y) ** 2
    precision = 1.0 / noise - (half**2).sum(axis=0)
    weights = blend_weights(track.roots, False)
    k = np.repeat(np.arange(len(plan.members)), [law.rank for law in plan.members])
    outer = np.bincount(k, along) / weights + whole.noises[:, o] @ y**2
    trace = np.bincount(k, taken) / weights + whole.noises[:, o] @ precision
    weigh(track, plan.prior, outer, trace, log_student(n, distance, log_det), n, distance, n**-0.5)


# ----------------------------------------------------------------------- learn


def learn(track: Track, law: Factors, part: Part, x: Numbers, o: Mask) -> None:
    """One member takes in a sample: noise, spectrum, axes, size."""
    numbers, axes, there = part.numbers, part.axes, present(track)
    n, started = float(o.sum()), live(track, law)
    s = numbers[SIZE]
    deviation = np.sqrt(np.where(o, part.metric, 1.0))
    z = np.where(o, x, 0.0) * math.exp(-0.5 * s) / deviation
    noise = np.maximum(part.noise, math.exp(-s) * FLOOR * track.level) / deviation**2
    known = np.where(o, 1.0 / np.where(o, noise, 1.0), 0.0)
    square, spread, e = float((z * known) @ z), np.zeros(len(z)), z
    if started:
        gram = (axes * known) @ axes.T
        b = (axes * known) @ z
        inverse, scores, _ = weigh_factors(spectrum_root(part.spectrum), gram, b)
        square -= float(b @ scores)
        limit = math.sqrt(min(1.0, LIMIT * n / max(square, 1e-300)))
        z, b, scores = limit * z, limit * b, limit * scores
        eye = np.eye(law.rank)
        g = weigh_factors(np.linalg.cholesky(part.spectrum + eye), gram, b)[1]
        e = np.where(o, z - g @ axes, 0.0)
        spread = ((inverse @ axes) * axes).sum(axis=0)
    else:
        e = math.sqrt(min(1.0, LIMIT * n / max(square, 1e-300))) * z
    for place in (N_NOISE, N_METRIC, N_SPECTRUM):
        numbers[place] += 1.0
    target = deviation**2 * (e**2 + spread)
    lowest = math.exp(-s) * FLOOR * track.level
    for values, place in ((part.noise, N_NOISE), (part.metric, N_METRIC)):
        gain = 1.0 / np.minimum(numbers[place], track.counts + PRIOR_ROWS)
        values[o] = np.maximum(values + gain * (target - values), lowest)[o]
    if started:
        lam = part.spectrum
        lam += (np.outer(scores, scores) + inverse - lam) / numbers[N_SPECTRUM]
        lam[np.diag_indices(law.rank)] = np.maximum(np.diag(lam), DEAD)
        turn(part, e, g, n / there.sum())
        if track.head[COUNT] % POLISH_EVERY == 0:
            polish(axes, there)
    numbers[SIZE] += math.log1p(law.size_gain * (min(square / n, LIMIT) - 1.0))


def turn(part: Part, e: Numbers, g: Numbers, share: float) -> None:
    """The axes turn towards what they left over, along a great circle: U <- U + gain e_perp."""
    axes, own = part.axes, part.angle_var
    pg = own @ g
    c = 1.0 + share * (g @ pg)
    gain = pg / c
    own -= share * np.outer(pg, pg) / c
    e = e - (axes @ e) @ axes
    length, size = math.sqrt(e @ e), math.sqrt(gain @ gain)
    if length * size > 0.0:
        t, gain = length * size, gain / size
        along = gain @ axes
        axes += np.outer(gain, (math.cos(t) - 1.0) * along + math.sin(t) / length * e)


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
    s = part.numbers[SIZE]
    part.noise[:] = part.metric[:] = np.where(there, math.exp(-s) * v * p, 0.0)
    part.axes[:] = np.where(there, u / np.sqrt(p), 0.0)
    before = part.axes.copy()
    polish(part.axes, there)
    mixing = part.axes @ before.T
    mixing[np.diag_indices(r)] += ~before.any(axis=1)
    part.spectrum[:] = (mixing * spikes) @ mixing.T
    sure = 1.0 / (n * np.maximum(spikes, SMALLEST_FACTOR))
    part.angle_var[:] = np.diag(np.minimum(sure, 1.0 / len(there)))
    numbers = part.numbers
    numbers[N_SPECTRUM] = min(n, MEMORY * law.spectrum_half_life)
    numbers[N_NOISE] = min(n + PRIOR_ROWS, MEMORY * law.noise_half_life)
    metric = max(METRIC_HALF_LIFE, law.noise_half_life)
    numbers[N_METRIC] = min(n + PRIOR_ROWS, MEMORY * metric)


def spike(values: Numbers, ratio: float) -> Numbers:
    """Variance of a factor behind a sample eigenvalue l, with d/n channels per row, noise 1.

    l = (1 + lam)(1 + ratio/lam) above (1 + sqrt(ratio))^2, where factors begin to show.
    """
    b = values + 1.0 - ratio
    root = np.sqrt(np.maximum(b * b - 4.0 * values, 0.0))
    seen = values > (1.0 + math.sqrt(ratio)) ** 2
    return np.where(seen, np.maximum(0.5 * (b + root) - 1.0, SMALLEST_FACTOR), math.sqrt(ratio))


def enter(track: Track, plan: Layout, x: Numbers) -> None:
    """Channels whose first value other than zero this is.

    Their variances are guessed from log x^2, drawn together as far as chance alone explains how
    different they are: channels of one unit share a guess, channels of unlike units do not.
    """
    new = (track.level == 0.0) & (np.where(np.isnan(x), 0.0, x) != 0.0)
    if not new.any():
        return
    logs = np.log(x[new] ** 2)
    mean = float(logs.mean())
    chance = LOG_SQUARE_VAR * (1.0 + 2.0 * math.sqrt(LOG_SQUARE_SPREAD / len(logs)))
    apart = max(float(((logs - mean) ** 2).mean()) - chance, 0.0)
    keep = apart / (apart + LOG_SQUARE_VAR)
    guess = np.exp(mean - LOG_SQUARE_MEAN + keep * (logs - mean))
    track.level[new] = track.first[new] = guess
    track.counts[new] = 1.0
    for part in track.parts:
        own = (x[new] ** 2 + PRIOR_ROWS * guess) / (1.0 + PRIOR_ROWS)
        part.noise[new] = part.metric[new] = math.exp(-part.numbers[SIZE]) * own
        part.axes[:, new] = 0.0


# ----------------------------------------------------------------------- one step


def step(track: Track, plan: Layout, samples: Numbers, dt: float) -> None:
    """One step of one track, in place; samples ``(m, d)``, NaN where a cell is missing.

    The samples are taken one after the other, at one time, and their log-densities add up: that is
    their joint density. m = 0: no observation.
    """
    head = track.head
    head[TIME] += dt
    if head[COUNT] > 0.0:
        drift(track, plan, dt)
    scores = []
    for x in samples:
        head[SEEN] = head[TIME]
        if take(track, plan, x):
            scores.append(head[[LIKELIHOOD, DISTANCE, VALUES]])
    head[[LIKELIHOOD, DISTANCE, VALUES]] = np.sum(scores, axis=0) if scores else np.nan


def take(track: Track, plan: Layout, x: Numbers) -> bool:
    """One sample ``(d,)``; returns whether it was scored."""
    head, filled = track.head, np.nan_to_num(x)
    o = present(track) & ~np.isnan(x)
    n, fresh, limit = float(o.sum()), head[COUNT] == 0.0, 1.0
    if fresh and not filled.any():
        return False
    if not fresh and n == 0:
        enter(track, plan, x)
        return False
    if n > 0:
        judge(track, plan, x, o)
        limit = min(1.0, LIMIT * n / max(head[DISTANCE], 1e-300))
        track.counts[o] += 1.0
        gain = 1.0 / np.minimum(track.counts[o] + PRIOR_ROWS, LEVEL_MEMORY)
        track.level[o] += gain * (limit * x[o] ** 2 - track.level[o])
    head[[COUNT, SAMPLES]] += 1.0
    if fresh:
        for part in track.parts:
            part.numbers[[N_NOISE, N_METRIC]] = 1.0 + PRIOR_ROWS
    if n > 0:
        for law, part in zip(plan.members, track.parts, strict=True):
            learn(track, law, part, x, o)
    enter(track, plan, x)
    at = int(head[BUFFERED])
    if at < len(track.buffer):
        track.buffer[at] = math.sqrt(limit) * filled
        head[BUFFERED] = at + 1.0
        for law, part in zip(plan.members, track.parts, strict=True):
            if at + 1 in stages(law.rank):
                start_axes(track, law, part, track.buffer[: at + 1])
    return n > 0
