"""The covariance of signals whose rows predict each other, judged H rows ahead.

    B_k <- B_k + (u E - B_k)/V_k,   half-lives tau = H/2 and 1024 tau
    u   =  min(1, 20 n/sum x_i^2/S_ii)
    S   =  w B_1 + (1 - w) B_2

Every H rows the averages F_k as they stood H rows ago meet the mean C of the rows since:

    r = |W - I|^2,  W = S^-1/2 C S^-1/2 of trace n;   v <- v + max(.02, 1/c)(min(r, 4 v) - v)
    m = (n - 1)(n + 2)/v, from 1 to H
    u   = (6 + m n)/(6 + m tr S^-1 C)
    g_k = (m/2) <u S^-1 C S^-1 - S^-1, F_k>,  S = w F_1 + (1 - w) F_2
    w_k prop to w_k exp(.5 clip((g_k - sum w g)/n, +-1)), with a fixed share

One row ahead an average of the last few rows always forecasts such a signal best: H is what tells
that. src/core/time_scale.hpp has the same names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    BLEND_LIMIT,
    BLEND_RATE,
    BLEND_SHARE,
    FILL_LIMIT,
    MEAN_NU,
    OUTLIER,
    SHRINKAGE,
    STRUCTS,
    TIME_SCALE_LONG,
    TIME_SCALE_RIDGE,
)
from kgmrf.engines.layout import pack, unpack
from kgmrf.readable.spread import learned, samples_of, scatter_of

HORIZON, COUNT, JUDGED, SPREAD, SAMPLES, GATHERED, WEIGHT, SHORT, LONG = range(9)
N_HEAD = len(STRUCTS["TimeScaleHead"])


class ScaleTrack(NamedTuple):
    """The parts of a row, as views."""

    head: Numbers
    body: Numbers  # (2, p)
    frozen: Numbers  # (2, p)
    mean: Numbers  # (p,)


def scale_track(row: Numbers, d: int) -> ScaleTrack:
    """The parts of a row ``(9 + 5 p,)``, p = d (d + 1)/2."""
    pairs = d * (d + 1) // 2
    packed = row[N_HEAD:].reshape(5, pairs)
    return ScaleTrack(row[:N_HEAD], packed[:2], packed[2:4], packed[4])


def follow_time_scale(row: Numbers, values: Numbers, dt: Numbers, records: Numbers) -> None:
    """Take in rows ``(N, d)``, NaN where nothing was seen; row and records are written.

    A record has the effective samples of H rows and the covariance ``(d, d)``; there may be none.
    """
    d = values.shape[1]
    t = scale_track(row, d)
    for line, (x, interval) in enumerate(zip(values, dt, strict=True)):
        step(t, x, float(interval))
        if len(records):
            records[line, 0] = t.head[SAMPLES]
            records[line, 1:] = covariance(t, d).reshape(-1)


def covariance(t: ScaleTrack, d: int) -> Numbers:
    """S = w B_1 + (1 - w) B_2; NaN for channels that were never seen."""
    total = unpack(weights(t) @ t.body, d)
    absent = np.diag(total) <= 0.0
    total[absent], total[:, absent] = np.nan, np.nan
    return total


def weights(t: ScaleTrack) -> Numbers:
    """w and 1 - w."""
    return np.array([t.head[WEIGHT], 1.0 - t.head[WEIGHT]])


def step(t: ScaleTrack, x: Numbers, dt: float) -> None:
    """One row of one track, in place."""
    head, horizon = t.head, t.head[HORIZON]
    head[SHORT] *= 2.0 ** (-dt / (0.5 * horizon))
    head[LONG] *= 2.0 ** (-dt / (0.5 * horizon * TIME_SCALE_LONG))
    if np.isnan(x).all():
        return
    ridge = TIME_SCALE_RIDGE + SHRINKAGE / (head[COUNT] + SHRINKAGE)
    seen = expected(unpack(weights(t) @ t.body, len(x)), x, ridge)
    head[COUNT] += 1.0
    head[SHORT] += 1.0
    head[LONG] += 1.0
    t.body[:] += (seen - t.body) / head[SHORT : LONG + 1, None]
    head[GATHERED] += 1.0
    t.mean[:] += (seen - t.mean) / head[GATHERED]
    if head[GATHERED] < horizon:
        return
    if head[COUNT] > head[GATHERED]:
        score(t, len(x))
    t.frozen[:] = t.body
    t.mean[:] = 0.0
    head[GATHERED] = 0.0


def expected(total: Numbers, x: Numbers, ridge: float) -> Numbers:
    """u x x^T, packed; missing cells by their expectation, with its covariance."""
    d, level = len(x), np.diag(total)
    known, there = ~np.isnan(x), level > 0.0
    o, hidden = known & there, ~known & there
    filled, rest = np.where(known, x, 0.0), np.zeros((d, d))
    size = float((filled[o] ** 2 / level[o]).sum())
    u = OUTLIER * o.sum() / max(size, OUTLIER * o.sum()) if o.any() else 1.0
    if hidden.any():
        inverse = inverse_of(total, o, ridge)
        y = inverse @ filled
        apart = float(filled @ y) / (FILL_LIMIT * max(int(o.sum()), 1))
        guess = total @ y / np.sqrt(max(apart, 1.0))
        left = total - total @ inverse @ total
        rest[np.ix_(hidden, hidden)] = left[np.ix_(hidden, hidden)]
        filled = np.where(hidden, guess, filled)
    return pack(u * np.outer(filled, filled) + rest)


def inverse_of(total: Numbers, these: Numbers, ridge: float) -> Numbers:
    """Inverse of the block of some channels, their variances times 1 + ridge; zero elsewhere."""
    out = np.zeros_like(total)
    block = np.ix_(these, these)
    out[block] = np.linalg.inv(total[block] + ridge * np.diag(np.diag(total)[these]))
    return out


def score(t: ScaleTrack, d: int) -> None:
    """The mean of the last H rows beside the averages before them: m and w learn."""
    head, w = t.head, weights(t)
    total, mean = unpack(w @ t.frozen, d), unpack(t.mean, d)
    there = np.diag(total) > 0.0
    n = float(there.sum())
    inverse = inverse_of(total, there, TIME_SCALE_RIDGE)
    relative = inverse @ mean
    if n == 0.0 or not np.trace(relative) > 0.0:
        return
    scatter = scatter_of(relative, n)
    head[JUDGED], head[SPREAD] = learned(head[JUDGED], head[SPREAD], scatter)
    head[SAMPLES] = m = min(max(samples_of(head[SPREAD], n), 1.0), head[HORIZON])
    u = (MEAN_NU + m * n) / (MEAN_NU + m * float(np.trace(relative)))
    slope = u * relative @ inverse - inverse
    gradient = np.array([0.5 * m * (slope * unpack(f, d)).sum() for f in t.frozen])
    steps = np.clip((gradient - w @ gradient) / n, -BLEND_LIMIT, BLEND_LIMIT)
    raised = w * np.exp(BLEND_RATE * steps)
    head[WEIGHT] = (1.0 - BLEND_SHARE) * raised[0] / raised.sum() + 0.5 * BLEND_SHARE
