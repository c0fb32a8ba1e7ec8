"""Where the box goes: centre with a damped velocity, log size without."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoxMotion"]

Vector = NDArray[np.float64]
Use: TypeAlias = Literal["always", "coast", "never"]


class BoxMotion:
    """x <- x + v, then x <- x + a e, v <- rho (v + b e): a steady-state constant-velocity filter.

    Works on the centre (2,) in pixels and the log size (2,). Besides the state it learns
    ``spread``, the usual error of its own predictions as a share of the box size: the search
    prefers candidates within it. ``use`` says when the velocity enters the prediction:
    ``"always"``, only to ``"coast"`` while nothing is measured, or ``"never"``.

    >>> start = np.zeros(2), np.log([20.0, 20.0])
    >>> motion = BoxMotion(*start, use="always", velocity_gain=0.5, retention=1.0)
    >>> for t in range(1, 20):
    ...     centre, log_size = motion.predict()
    ...     motion.correct(np.array([2.0 * t, 0.0]), log_size)
    >>> motion.predict()[0].round(3).tolist()
    [40.0, 0.0]
    """

    def __init__(
        self,
        centre: Vector,
        log_size: Vector,
        *,
        use: Use = "coast",
        position_gain: float = 1.0,
        velocity_gain: float = 0.4,
        retention: float = 0.9,
        coasting_retention: float = 0.8,
        spread: float = 0.15,
        spread_gain: float = 0.05,
    ) -> None:
        if use not in ("always", "coast", "never"):
            raise ValueError(f'use the velocity "always", to "coast" or "never", not {use!r}')
        self.centre = np.array(centre, dtype=np.float64)
        self.log_size = np.array(log_size, dtype=np.float64)
        self.velocity = np.zeros(2)
        self.use = use
        self.position_gain = position_gain
        self.velocity_gain = velocity_gain
        self.retention = retention
        self.coasting_retention = coasting_retention
        self.spread_gain = spread_gain
        self._variance = spread**2
        self._coasting = False

    @property
    def spread(self) -> float:
        """Root mean square prediction error per axis, in units of sqrt(width height)."""
        return float(np.sqrt(self._variance))

    def predict(self) -> tuple[Vector, Vector]:
        """Centre and log size expected in the next frame; the state stays as it is."""
        moving = self.use == "always" or (self.use == "coast" and self._coasting)
        return self.centre + self.velocity * moving, self.log_size.copy()

    def correct(self, centre: Vector, log_size: Vector) -> None:
        """Take in the box found in the next frame."""
        predicted, _ = self.predict()
        error = centre - predicted
        scale = np.exp(self.log_size.mean())
        # errors above one box are re-detections, not motion: they must not blow the gate open
        squared = min(float(error @ error) / (2 * scale**2), 1.0)
        self._variance += self.spread_gain * (squared - self._variance)
        surprise = centre - self.centre - self.velocity
        self.velocity = self.retention * (self.velocity + self.velocity_gain * surprise)
        self.centre = predicted + self.position_gain * error
        self.log_size = np.array(log_size, dtype=np.float64)
        self._coasting = False

    def coast(self) -> None:
        """Go on without a measurement: drift with the old velocity, then let it decay."""
        self._coasting = True
        self.centre, _ = self.predict()
        self.velocity = self.velocity * self.coasting_retention
