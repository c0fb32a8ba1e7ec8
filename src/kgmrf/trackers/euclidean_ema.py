"""The moving average that everybody uses."""

from __future__ import annotations

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Numbers
from kgmrf.geometry import so
from kgmrf.trackers._baseline import BaselineTracker, Follows, gain_over


class EuclideanEMA(BaselineTracker):
    """M <- (1 - gain) M + gain C; rotations are projected back to the group.

    gain: weight of a new observation after one unit of time; a half-life h is 1 - 2**(-1/h).
    kind: "covariance" or "rotation" (``follows``, the older word, is accepted too).

    >>> tracker = EuclideanEMA(gain=0.2)
    >>> _ = tracker.update([[2.0, 0.0], [0.0, 1.0]])
    >>> tracker.update([[3.0, 0.0], [0.0, 1.0]]).covariance[0, 0].round(3).item()
    2.2
    """

    def __init__(
        self,
        d: int | None = None,
        *,
        gain: float = 0.1,
        kind: Follows = "covariance",
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
        follows: Follows | None = None,
        time_unit: float | None = None,
    ) -> None:
        super().__init__(d, follows or kind, n_samples, on_invalid, time_unit)
        self.gain = _check.in_range(gain, "gain", 0.0, 1.0)

    def _correct(
        self, arrays: dict[str, Numbers], seen: Numbers, dt: Numbers
    ) -> dict[str, Numbers]:
        gain = gain_over(self.gain, dt)
        blend = (1.0 - gain) * arrays["matrix"] + gain * seen
        return {"matrix": so.project(blend) if self.kind == "rotation" else blend}
