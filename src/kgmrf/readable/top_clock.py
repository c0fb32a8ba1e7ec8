"""A clock for the variance of the top direction of the correlation, gated by its likelihood.

    u <- R u/|R u|, R the correlation of S;  w = u/sd, y = S w, v = w^T y
    S' = S + beta y y^T/v,  beta = a (m - 1),  a = clip(b/(g + 10), 0, 1)

What moves all channels at once changes faster than the rest. m is the variance along w over what S
says of it; a is the slope, by least squares, of what the likelihood gains along w on m - 1, so that
where the clock earns nothing it does nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import (
    SIZE_RETENTION,
    TOP_GATE_HALF_LIFE,
    TOP_HALF_LIFE,
    TOP_LIMIT,
    TOP_RIDGE,
)
from kgmrf.engines.layout import Track

VARIANCE, SQUARE, GAIN = -3, -2, -1  # m, g and b; before them u


class Aim(NamedTuple):
    """The top direction of a forecast S."""

    u: Numbers
    w: Numbers
    y: Numbers
    v: float
    beta: float

    @property
    def extra(self) -> Numbers:
        """S' - S."""
        share = self.beta / self.v if self.beta else 0.0
        return share * np.outer(self.y, self.y)


class Along(NamedTuple):
    """What samples say along it: sums of their surprise, and of what S' changes about S."""

    share: float = 0.0
    distance: float = 0.0
    log_det: float = 0.0

    def plus(self, other: Along) -> Along:
        """Both together."""
        return Along(*(a + b for a, b in zip(self, other, strict=True)))


def point(track: Track, first: Numbers) -> None:
    """u begins with the signs of one row of the first C, that of the channel correlated most.

    So signs and order of channels do not matter. first: C, 0 in channels that are absent.
    """
    variance = np.diag(first)
    inverse = np.where(variance > 0.0, 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0)), 0.0)
    sums = (np.abs(first) * inverse[:, None] * inverse).sum(axis=1)
    row = int(np.argmax(sums * (1.0 + 1e-9) >= sums.max()))
    signs = np.sign(first[row])
    track.top[:VARIANCE] = signs / np.sqrt(signs @ signs)


def drift_top(track: Track, dt: float) -> None:
    """m <- 1 + .98^dt (m - 1)."""
    track.top[VARIANCE] = 1.0 + SIZE_RETENTION**dt * (track.top[VARIANCE] - 1.0)


def aim(track: Track, total: Numbers) -> Aim:
    """The direction beside S; zero in channels that are absent."""
    variance = np.diag(total)
    inverse = np.where(variance > 0.0, 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0)), 0.0)
    old = track.top[:VARIANCE]
    u = inverse * (total @ (old * inverse))
    length = float(np.linalg.norm(u))
    u = u / length if length > 0.0 else old.copy()
    w = u * inverse
    y = total @ w
    v = float(w @ y)
    gate = min(max(track.top[GAIN] / (track.top[SQUARE] + TOP_RIDGE), 0.0), 1.0)
    return Aim(u, w, y, v, gate * (track.top[VARIANCE] - 1.0) if v > 0.0 else 0.0)


def along(top: Aim, x: Numbers, o: Mask, inverse: Numbers) -> Along:
    """Of one sample with the cells o; inverse: S_oo^-1.

    t = y_o^T S_oo^-1 x_o has the variance r = y_o^T S_oo^-1 y_o under S; of all channels t = w^T x
    and r = v. S'_oo^-1 and |S'_oo| by the identities of Sherman and Morrison.
    """
    if not top.v > 0.0:
        return Along()
    y = top.y[o]
    t, r = float(y @ inverse @ x[o]), float(y @ inverse @ y)
    if not r > 0.0:
        return Along()
    beta, v = top.beta, top.v
    return Along(t * t / r, beta * t * t / (v + beta * r), math.log1p(beta * r / v))


def along_matrix(top: Aim, mean: Numbers, m: float) -> Along:
    """Of m samples whose mean of x x^T this is."""
    if not top.v > 0.0:
        return Along()
    square = m * float(top.w @ mean @ top.w) / top.v
    beta = top.beta
    return Along(square, beta / (1.0 + beta) * square, m * math.log1p(beta))


def learn_top(
    track: Track, top: Aim, z: float, m: float, u: float, heavy: float, age: float
) -> None:
    """g <- k g + m_s (m - 1)^2, b <- k b + m_s (m - 1)(min(u z, 9) - 1); m learns from z/h.

    z: mean surprise of m_s samples. u: weight of the observation. heavy: h of the tails.
    """
    track.top[:VARIANCE] = top.u
    if not (top.v > 0.0 and math.isfinite(z)):
        return
    keep, apart = 2.0 ** (-age / TOP_GATE_HALF_LIFE), track.top[VARIANCE] - 1.0
    track.top[SQUARE] = keep * track.top[SQUARE] + m * apart**2
    track.top[GAIN] = keep * track.top[GAIN] + m * apart * (min(u * z, TOP_LIMIT) - 1.0)
    rate = 1.0 - 2.0 ** (-min(age, 1.0) / TOP_HALF_LIFE)
    track.top[VARIANCE] += rate * (min(z / heavy, TOP_LIMIT) - track.top[VARIANCE])
