"""The classical alpha-beta filter."""

from __future__ import annotations

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Numbers
from kgmrf.geometry import so
from kgmrf.trackers._baseline import BaselineTracker, Follows


class AlphaBeta(BaselineTracker):
    """x <- x + dt v; r = z - x; x <- x + position_gain r; v <- retention v + velocity_gain r / dt.

    On covariances it works on the entries, and its estimate may leave the cone of positive
    definite matrices (its likelihood is NaN then). On rotations x is on the group, r = Log(x^T z)
    and the velocity is an angular one.
    kind: "covariance" or "rotation" (``follows``, the older word, is accepted too).

    >>> tracker = AlphaBeta(position_gain=0.4, velocity_gain=0.1)
    >>> _ = tracker.update([[2.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[3.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.4
    """

    _stays_positive = False

    def __init__(
        self,
        d: int | None = None,
        *,
        position_gain: float = 0.4,
        velocity_gain: float = 0.1,
        retention: float = 1.0,
        kind: Follows = "covariance",
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
        follows: Follows | None = None,
        time_unit: float | None = None,
    ) -> None:
        super().__init__(d, follows or kind, n_samples, on_invalid, time_unit)
        self.position_gain = _check.in_range(position_gain, "position_gain", 0.0, 2.0)
        self.velocity_gain = _check.in_range(velocity_gain, "velocity_gain", 0.0, 4.0)
        self.retention = _check.in_range(retention, "retention", 0.0, 1.0)

    def _fresh_arrays(self, shape: tuple[int, ...]) -> dict[str, Numbers]:
        return {"matrix": np.full(shape, np.nan), "rate": np.zeros(shape)}

    def _filler(self, array: Numbers) -> Numbers:
        return np.eye(array.shape[-1]) + np.zeros_like(array)

    def _predict(self, arrays: dict[str, Numbers], dt: Numbers) -> dict[str, Numbers]:
        here, rate = arrays["matrix"], arrays["rate"]
        if self.kind == "rotation":
            skew = 0.5 * (rate - rate.swapaxes(-1, -2))
            return {"matrix": here @ so.exp(dt * skew), "rate": skew}
        return {"matrix": here + dt * rate, "rate": rate}

    def _correct(
        self, arrays: dict[str, Numbers], seen: Numbers, dt: Numbers
    ) -> dict[str, Numbers]:
        here, rate = arrays["matrix"], self.retention * arrays["rate"]
        kick = self.velocity_gain / np.where(dt > 0, dt, np.inf)
        if self.kind == "rotation":
            error = so.log(here.swapaxes(-1, -2) @ seen)
            return {
                "matrix": here @ so.exp(self.position_gain * error),
                "rate": rate + kick * error,
            }
        error = seen - here
        return {"matrix": here + self.position_gain * error, "rate": rate + kick * error}

    def _velocity(self, arrays: dict[str, Numbers]) -> Numbers:
        return arrays["rate"] if self.kind == "rotation" else super()._velocity(arrays)
