"""A constant-velocity Kalman filter in one fixed tangent space."""

from __future__ import annotations

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Numbers
from kgmrf.geometry import so, spd
from kgmrf.trackers._baseline import BaselineTracker, Follows


class TangentKalman(BaselineTracker):
    """Constant-velocity Kalman filter on every entry of log C (or of Log R at the identity).

    position_noise, velocity_noise: variances that position and velocity gain per unit time.
    noise_std: standard deviation of an observed entry of the logarithm.
    prior_var: variance of position and velocity at the first observation.
    coast: keep predicting while there are no data (True) or freeze (False).
    kind: "covariance" or "rotation" (``follows``, the older word, is accepted too).

    All entries share one 2 x 2 uncertainty, because they share their noise.

    >>> tracker = TangentKalman()
    >>> _ = tracker.update([[1.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[1.0, 0.0], [0.0, 1.0]]).covariance.round(6)[0, 0].item()
    1.0
    """

    _takes_logarithms = True

    def __init__(
        self,
        d: int | None = None,
        *,
        position_noise: float = 0.0,
        velocity_noise: float = 0.005,
        noise_std: float = 0.1,
        prior_var: float = 0.01,
        coast: bool = True,
        kind: Follows = "covariance",
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
        follows: Follows | None = None,
        time_unit: float | None = None,
    ) -> None:
        super().__init__(d, follows or kind, n_samples, on_invalid, time_unit)
        self.position_noise = _check.in_range(position_noise, "position_noise", 0.0, np.inf)
        self.velocity_noise = _check.in_range(velocity_noise, "velocity_noise", 0.0, np.inf)
        self.noise_std = _check.in_range(noise_std, "noise_std", 0.0, np.inf, open_low=True)
        self.prior_var = _check.in_range(prior_var, "prior_var", 0.0, np.inf)
        self.coast = bool(coast)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> dict[str, Numbers]:
        spread = np.zeros((*shape[:-2], 3, 1, 1))
        spread[..., 0, :, :] = spread[..., 2, :, :] = self.prior_var
        return {"position": np.full(shape, np.nan), "rate": np.zeros(shape), "spread": spread}

    def _filler(self, array: Numbers) -> Numbers:
        return np.zeros_like(array)

    def _first(self, arrays: dict[str, Numbers], seen: Numbers) -> dict[str, Numbers]:
        return {**arrays, "position": self._log(seen)}

    def _predict(self, arrays: dict[str, Numbers], dt: Numbers) -> dict[str, Numbers]:
        p11, p12, p22 = (arrays["spread"][..., k, :, :] for k in range(3))
        p11 = p11 + 2.0 * dt * p12 + dt**2 * p22 + self.position_noise * dt
        p12 = p12 + dt * p22
        p22 = p22 + self.velocity_noise * dt
        spread = np.stack([p11, p12, p22], axis=-3)
        return {
            "position": arrays["position"] + dt * arrays["rate"],
            "rate": arrays["rate"],
            "spread": spread,
        }

    def _coast(
        self, arrays: dict[str, Numbers], predicted: dict[str, Numbers]
    ) -> dict[str, Numbers]:
        return predicted if self.coast else arrays

    def _correct(
        self, arrays: dict[str, Numbers], seen: Numbers, dt: Numbers
    ) -> dict[str, Numbers]:
        p11, p12, p22 = (arrays["spread"][..., k, :, :] for k in range(3))
        total = p11 + self.noise_std**2
        error = self._log(seen) - arrays["position"]
        left = self.noise_std**2 / total
        return {
            "position": arrays["position"] + p11 / total * error,
            "rate": arrays["rate"] + p12 / total * error,
            "spread": np.stack([left * p11, left * p12, p22 - p12**2 / total], axis=-3),
        }

    def _log(self, matrices: Numbers) -> Numbers:
        return so.log(matrices) if self.kind == "rotation" else spd.log(matrices)

    def _matrix(self, arrays: dict[str, Numbers]) -> Numbers:
        position = np.where(np.isnan(arrays["position"]), 0.0, arrays["position"])
        return so.exp(position) if self.kind == "rotation" else spd.exp(position)
