"""Beyond one step: what a forecast is after a time a since the last observation.

With g = max(a - 1, 0) everything depends on the state after that observation and on a alone, so the
forecast h after a gap of G is the forecast G + h. At g = 0 nothing here does anything.

    keep_k   = exp(-(g/(4 eta_k))^2), 1 for the heir B
    w_k(g)   = (1.05 keep_k w_k + .05 lost e_k)/(1.05 - lost),   lost = sum_k (1 - keep_k) w_k
    sigma(g) standard deviation of the log of the size: p(x) = sum_ij omega_i pi_j t_j(x; e^(z_i
             sigma) Sigma), z and omega the points and weights of a Gaussian

eta_k is how long what member k knows lasts. B, the plain average of the longest half-life, keeps
its weight at all horizons; A, the average of the longest half-life with a size clock, inherits as
long as its own clock lasts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import (
    HORIZON_REACH,
    HORIZON_SHARE,
    LEAST_GAP,
    WANDER_LAGS,
    WANDER_MOST,
    WANDER_WIDENING,
)

N_LAGS = len(WANDER_LAGS)
HEIR, LAST = 1.0, 2.0
"""Marks of A and B in the column ``heir`` of a table of members."""


class Keeps(NamedTuple):
    """What members keep of their weight at one or many ages, and who inherits the rest."""

    keep: Numbers  # (..., K)
    heir: Numbers  # (..., K)


def mark(lasts: Numbers, clocked: Numbers, plain: Numbers) -> Numbers:
    """The columns ``horizon`` and ``heir`` of a table of members, ``(K, 2)``.

    lasts: eta_k. clocked, plain: half-lives of the members that may become A and B, 0 for others.
    Without a B all weights stay; without an A, B inherits everything.

    >>> mark(np.array([16.0, 50.0, 1024.0]), np.array([0, 1024.0, 0]), np.array([16.0, 0, 1024.0]))
    array([[16.,  0.],
           [50.,  1.],
           [inf,  2.]])
    """
    out = np.stack([lasts, np.zeros(len(lasts))], axis=1)
    if not plain.any():
        out[:, 0] = np.inf
        return out
    if clocked.any():
        out[clocked.argmax(), 1] = HEIR
    out[plain.argmax()] = np.inf, LAST
    return out


def beyond(age: Any) -> Numbers:
    """g, the time beyond one unit since the last observation; 0 before the first."""
    ahead = np.asarray(age, dtype=float) - 1.0
    return np.where(ahead > LEAST_GAP, ahead, 0.0)


def keeps(horizon: Numbers, heir: Numbers, g: Any) -> Keeps:
    """keep_k and e_k at g ``(...)`` for the columns of a table ``(K,)``."""
    keep = np.exp(-((np.asarray(g)[..., None] / (HORIZON_REACH * horizon)) ** 2))
    first = np.where(heir == HEIR, keep, 0.0)
    last = np.where(heir == LAST, 1.0 - first.sum(axis=-1, keepdims=True), 0.0)
    return Keeps(keep, first + last)


def carry(weights: Numbers, at: Keeps) -> Numbers:
    """w(g) of weights w ``(..., K)``.

    >>> carry(np.array([0.5, 0.5]), Keeps(np.array([0.0, 1.0]), np.array([0.0, 1.0]))).tolist()
    [0.0, 1.0]
    """
    kept = at.keep * weights
    lost = 1.0 - kept.sum(axis=-1, keepdims=True)
    share = HORIZON_SHARE
    return np.asarray(((1.0 + share) * kept + share * lost * at.heir) / (1.0 + share - lost))


def pull_back(gradient: Numbers, weights: Numbers, at: Keeps) -> Numbers:
    """Derivatives by w of what has these derivatives by w(g), up to one constant."""
    kept, share = at.keep * weights, HORIZON_SHARE
    whole = kept.sum() + share
    mean = (kept + share * at.heir) @ gradient / whole
    return np.asarray(mean + at.keep * (1.0 + share) / whole * (gradient - mean))


def size_std(variances: Any, g: Any) -> Numbers:
    """sigma(g) for the variances ``(..., 3)`` of the log size about its averages of three lengths.

    sigma^2 is linear in log(1 + g) between 0, v_1, max(v_1, v_2), max(v_1, v_2, v_3) at the lags,
    times 1.5, and constant beyond.

    >>> size_std([0.1, 0.2, 0.1], [0.0, 16.0, 1e9]).round(3).tolist()
    [0.0, 0.548, 0.548]
    """
    most = np.maximum.accumulate(np.asarray(variances, dtype=float), axis=-1)
    rise = np.diff(most, axis=-1, prepend=0.0)
    knots = np.log1p([0.0, *WANDER_LAGS])
    along = (np.log1p(np.asarray(g))[..., None] - knots[:-1]) / np.diff(knots)
    variance = WANDER_WIDENING * (rise * np.clip(along, 0.0, 1.0)).sum(axis=-1)
    return np.sqrt(np.minimum(variance, WANDER_MOST))
