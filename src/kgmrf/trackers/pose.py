"""Orientation and position under one clock."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._time import stamps, unit_of
from kgmrf._types import Numbers
from kgmrf.trackers.product import ProductResult, ProductTracker
from kgmrf.trackers.rotation import RotationTracker
from kgmrf.trackers.vector import VectorTracker


class PoseTracker(ProductTracker):
    """Follow a pose: ``rotation`` by a `RotationTracker`, ``position`` by a `VectorTracker`.

    position_noise_std: standard deviation of the observed positions, in their unit.
    noise_std: of the observed rotations, radians; None learns it.
    acceleration: of the position, as its variance per unit of time over ``position_noise_std``
    squared.
    time_unit: the usual time between observations in units of ``times``; None takes it from the
    first eight intervals of ``filter``. Updates one by one count in this unit, or in 1.

    >>> import numpy as np
    >>> tracker = PoseTracker(position_noise_std=0.01)
    >>> estimate = tracker.update({"rotation": np.eye(3), "position": [1.0, 2.0, 3.0]})
    >>> estimate.rotation.quaternion, estimate.position.position
    (array([0., 0., 0., 1.]), array([1., 2., 3.]))
    """

    def __init__(
        self,
        *,
        position_noise_std: float = 0.01,
        noise_std: float | None = None,
        acceleration: float = 0.1,
        time_unit: float | None = None,
    ) -> None:
        _check.in_range(position_noise_std, "position_noise_std", 0.0, np.inf, open_low=True)
        _check.in_range(acceleration, "acceleration", 0.0, np.inf)
        self.position_noise_std, self.noise_std = position_noise_std, noise_std
        self.acceleration, self.time_unit = acceleration, time_unit
        super().__init__(self._parts(1.0 if time_unit is None else float(time_unit)))

    def _parts(self, unit: float) -> dict[str, Any]:
        variance = float(self.position_noise_std) ** 2
        return {
            "rotation": RotationTracker(noise_std=self.noise_std, time_unit=self.time_unit),
            "position": VectorTracker(
                3,
                noise_std=self.position_noise_std,
                acceleration=self.acceleration * variance / unit**3,
                rate_prior=max(self.acceleration, 1.0) * variance / unit**2,
            ),
        }

    def filter(  # type: ignore[override]
        self, sequence: Any, *, times: Any = None, mask: Any = None, **by_component: Any
    ) -> ProductResult:
        """Run over rotations ``(T, 3, 3)`` and positions ``(T, 3)``, given by name.

        times: ``(T,)`` stamps in any unit, or dates; mask: ``(T,)`` for both, or by name.
        """
        times = stamps(times)
        if times is not None and self.time_unit is None and self._now is None:
            self.time_unit = unit_of(np.diff(np.asarray(times, dtype=float)))
            self.components = self._parts(self.time_unit)
        return super().filter(sequence, times=times, mask=mask, **by_component)

    def settings(self) -> dict[str, Any]:
        """The arguments that build this tracker anew."""
        names = ("position_noise_std", "noise_std", "acceleration", "time_unit")
        return {name: getattr(self, name) for name in names}

    def smooth(
        self, sequence: Any, *, times: Any = None, mask: Any = None, lag: int | None = None
    ) -> ProductResult:
        """Both parts looked back at, as far as they can: the rotation; the position is filtered."""
        fresh = type(self)(**self.settings())
        whole = fresh.filter(sequence, times=times, mask=mask)
        turned: Numbers = sequence["rotation"]
        rotation = RotationTracker(noise_std=self.noise_std, time_unit=self.time_unit).smooth(
            turned, times=times, mask=mask, lag=lag
        )
        return ProductResult({"rotation": rotation, "position": whole["position"]})
