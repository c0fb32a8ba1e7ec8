"""The simplest baseline of all: believe the last observation."""

from __future__ import annotations

from kgmrf._check import OnInvalid
from kgmrf._types import Numbers
from kgmrf.trackers._baseline import BaselineTracker, Follows


class HoldLast(BaselineTracker):
    """M <- C: no memory, no noise reduction, no lag; freezes when data stop.

    kind: "covariance" or "rotation" (``follows``, the older word, is accepted too).

    >>> HoldLast().update([[2.0, 0.1], [0.1, 0.5]]).covariance[0, 0].item()
    2.0
    """

    def __init__(
        self,
        d: int | None = None,
        *,
        kind: Follows = "covariance",
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
        follows: Follows | None = None,
        time_unit: float | None = None,
    ) -> None:
        super().__init__(d, follows or kind, n_samples, on_invalid, time_unit)

    def _correct(
        self, arrays: dict[str, Numbers], seen: Numbers, dt: Numbers
    ) -> dict[str, Numbers]:
        return {"matrix": seen}
