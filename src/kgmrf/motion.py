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


def compiled_models(models: MotionModels) -> Numbers:
    """The models as one table ``(K, 12)`` for the compiled loops.

    >>> compiled_models(decaying_velocity(0.0)).shape
    (1, 12)
    """
    columns = (
        models.frequency,
        models.frequency_std[:, None],
        models.rate_prior,
        -np.log(models.retention)[:, None],
        models.acceleration[:, None],
        models.jitter[:, None],
        models.frequency_noise[:, None],
        (models.log_weight - np.logaddexp.reduce(models.log_weight))[:, None],
    )
    return np.ascontiguousarray(np.concatenate(columns, axis=1), dtype=float)
