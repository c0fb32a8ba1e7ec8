"""The moving average along geodesics."""

from __future__ import annotations

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Numbers
from kgmrf.geometry import so, spd
from kgmrf.trackers._baseline import BaselineTracker, Follows, gain_over


class RiemannianEMA(BaselineTracker):
    """M <- the point at ``gain`` of the geodesic from M to C (affine-invariant, or on SO(d)).

    gain: weight of a new observation after one unit of time; needs covariances of full rank.
    kind: "covariance" or "rotation" (``follows``, the older word, is accepted too).

    >>> tracker = RiemannianEMA(gain=0.5)
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
        here, gain = arrays["matrix"], gain_over(self.gain, dt)
        if self.kind == "rotation":
            return {"matrix": here @ so.exp(gain * so.log(here.swapaxes(-1, -2) @ seen))}
        return {"matrix": spd.geodesic(here, seen, gain[..., 0, 0], metric="affine_invariant")}
