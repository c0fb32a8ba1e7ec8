"""Rivals: every one forecasts the covariance of the next row from the rows before it.

A rival is a function of the samples ``(T, d)`` that yields ``(settings, forecasts)`` for every
setting of its grid; ``forecasts[t]`` is the matrix for row t and uses rows 0..t-1. Row 0, and rows
before a rival is ready, hold NaN or what it has; scores start long after. The study gives every
rival the setting that turns out best on the very rows that are scored.

The averages start from nothing and are corrected for it (weights sum to 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kgmrf._types import Numbers
from kgmrf.baselines import _dcc as dcc

Forecasts = Iterator[tuple[str, Numbers]]

HALF_LIVES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
PAIRS = ((10, 21), (21, 63), (63, 125), (125, 250), (250, 500))
"""Half-lives of volatilities and correlations: those of the authors of CM-IEWMA."""
WINDOWS = (60, 125, 250, 500)


def average(values: Numbers, half_life: float) -> Numbers:
    """A_t = sum_k 2^(-k/h) v_{t-k} / sum_k 2^(-k/h): of rows up to t, for every t."""
    keep = 2.0 ** (-1.0 / half_life)
    out = np.empty_like(values, dtype=np.float64)
    total, mass = np.zeros(values.shape[1:]), 0.0
    for t, value in enumerate(values):
        total = keep * total + value
        mass = keep * mass + 1.0
        out[t] = total / mass
    return out


def _next(held: Numbers) -> Numbers:
    """What is known after row t - 1 is the forecast for row t."""
    return np.concatenate([np.full((1, *held.shape[1:]), np.nan), held[:-1]])


def ewma(x: Numbers) -> Forecasts:
    """S = EWMA of x x^T, one half-life for everything."""
    outer = x[:, :, None] * x[:, None, :]
    for half_life in HALF_LIVES:
        yield f"half-life {half_life}", _next(average(outer, half_life))


def with_size_clock(x: Numbers, half_life: float, gain: float) -> Numbers:
    """S = e^s B for every row: B an EWMA of e^-s x x^T, s <- .98 s + log(1 + gain (z/d - 1)).

    z = x^T S^-1 x of the row just seen, at most 20 d; the clock starts after 2 d rows.
    """
    n, d = x.shape
    out = np.full((n, d, d), np.nan)
    keep = 2.0 ** (-1.0 / half_life)
    total, mass, s = np.zeros((d, d)), 0.0, 0.0
    for t in range(n):
        s *= 0.98
        if t >= 2 * d:
            held = total / mass
            held += 1e-9 * np.trace(held) / d * np.eye(d)
            out[t] = np.exp(s) * held
            z = np.sum(x[t] * np.linalg.solve(out[t], x[t]))
            s += np.log1p(gain * (min(z / d, 20.0) - 1.0))
        total = keep * total + np.exp(-s) * np.outer(x[t], x[t])
        mass = keep * mass + 1.0
    return out


def clocked_ewma(x: Numbers) -> Forecasts:
    """One EWMA with the size clock that members of the default have: what the clock alone earns."""
    for half_life in (16, 32, 64, 128, 256, 1024):
        for gain in (0.1, 0.3, 0.6):
            yield f"half-life {half_life}, gain {gain}", with_size_clock(x, float(half_life), gain)


def iterated(x: Numbers, volatility: float, correlation: float) -> Numbers:
    """S = D R D: D^2 = EWMA of x^2, R = the correlations in the EWMA of D^-1 x x^T D^-1.

    Matrices known after every row, ``(T, d, d)``.
    """
    variance = average(x**2, volatility)
    deviation = np.sqrt(np.maximum(variance, 1e-12 * (x**2).mean(axis=0)))
    y = x / deviation
    whitened = average(y[:, :, None] * y[:, None, :], correlation)
    size = np.sqrt(np.diagonal(whitened, axis1=1, axis2=2))
    ratio = deviation / np.where(size > 0, size, 1.0)
    return ratio[:, :, None] * whitened * ratio[:, None, :]


def iterated_ewma(x: Numbers) -> Forecasts:
    """EWMA of the volatilities, then of the correlations of what is left (Engle 2002)."""
    for pair in PAIRS:
        yield f"half-lives {pair[0]}, {pair[1]}", _next(iterated(x, *pair))


def cm_iewma(x: Numbers, window: int = 10) -> Forecasts:
    """Convex combination of five iterated EWMAs (Johansson, Ogut, Pelger, Schmelzer, Boyd 2023).

    With the Cholesky factors L_k of the precisions S_k^-1 = L_k L_k^T it forecasts
    (L L^T)^-1, L = sum w_k L_k, and w maximises the Gaussian likelihood of the last ``window``
    rows: sum log diag(L_t) - |L_t^T x_t|^2/2, w on the simplex. Agrees with cvxcovariance 0.1.9.
    """
    d = x.shape[1]
    start = 3 * d
    held = np.stack([iterated(x, *pair) for pair in PAIRS], axis=1)[start:]
    factors = np.linalg.cholesky(np.linalg.inv(held))
    before, rows = factors[:-1], x[start + 1 :]
    reached = np.einsum("tkij,ti->tkj", before, rows)  # L_k^T x
    diagonals = np.diagonal(before, axis1=2, axis2=3)
    out = np.full((len(x), d, d), np.nan)
    weights = simplex_weights(diagonals, reached, min(window, len(rows)))
    blend = np.einsum("tk,tkij->tij", weights[:-1], factors[1:-1])
    out[start + 2 :] = np.linalg.inv(blend @ np.swapaxes(blend, 1, 2))
    yield f"window {window}", out


def simplex_weights(diagonals: Numbers, reached: Numbers, window: int) -> Numbers:
    """argmax over w >= 0, sum w = 1 of sum log(diagonals . w) - |reached . w|^2/2 per window.

    diagonals, reached: ``(T, K, d)``; returns weights after every row, ``(T, K)``, equal ones
    before the first full window. Newton's method with a falling barrier, all rows at once.
    """
    n, k, _ = diagonals.shape
    out = np.full((n, k), 1.0 / k)
    for first in range(window - 1, n, 1000):
        rows = np.arange(first, min(first + 1000, n))
        span = rows[:, None] + np.arange(1 - window, 1)
        a = np.moveaxis(diagonals[span], 2, -1).reshape(len(rows), -1, k)
        b = np.moveaxis(reached[span], 2, -1).reshape(len(rows), -1, k)
        cost = np.swapaxes(b, 1, 2) @ b
        w = np.full((len(rows), k), 1.0 / k)
        for barrier in (1.0, 1e-2, 1e-4, 1e-6):
            for _ in range(25):
                scaled = a / (a @ w[..., None])
                slope = scaled.sum(axis=1) - (cost @ w[..., None])[..., 0] + barrier / w
                curve = cost + np.swapaxes(scaled, 1, 2) @ scaled
                curve[:, np.arange(k), np.arange(k)] += barrier / w**2
                right = np.stack([slope, np.ones_like(slope)], axis=-1)
                full, ones = np.moveaxis(np.linalg.solve(curve, right), -1, 0)
                move = full - ones * (full.sum(-1) / ones.sum(-1))[:, None]
                room = np.where(move < 0, -0.9 * w / np.minimum(move, -1e-300), 1.0)
                w = w + np.minimum(1.0, room.min(axis=1))[:, None] * move
                if np.abs(move).max() < 1e-6:
                    break
        out[rows] = w / w.sum(axis=1, keepdims=True)
    return out


def shrunk(rows: Numbers) -> Numbers:
    """(1 - c) S + c mu I, Ledoit and Wolf's c for zero mean (as scikit-learn computes it)."""
    n, d = rows.shape
    sample = rows.T @ rows / n
    mu = np.trace(sample) / d
    squares = rows**2
    noise = (float((squares.sum(axis=1) ** 2).sum()) / n - float((sample**2).sum())) / n
    distance = float((sample**2).sum()) - d * mu**2
    c = min(noise, distance) / distance if distance > 0 else 0.0
    return (1.0 - c) * sample + c * mu * np.eye(d)


def ledoit_wolf(x: Numbers) -> Forecasts:
    """Covariance of a rolling window, shrunk to a multiple of the identity."""
    for window in WINDOWS:
        out = np.full((len(x), x.shape[1], x.shape[1]), np.nan)
        for t in range(2, len(x)):
            out[t] = shrunk(x[max(0, t - window) : t])
        yield f"window {window}", out


def dcc_garch(x: Numbers) -> Forecasts:
    """Dynamic conditional correlations over GARCH(1,1), Student-t, fitted in hindsight."""
    yield dcc.forecasts(x)


RIVALS: dict[str, Callable[[Numbers], Forecasts]] = {
    "ewma": ewma,
    "clocked_ewma": clocked_ewma,
    "iterated_ewma": iterated_ewma,
    "cm_iewma": cm_iewma,
    "dcc_garch": dcc_garch,
    "ledoit_wolf": ledoit_wolf,
}
NAMES = {
    "ewma": "EWMA, best half-life",
    "clocked_ewma": "EWMA with a size clock, best half-life and gain",
    "iterated_ewma": "iterated EWMA, best half-lives",
    "cm_iewma": "CM-IEWMA",
    "dcc_garch": "DCC-GARCH (t), fitted in hindsight",
    "ledoit_wolf": "Ledoit-Wolf, best window",
}
