"""The moving average of matrix logarithms."""

from __future__ import annotations

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Numbers
from kgmrf.geometry import spd
from kgmrf.trackers._baseline import BaselineTracker, gain_over


class LogEuclideanEMA(BaselineTracker):
    """log M <- (1 - gain) log M + gain log C; needs observations of full rank.

    gain: weight of a new observation after one unit of time.

    >>> tracker = LogEuclideanEMA(gain=0.5)
    >>> _ = tracker.update([[1.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[4.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.0
    """

    _takes_logarithms = True

    def __init__(
        self,
        d: int | None = None,
        *,
        gain: float = 0.1,
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
        time_unit: float | None = None,
    ) -> None:
        super().__init__(d, "covariance", n_samples, on_invalid, time_unit)
        self.gain = _check.in_range(gain, "gain", 0.0, 1.0)

    def _correct(
        self, arrays: dict[str, Numbers], seen: Numbers, dt: Numbers
    ) -> dict[str, Numbers]:
        gain = gain_over(self.gain, dt)
        return {"matrix": spd.exp((1.0 - gain) * spd.log(arrays["matrix"]) + gain * spd.log(seen))}
