"""A mean that is linear in the last rows: mu = a sqrt(L) o B^T z, z = clip(lags/sqrt(L), +-8).

    mu^ = sqrt(L) o B^T z
    B  by weighted recursive least squares of (x - mu^)/sqrt(L) on z, half-life 1000, P_0 = I/10
    u  = (nu + n)/(nu + sum (x - mu)^2/V), the weight of a row with n values; nu = 6
    a  = clip(b/(g + 10), 0, 1),  g <- k g + u sum mu^^2/V,  b <- k b + u sum mu^ x/V
    L  long-run second moment of each channel, V that of what is left, x - mu

The gate a keeps a mean that does not forecast at zero. A missing value is no error, and as a lag it
is mu^. Lags are the last rows, however long ago. src/core/linear_mean.hpp has the same names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    LEVEL_MEMORY,
    MEAN_GATE_HALF_LIFE,
    MEAN_GATE_RIDGE,
    MEAN_HALF_LIFE,
    MEAN_LAG_LIMIT,
    MEAN_NOISE_HALF_LIFE,
    MEAN_NU,
    MEAN_RIDGE,
    STRUCTS,
)

COUNT, GATE, SLOPE = range(3)
N_HEAD = len(STRUCTS["LinearMeanHead"])


class MeanTrack(NamedTuple):
    """The parts of rows ``(..., size)``, as views."""

    head: Numbers
    level: Numbers  # L (d,)
    noise: Numbers  # V (d,)
    mean: Numbers  # mu of the last row (d,)
    lags: Numbers  # (p, d), the last row first
    slopes: Numbers  # B (p d, d)
    spread: Numbers  # P (p d, p d)


def mean_size(d: int, lags: int) -> int:
    """Numbers of a row."""
    n = d * lags
    return N_HEAD + 3 * d + n + n * d + n * n


def mean_track(row: Numbers, d: int, lags: int) -> MeanTrack:
    """The parts of rows ``(..., size)``."""
    n, lead = d * lags, row.shape[:-1]
    edges = np.cumsum([N_HEAD, d, d, d, n, n * d])
    head, level, noise, mean, before, slopes, spread = np.split(row, edges, axis=-1)
    shapes = (lags, d), (n, d), (n, n)
    large = (a.reshape(*lead, *s) for a, s in zip((before, slopes, spread), shapes, strict=True))
    return MeanTrack(head, level, noise, mean, *large)


def follow_linear_mean(
    rows: Numbers, track_index: Numbers, values: Numbers, lags: int, means: Numbers
) -> None:
    """Take in lines ``(N, d)`` of any tracks, NaN where nothing was seen; ``means`` gets mu before
    each."""
    for track, x, mu in zip(track_index.tolist(), values, means, strict=True):
        t = mean_track(rows[track], values.shape[1], lags)
        mu[:] = t.mean[:] = mean_of(t)
        step(t, x)


def share(t: MeanTrack) -> Numbers:
    """a, the part of the linear forecast that has proved itself, ``(...)``."""
    gate = t.head[..., SLOPE] / (t.head[..., GATE] + MEAN_GATE_RIDGE)
    return np.asarray(np.clip(gate, 0.0, 1.0))


def mean_of(t: MeanTrack) -> Numbers:
    """mu of the next row, ``(..., d)``."""
    return np.asarray(share(t)[..., None] * linear(t))


def scaled_lags(t: MeanTrack) -> Numbers:
    """z, with zero for channels that were never seen."""
    level = t.level[..., None, :]
    units = np.where(level > 0.0, np.sqrt(level), 1.0)
    limited = np.clip(t.lags / units, -MEAN_LAG_LIMIT, MEAN_LAG_LIMIT)
    return np.where(level > 0.0, limited, 0.0).reshape(*t.level.shape[:-1], -1)


def linear(t: MeanTrack) -> Numbers:
    """mu^ = sqrt(L) o B^T z."""
    return np.sqrt(t.level) * (scaled_lags(t)[..., None, :] @ t.slopes)[..., 0, :]


def step(t: MeanTrack, x: Numbers) -> None:
    """One row, in place."""
    guess = linear(t)
    known = ~np.isnan(x)
    if known.any():
        learn(t, np.where(known, x, 0.0), known, guess)
    t.lags[1:] = t.lags[:-1].copy()
    t.lags[0] = np.where(known, x, guess)


def learn(t: MeanTrack, x: Numbers, known: Numbers, guess: Numbers) -> None:
    """L, V, the gate and the regression take in what was seen."""
    head = t.head
    left = np.where(known, x - share(t) * guess, 0.0)
    there = known & (t.noise > 0.0)
    inverse = np.where(there, 1.0 / np.where(there, t.noise, 1.0), 0.0)
    n = float(there.sum())
    u = (MEAN_NU + n) / (MEAN_NU + float((left**2 * inverse).sum()))
    head[COUNT] += 1.0
    keep = 2.0 ** (-1.0 / MEAN_GATE_HALF_LIFE)
    head[GATE] = keep * head[GATE] + u * float((guess**2 * inverse).sum())
    head[SLOPE] = keep * head[SLOPE] + u * float((guess * x * inverse).sum())
    gain = 1.0 / min(head[COUNT], LEVEL_MEMORY)
    quick = max(1.0 - 2.0 ** (-1.0 / MEAN_NOISE_HALF_LIFE), 1.0 / head[COUNT])
    for total, value, rate in ((t.level, min(u, 1.0) * x**2, gain), (t.noise, u * left**2, quick)):
        fresh = known & (total == 0.0)
        total[known] += rate * (value - total)[known]
        total[fresh] = (x**2)[fresh]
    if head[COUNT] > 1.0:
        regress(t, np.where(known & (t.level > 0.0), x - guess, 0.0), u)


def regress(t: MeanTrack, left: Numbers, u: float) -> None:
    """B <- B + f P z e^T,  P <- P - f P z z^T P,  f = u/(lam + u z^T P z); then P forgets."""
    keep = 2.0 ** (-1.0 / MEAN_HALF_LIFE)
    z = scaled_lags(t)
    direction = t.spread @ z
    factor = u / (keep + u * float(z @ direction))
    units = np.where(t.level > 0.0, np.sqrt(t.level), 1.0)
    t.slopes[:] += factor * np.outer(direction, left / units)
    t.spread[:] -= factor * np.outer(direction, direction)
    largest = float(np.diag(t.spread).max()) * MEAN_RIDGE
    if largest < 1.0:
        t.spread[:] *= min(1.0 / keep, 1.0 / max(largest, 1e-300))
