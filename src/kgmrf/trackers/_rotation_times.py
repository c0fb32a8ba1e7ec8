"""Rotations at any time: the state of a tracker at a stamp that is no step."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._time import stamps
from kgmrf.results import Estimate
from kgmrf.trackers._engine import EngineTracker


class AnyTime(EngineTracker):
    """A tracker that can be asked for its state at a stamp."""

    def state_at(self, time: Any) -> Estimate:
        """The estimate at a stamp from the last step on: a forecast; changes nothing.

        For times before it ask a `Result`: ``tracker.smooth(...).state_at(time)``.

        >>> import numpy as np
        >>> from kgmrf import RotationTracker
        >>> tracker = RotationTracker()
        >>> _ = tracker.filter(np.tile(np.eye(3), (5, 1, 1)), times=100.0 + np.arange(5))
        >>> tracker.state_at(104.5).time.item()
        104.5
        """
        now = self.now
        if now is None:
            raise ObservationError("nothing to show yet: call update(observation) first")
        stamp = np.asarray(stamps(np.asarray(time)), dtype=float)
        if stamp.ndim or not np.isfinite(stamp):
            raise ObservationError(f"time must be one finite stamp, got {time!r:.80}")
        if stamp < now:
            raise ObservationError(
                f"time {stamp:.15g} lies before the last step, {now:.15g}: a tracker knows its "
                "last step; ask a result, such as tracker.smooth(...).state_at(time)"
            )
        return self.forecast(float(stamp) - now)
