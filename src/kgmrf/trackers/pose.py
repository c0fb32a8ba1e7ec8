"""Orientation and position under one clock."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError, OnInvalid
from kgmrf.trackers.product import ProductEstimate, ProductResult, ProductTracker
from kgmrf.trackers.rotation import RotationTracker
from kgmrf.trackers.vector import VectorTracker


class PoseTracker(ProductTracker):
    """Follow a pose: ``rotation`` by a `RotationTracker`, ``position`` by a `VectorTracker`.

    Parameters
    ----------
    position_noise_std : float, default 0.01
        Standard deviation of the observed positions, in their unit.
    noise_std : float, default None
        Of the observed rotations, radians; None learns it.
    acceleration : float, default 0.1
        Of the position, as its variance per unit of time over ``position_noise_std`` squared.
    time_unit : float, default None
        The usual time between observations in units of ``times``, as for every tracker; None takes
        the median of the first eight intervals.
    gyroscope : bool, default None
        Whether angular rates are measured too, as in `RotationTracker`.
    on_invalid : {"raise", "skip", "repair"}, default "raise"
        What to do with a matrix that is no rotation, as in `RotationTracker`.

    Examples
    --------
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
        gyroscope: bool | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        _check.in_range(position_noise_std, "position_noise_std", 0.0, np.inf, open_low=True)
        _check.in_range(acceleration, "acceleration", 0.0, np.inf)
        self.position_noise_std, self.noise_std = position_noise_std, noise_std
        self.acceleration = acceleration
        variance = float(position_noise_std) ** 2
        place = VectorTracker(
            3,
            noise_std=position_noise_std,
            acceleration=acceleration * variance,
            rate_prior=max(acceleration, 1.0) * variance,
            time_unit=time_unit,
            on_invalid=on_invalid,
        )
        turn = RotationTracker(
            noise_std=noise_std, time_unit=time_unit, gyroscope=gyroscope, on_invalid=on_invalid
        )
        super().__init__({"rotation": turn, "position": place})
        self.time_unit, self.on_invalid = time_unit, on_invalid

    @property
    def gyroscope(self) -> bool | None:
        """Whether the rotation has measured rates; None before the first step."""
        turn: Any = self.components["rotation"]
        found: bool | None = turn.gyroscope
        return found

    def update(  # type: ignore[override]
        self, observation: Any, *, dt: Any = 1.0, rate: Any = None, rate_std: float | None = None
    ) -> ProductEstimate:
        """Take in one step; see `ProductTracker.update`, and `RotationTracker.update` for rates."""
        table, own = self._table(observation, "observation"), _rated(rate=rate, rate_std=rate_std)
        return ProductEstimate(
            self._each(lambda name, part: part.update(table.get(name), dt=dt, **own.get(name, {})))
        )

    def filter(  # type: ignore[override]
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        rates: Any = None,
        rate_std: float | None = None,
    ) -> ProductResult:
        """Run over whole sequences; see `ProductTracker.filter`.

        rates, rate_std: of the rotation, as in `RotationTracker.filter`.
        """
        own = _rated(rates=rates, rate_std=rate_std)
        return self._over("filter", sequence, mask, own, times=times)

    def smooth(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        lag: int | None = None,
        rates: Any = None,
        rate_std: float | None = None,
    ) -> ProductResult:
        """Both parts with what came after taken into account; the tracker is not changed.

        Rotations ``(T, 3, 3)`` and positions ``(T, 3)`` by name; mask: ``(T,)`` for both, or by
        name; lag: how many later frames count, default all; rates: as for `filter`.
        """
        table = self._table(sequence, "sequence")
        if set(table) != set(self.components):
            raise ObservationError(f"give rotation and position, got {', '.join(table) or 'none'}")
        own = _rated(rates=rates, rate_std=rate_std)
        return self._over("smooth", table, mask, own, times=times, lag=lag)


def _rated(**given: Any) -> dict[str, Any]:
    """Options of the rotation alone, if rates were given."""
    return (
        {}
        if all(given[name] is None for name in given if name != "rate_std")
        else {"rotation": given}
    )
