"""The error-state Kalman filter on SO(3)."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.gains import InformationGains, transition
from kgmrf.geometry import so
from kgmrf.smoothing.rotations import Turning, correct, predict
from kgmrf.trackers._baseline import Arrays, BaselineTracker, Common


class ErrorStateKalman(BaselineTracker):
    """Constant velocity with white acceleration on the group: e = Log(R^T Z), R <- R Exp(K1 e).

    The Lie-group extended Kalman filter of robotics: the error (angle, velocity) lives in the body
    frame with a dense 6 x 6 covariance (:mod:`kgmrf.smoothing.rotations`). All settings are fixed.

    noise_std: of the observed rotations, radians. acceleration: density of the white acceleration,
    rad^2 per unit time^3. rate_prior: variance of a velocity component at the start.

    >>> tracker = ErrorStateKalman(noise_std=0.01)
    >>> turns = so.exp(so.hat(np.linspace(0, 1, 50)[:, None] * np.asarray([0.0, 0.0, 1.0])))
    >>> tracker.filter(turns).velocity[-1, 1, 0].round(3).item()
    0.02
    """

    kinds = ("rotation",)

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float = 0.05,
        acceleration: float = 1e-4,
        rate_prior: float = 1e-2,
        **options: Unpack[Common],
    ) -> None:
        super().__init__(d, **options)
        if d != 3:
            raise ValueError(f"the error-state filter is that of space: d must be 3, got {d!r}")
        self.noise_std = _check.in_range(noise_std, "noise_std", 0.0, np.inf, open_low=True)
        self.acceleration = _check.in_range(acceleration, "acceleration", 0.0, np.inf)
        self.rate_prior = _check.in_range(rate_prior, "rate_prior", 0.0, np.inf, open_low=True)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        prior = np.diag(np.repeat([self.noise_std**2, self.rate_prior], 3))
        cov = np.broadcast_to(prior, (*shape[:-2], 6, 6)).copy()
        return {"matrix": np.full(shape, np.nan), "rate": np.zeros(shape), "cov": cov}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        law = InformationGains(acceleration=self.acceleration)
        return _arrays(predict(_state(arrays), transition(law, dt[..., 0, 0]))[0])

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        return _arrays(correct(_state(arrays), seen, self.noise_std**2))

    def _velocity(self, arrays: Arrays) -> Numbers:
        return arrays["rate"]


def _state(arrays: Arrays) -> Turning:
    return Turning(arrays["matrix"], so.vee(arrays["rate"]), arrays["cov"])


def _arrays(state: Turning) -> Arrays:
    return {"matrix": state.rotation, "rate": so.hat(state.velocity), "cov": state.covariance}
