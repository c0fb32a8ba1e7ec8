"""How a rotation may move: one family of motion models, damped stochastic oscillators.

Each axis of the body frame carries a velocity ``v``, its quadrature ``u``, a log frequency ``l``:

    v + i u  <-  z^dt (v + i u),      z = retention * exp(-i exp(l))
    angle    +=  Re[(1 - z^dt) / (1 - z) (v + i u)]

At frequency 0 this is constant velocity (retention 1) or decaying velocity (retention < 1), so
that one filter serves every model. Over one unit of time the angle moves by exactly ``v``, and a
drift of 2 dt equals two drifts of dt. The acceleration drives the velocity as in
:class:`kgmrf.gains.InformationGains`. The unit of time is the frame.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers

RATE_PRIOR = 4e-4  # variance of a velocity component at the start, rad^2 per unit time^2


class MotionModels(NamedTuple):
    """K motion models side by side; every field is an array with leading axis K."""

    frequency: Numbers  # (K, 3) rad per unit time, 0 = no oscillation on that axis
    frequency_std: Numbers  # (K,) prior standard deviation of the log frequency
    frequency_noise: Numbers  # (K,) random-walk variance of the log frequency per unit time
    retention: Numbers  # (K,) of the velocity per unit time, in (0, 1]
    acceleration: Numbers  # (K,) density of the white acceleration, rad^2 per unit time^3
    jitter: Numbers  # (K,) variance of the angle gained per unit time
    rate_prior: Numbers  # (K, 3) variance of velocity (and of its quadrature) at the start
    log_weight: Numbers  # (K,) log prior weight

    @property
    def n_models(self) -> int:
        """Number of models K."""
        return len(self.retention)


def decaying_velocity(
    acceleration: float,
    *,
    retention: float = 1.0,
    rate_prior: float = RATE_PRIOR,
    jitter: float = 0.0,
) -> MotionModels:
    """One model v <- retention v + noise of variance ``acceleration`` (retention 1: constant).

    >>> decaying_velocity(0.0).frequency
    array([[0., 0., 0.]])
    """
    return MotionModels(
        frequency=np.zeros((1, 3)),
        frequency_std=np.zeros(1),
        frequency_noise=np.zeros(1),
        retention=np.array([retention], float),
        acceleration=np.array([acceleration], float),
        jitter=np.array([jitter], float),
        rate_prior=np.full((1, 3), rate_prior, float),
        log_weight=np.zeros(1),
    )


def oscillators(
    periods: Sequence[float],
    *,
    swing: float = 0.5,
    frequency_std: float | None = None,
    frequency_noise: float = 0.0,
    acceleration: float = 0.0,
    retention: float = 1.0,
    jitter: float = 0.0,
) -> MotionModels:
    """All combinations of ``periods`` over the three axes: len(periods)^3 oscillators.

    ``swing`` is the prior standard deviation of the *angle* of each axis (radians), so that the
    prior velocity is swing x frequency: scale-free over the grid. ``frequency_std`` defaults to
    0.4 of the log spacing of the periods (a cell of the grid, with overlap).

    >>> oscillators((10, 40)).n_models
    8
    """
    p = np.asarray(periods, float)
    if frequency_std is None:
        spacing = math.log(p.max() / p.min()) / max(len(p) - 1, 1)
        frequency_std = 0.4 * spacing if spacing > 0 else 0.5
    grid = np.array(list(itertools.product(2 * np.pi / p, repeat=3)))
    k = len(grid)
    return MotionModels(
        frequency=grid,
        frequency_std=np.full(k, frequency_std),
        frequency_noise=np.full(k, frequency_noise),
        retention=np.full(k, retention),
        acceleration=np.full(k, acceleration),
        jitter=np.full(k, jitter),
        rate_prior=(swing * grid) ** 2,
        log_weight=np.full(k, -math.log(k)),
    )


def join(*groups: MotionModels, shares: Sequence[float] | None = None) -> MotionModels:
    """Concatenate groups of models; each group gets its share of the prior weight (equal if None).

    >>> m = join(decaying_velocity(0.0), oscillators((10, 40)), shares=(0.5, 0.5))
    >>> np.exp(m.log_weight[:2]).round(4)
    array([0.5   , 0.0625])
    """
    if shares is None:
        shares = [1.0 / len(groups)] * len(groups)
    weighted = []
    for group, share in zip(groups, shares, strict=True):
        w = group.log_weight - np.logaddexp.reduce(group.log_weight)
        weighted.append(group._replace(log_weight=w + math.log(share)))
    return MotionModels(*(np.concatenate(field) for field in zip(*weighted, strict=True)))


def alike(models: MotionModels) -> MotionModels:
    """Keep the oscillators whose three axes share one frequency.

    >>> alike(oscillators((10, 20, 40))).n_models
    3
    """
    keep = (models.frequency == models.frequency[:, :1]).all(axis=1)
    return MotionModels(*(field[keep] for field in models))


SMALL = (14.0, 45.0, 145.0)
LARGE = (12.0, 29.0, 70.0, 170.0)
"""Periods in frames; with the log frequency as a state either grid reaches from about 7 to 300."""


def default_models(
    *, rate_prior: float = RATE_PRIOR, periods: Sequence[float] = LARGE
) -> MotionModels:
    """Models that nobody has to tune: constant, decaying, oscillating, and irregular swinging.

    Half of the prior weight is on constant and decaying velocities. Every combination of
    ``periods`` over the three axes oscillates: 74 models with `LARGE`, 36 with `SMALL`.

    >>> default_models().n_models, default_models(periods=SMALL).n_models
    (74, 36)
    """
    decaying = join(
        decaying_velocity(1e-6, retention=0.99, rate_prior=rate_prior),
        decaying_velocity(1e-5, retention=0.97, rate_prior=rate_prior),
        decaying_velocity(1e-4, retention=0.93, rate_prior=rate_prior),
        decaying_velocity(1e-3, retention=0.9, rate_prior=5 * rate_prior),
        decaying_velocity(5e-3, retention=0.9, rate_prior=25 * rate_prior),
    )
    regular = oscillators(periods)
    irregular = alike(regular)
    irregular = irregular._replace(acceleration=1e-2 * irregular.rate_prior[:, 0])
    return join(
        decaying_velocity(0.0, rate_prior=rate_prior),
        decaying,
        regular,
        irregular,
        shares=(0.3, 0.2, 0.4, 0.1),
    )
