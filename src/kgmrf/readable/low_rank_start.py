"""How tracks of many channels start: channels come, and axes are found in the first rows.

src/core/low_rank_start.hpp has the same names.
"""

from __future__ import annotations

import math

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import (
    LOG_SQUARE_MEAN,
    LOG_SQUARE_SPREAD,
    LOG_SQUARE_VAR,
    LOW_RANK_DECAY,
    LOW_RANK_FOUND,
    LOW_RANK_LIMIT,
    LOW_RANK_LOST,
    LOW_RANK_MEMORY,
    LOW_RANK_PRIOR_ROWS,
    LOW_RANK_SMALLEST_FACTOR,
    LOW_RANK_SMALLEST_NOISE,
    SMALLEST,
)
from kgmrf.engines.low_rank_layout import (
    BUFFERED,
    N_METRIC,
    N_NOISE,
    SIZE,
    Factors,
    Part,
    Track,
)


def present(track: Track) -> Mask:
    """Channels that have had a value other than zero."""
    return track.level > 0.0


def live(track: Track, law: Factors) -> bool:
    """Whether a member has axes yet; before, it is a diagonal."""
    return bool(track.head[BUFFERED] >= law.stages[0])


def polish(axes: Numbers, level: Numbers) -> None:
    """Gram-Schmidt, in place.

    An axis of which nothing is left becomes that of a channel, or zero where there are fewer
    channels than axes.
    """
    for j in range(axes.shape[0]):
        axis = axes[j]
        least = LOW_RANK_LOST * (axis @ axis)
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
        axis *= 1.0 / math.sqrt(length) if length > least else 0.0


def start_axes(track: Track, law: Factors, part: Part, rows: Numbers) -> None:
    """Axes and spectrum from the singular values of the first rows ``(n, d)``, x / sqrt(v)."""
    there = present(track)
    n, r, d = len(rows), law.rank, float(there.sum())
    # A row far beyond the usual size counts as one at the limit, also if it was the first.
    size = (rows[:, there] ** 2 / track.level[there]).mean(axis=1)
    usual = LOW_RANK_LIMIT * np.sort(size)[n // 2]
    if usual > 0.0:
        rows = rows * np.sqrt(usual / np.maximum(size, usual))[:, None]
    power = (rows**2).sum(axis=0)
    guess = np.minimum(track.first, np.where(power > 0.0, LOW_RANK_LIMIT * power / n, np.inf))
    v = (power + LOW_RANK_PRIOR_ROWS * guess) / (track.counts + LOW_RANK_PRIOR_ROWS)
    v = np.maximum(v, SMALLEST)
    track.level[there] = v[there]
    v = np.where(there, v, 1.0)
    z = rows / np.sqrt(v)
    values, vectors = np.linalg.eigh(z @ z.T)
    values, vectors = values[::-1][:r], vectors[:, ::-1][:, :r]
    found = values > LOW_RANK_FOUND * max(values[0], 1e-300)
    u = np.where(found, vectors / np.sqrt(np.where(found, values, 1.0)), 0.0).T @ z
    # The noise level is what the first r values leave over, spread over the other rows.
    rest = max(float((z**2).sum()) - float(values.sum()), 0.0)
    level = min(max(rest / ((n - r) * d), LOW_RANK_SMALLEST_NOISE), 1.0)
    spikes = spike(values / (n * level), d / n) * level
    p = np.maximum(1.0 - (spikes[:, None] * u**2).sum(axis=0), LOW_RANK_SMALLEST_NOISE)
    part.noise[:] = np.where(there, math.exp(-part.numbers[SIZE]) * v * p, 0.0)
    part.metric[:] = part.noise
    part.axes[:] = np.where(there, u / np.sqrt(p), 0.0)
    before = part.axes.copy()
    polish(part.axes, track.level)
    mixing = part.axes @ before.T
    mixing[np.diag_indices(r)] += ~before.any(axis=1)
    part.spectrum[:] = (mixing * spikes) @ mixing.T
    sure = 1.0 / (n * np.maximum(spikes, LOW_RANK_SMALLEST_FACTOR))
    # Variance of a velocity in the end.
    still = law.acceleration**2 / (2.0 * LOW_RANK_DECAY * len(there))
    part.states[r:] = 0.0
    part.angle_var[:] = still * np.eye(len(part.angle_var))
    part.angle_var[:r, :r] = np.diag(np.minimum(sure, 1.0 / len(there)))
    known = [n + LOW_RANK_PRIOR_ROWS, n + LOW_RANK_PRIOR_ROWS, n]
    part.numbers[N_NOISE:] = np.minimum(known, LOW_RANK_MEMORY * law.half_lives)


def spike(values: Numbers, ratio: float) -> Numbers:
    """Variance of a factor behind a sample eigenvalue l, with d/n channels per row, noise 1.

    l = (1 + lam)(1 + ratio/lam) above (1 + sqrt(ratio))^2, where factors begin to show.
    """
    b = values + 1.0 - ratio
    root = np.sqrt(np.maximum(b * b - 4.0 * values, 0.0))
    seen = values > (1.0 + math.sqrt(ratio)) ** 2
    above = np.maximum(0.5 * (b + root) - 1.0, LOW_RANK_SMALLEST_FACTOR)
    return np.where(seen, above, math.sqrt(ratio))


def add_channels(track: Track, x: Numbers) -> None:
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
    guess = np.maximum(np.exp(mean - LOG_SQUARE_MEAN + keep * (logs - mean)), SMALLEST)
    track.level[new] = track.first[new] = guess
    track.counts[new] = 1.0
    own = (x[new] ** 2 + LOW_RANK_PRIOR_ROWS * guess) / (1.0 + LOW_RANK_PRIOR_ROWS)
    for part in track.parts:
        if first:
            part.numbers[[N_NOISE, N_METRIC]] = 1.0 + LOW_RANK_PRIOR_ROWS
        part.noise[new] = part.metric[new] = math.exp(-part.numbers[SIZE]) * own
        part.states[:, new] = 0.0
