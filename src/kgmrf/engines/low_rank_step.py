"""Many channels: the numbers that describe members, and the steps that are rare.

What happens with every sample is compiled: `kgmrf.kernels.low_rank` tells it. Its loop stops for
axes that keep turning (`coast`), for channels that come and for axes that start (`arrive`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.engines import layout as row

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


def polish(axes: Numbers, level: Numbers) -> None:
    """Gram-Schmidt, in place; an axis of which nothing is left becomes that of a channel."""
    for j in range(axes.shape[0]):
        axis = axes[j]
        least = LOST * (axis @ axis)
        for channel in range(-1, axis.shape[0]):
            if channel >= 0:
                if level[channel] == 0.0:
                    continue
                axis[:] = 0.0
                axis[channel] = 1.0
                least = 0.5 / axes.shape[0]
            for k in range(j):
                axis -= (axes[k] @ axis) * axes[k]
            length = axis @ axis
            if length > least:
                break
        axis /= math.sqrt(length) if length > 0.0 else 1.0


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
    polish(part.axes, track.level)
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
