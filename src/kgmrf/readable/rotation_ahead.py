"""What forecasts of the rotation filter earned, FORECAST_LAGS units ahead.

    issue    now and then, what the members forecast for a lag is kept
    learn    when it comes due, the turn D that was seen is regressed on it
    applied  what a record shows between observations: the forecast as it earned it

Members are weighed by one step ahead; several steps ahead, people stop and pendulums turn back.
With x1 the turn that the members forecast for lag l, x2 that of the usual velocity of late and x3
the way back to the usual rotation of late, all seen from the frame at the time,

    D = x1 + d1 x1 + d2 x2 + d3 x3 + e,   |e|^2 / (s V + r) is chi-squared of three,

with V the variance that the members forecast. d is a regression with a ridge towards 0, times a
share a = b/(g + FORECAST_GATE), b and g the sums of D - x1 times d x, and of its square, over their
variance: it counts as far as it was right before it was learned from. s moves so that one e in
twenty is outside of the region of 95 %. src/core/rotation_ahead.hpp has these names.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf import constants as c
from kgmrf._types import Numbers
from kgmrf.geometry.between import right_jacobian
from kgmrf.readable.dense import Dense
from kgmrf.readable.isotropic import Isotropic, Track, log, turned

PENDING, EARNED = c.STRUCTS["PendingForecast"], c.STRUCTS["Earned"]
NORMAL = np.triu_indices(3)


class Applied(NamedTuple):
    """What was learned says of a forecast: a further turn, and a factor of its covariance."""

    turn: Numbers
    spread: float


class Named:
    """Numbers of a struct by name, as a view."""

    def __init__(self, numbers: Numbers, names: tuple[str, ...]) -> None:
        self.__dict__.update(numbers=numbers, names=names)

    def __getattr__(self, name: str) -> Any:
        return self.numbers[self.names.index(name)]

    def __setattr__(self, name: str, value: float) -> None:
        self.numbers[self.names.index(name)] = value

    def several(self, first: str, n: int) -> Numbers:
        """n numbers, as a view."""
        begin = self.names.index(first)
        return np.asarray(self.numbers[begin : begin + n])


class Ahead:
    """Formulas over one `Track`."""

    def __init__(self, isotropic: Isotropic, dense: Dense) -> None:
        self.isotropic, self.dense = isotropic, dense

    def begin(self, t: Track) -> None:
        """Nothing is known of how the rotation moves; what forecasts earned before stays."""
        t.origin[:] = t.usual[:] = t.frame
        t.usual_rate[:], t.followed = 0.0, 1.0
        t.pending[:] = 0.0

    def rescale(self, t: Track, f: float) -> None:
        """The unit of time becomes f times what it was."""
        if f != 1.0:
            t.usual_rate[:] *= f
            t.pending[:] = 0.0

    def observe(self, t: Track, z: Numbers, rel: float, since: float, with_dense: bool) -> None:
        """Z was taken in, ``since`` units after the observation before."""
        for lag, slots, earned in zip(c.FORECAST_LAGS, t.pending, t.earned, strict=True):
            self.learn(t, Named(earned, EARNED), slots, lag, z, rel)
        if since > 0.0:
            self.keep_usual(t, since)
        for lag, slots in zip(c.FORECAST_LAGS, t.pending, strict=True):
            self.issue(t, slots, lag, with_dense)

    def keep_usual(self, t: Track, since: float) -> None:
        """The usual velocity and rotation of late, as means that forget."""
        t.followed += 1.0
        step = log(t.origin, t.frame) / since
        share = max(-math.expm1(-since / c.USUAL_RATE_MEMORY), 1.0 / (t.followed - 1.0))
        t.usual_rate[:] += share * (step - t.usual_rate)
        share = max(-math.expm1(-since / c.USUAL_MEMORY), 1.0 / t.followed)
        t.usual[:] = turned(t.usual, share * log(t.usual, t.frame))
        t.origin[:] = t.frame

    def learn(
        self, t: Track, earned: Named, slots: Numbers, lag: float, z: Numbers, rel: float
    ) -> None:
        """Forecasts that are due are compared with Z; then their places are free."""
        for numbers in slots:
            p = Named(numbers, PENDING)
            age = (t.time - p.time) / t.unit
            if not p.variance > 0.0 or age < lag - 0.5:
                continue
            variance, x = p.variance, features(numbers, age / lag)
            p.variance = 0.0
            found = log(p.several("w", 4), z)
            weight = near(found) * near(x[0])
            if age > 1.5 * lag or not weight > 0.0:
                continue
            change = earned.several("first", 3)
            wrong = found - x[0]
            offer, total = change @ x, variance * math.exp(earned.log_spread) + t.noise * rel
            e = wrong - gate(earned) * offer
            square = e @ e / total
            step = (square > c.REGION_SQUARE) - c.REGION_MISSED
            most = math.log(c.WIDEST_SPREAD)
            spread = earned.log_spread + c.SPREAD_STEP * step
            earned.log_spread = float(np.clip(spread, math.log(c.LEAST_SPREAD), most))
            weight *= min(1.0, c.FAR_FORECAST / square)
            keep = c.FORECAST_MEMORY
            earned.agreed = keep * earned.agreed + weight * (wrong @ offer) / total
            earned.offered = keep * earned.offered + weight * (offer @ offer) / total
            weight /= variance
            normal, right = earned.several("a11", 6), earned.several("b1", 3)
            normal[:] = keep * normal + weight * (x @ x.T)[NORMAL]
            right[:] = keep * right + weight * x @ wrong
            earned.count = keep * earned.count + 1.0
            found = solved(normal, right, c.FORECAST_RIDGE / earned.count)
            change[:] = np.clip(found, -c.MOST_EARNED, c.MOST_EARNED)

    def issue(self, t: Track, slots: Numbers, lag: float, with_dense: bool) -> None:
        """Into a free place, unless another forecast of this lag is young."""
        free = [p for p in (Named(numbers, PENDING) for numbers in slots) if not p.variance > 0.0]
        times = [p[0] for p in slots if p[PENDING.index("variance")] > 0.0]
        young = (c.FORECAST_EVERY - 0.5) * t.unit
        if not free or any(t.time - time < young for time in times):
            return
        p = free[0]
        turn, p.variance = self.members(t, lag, with_dense)
        p.time, p.several("w", 4)[:], p.several("turn_x", 3)[:] = t.time, t.frame, turn
        p.several("rate_x", 3)[:] = lag * t.usual_rate
        back = log(t.frame, t.usual)
        p.several("back_x", 3)[:] = near(back) * back

    def members(self, t: Track, h: float, with_dense: bool) -> tuple[Numbers, float]:
        """Mean of the turn over h by all members, seen from the common frame; its variance."""
        share, iso = t.experts[2] if with_dense else 0.0, self.isotropic
        over = iso.interval(h)
        p = t.noise * (t.p00 + over.beta * (2 * t.p01 + over.beta * t.p11) + iso.lam * over.q2)
        turn = t.delta + over.beta * t.rate
        mean = (1 - share) * (t.weight * turn).sum(axis=1)
        square = (1 - share) * (t.weight * (np.minimum(p, c.WIDEST_ANGLE) + turn**2)).sum()
        for n in range(c.DENSE_MEMBERS if with_dense else 0):
            weight = share * t.share[n]
            if weight > 1e-12:
                away, variance = self.dense.ahead(t, n, h)
                mean += weight * away
                square += weight * (min(variance, 3 * c.WIDEST_ANGLE) + away @ away)
        return mean, max((square - mean @ mean) / 3, 1e-300)

    def applied(self, t: Track, shown: Numbers) -> Applied:
        """For the time since the last observation; shown: what the members forecast."""
        h = (t.time - t.seen) / t.unit
        first, last = (Named(numbers, EARNED) for numbers in t.earned)
        lags = c.FORECAST_LAGS
        if h < lags[0]:
            share = max(math.log(max(h, 1.0)) / math.log(lags[0]), 0.0)
            change = share * earns(first)
            one = c.FIRST_SPREAD * max(first.log_spread, 0.0)  # of one unit
            spread = min(h, 1.0) * one + share * (first.log_spread - one)
        else:
            share = min(math.log(h / lags[0]) / math.log(lags[1] / lags[0]), 1.0)
            one, two = earns(first), earns(last)
            change = one + share * (two - one)
            spread = first.log_spread + share * (last.log_spread - first.log_spread)
        x1, x3 = log(t.origin, shown), log(t.origin, t.usual)
        reach = min(h, lags[1])
        x = np.stack([min(lags[1] / h, 1.0) * x1, reach * t.usual_rate, near(x3) * x3])
        turn = near(x1) * right_jacobian(x1) @ (change @ x)
        return Applied(turn, math.exp(spread))


def features(pending: Numbers, scale: float) -> Numbers:
    """x1, x2 and x3 of a forecast; scale: of the time it was for, what has gone by."""
    x = pending[5:14].reshape(3, 3).copy()
    x[:2] *= scale
    return np.asarray(x)


def gate(earned: Named) -> float:
    """Share of what the regression says that counts: as far as it was right so far."""
    return float(np.clip(earned.agreed / (earned.offered + c.FORECAST_GATE), 0.0, 1.0))


def earns(earned: Named) -> Numbers:
    """Factors of x1, x2 and x3."""
    return gate(earned) * earned.several("first", 3)


def near(turn: Numbers) -> float:
    """1 up to a quarter turn, 0 at half a turn: beyond, turns by logarithms mean nothing."""
    return float(np.clip(2.0 - 2.0 * np.linalg.norm(turn) / math.pi, 0.0, 1.0))


def solved(normal: Numbers, right: Numbers, ridge: float) -> Numbers:
    """(A + ridge diag A)^-1 b; 0 where A is."""
    a = np.zeros((3, 3))
    a[NORMAL] = normal
    a += np.triu(a, 1).T
    there = np.diagonal(a) > 0.0
    scale = np.where(there, 1.0 / np.sqrt(np.where(there, np.diagonal(a), 1.0)), 0.0)
    unit = a * np.outer(scale, scale) + np.diag(np.where(there, ridge, 1.0))
    return np.asarray(scale * np.linalg.solve(unit, scale * right))
