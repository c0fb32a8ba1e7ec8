"""Where the box goes: centre and log size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kgmrf.trackers.vector import VectorTracker

__all__ = ["BoxMotion", "MotionSettings"]

Vector = NDArray[np.float64]
Use: TypeAlias = Literal["always", "coast", "never"]


@dataclass(frozen=True)
class MotionSettings:
    """What is expected of a box from frame to frame, as shares of its size sqrt(width height).

    Parameters
    ----------
    centre_noise : float, default 0.02
        Error of a match's centre.
    wander : float, default 0.1
        Unsteady motion of the centre.
    push : float, default 0.02
        Change of the velocity.
    retention : float, default 0.85
        Share of the velocity kept per frame: boxes turn back soon.
    size_noise : float, default 0.02
        Error of a match's log size.
    aspect_noise : float, default 0.05
        Error of a match's log aspect.
    size_wander : float, default 0.02
        True change of both.
    memory : float, default 0.95
        Share of the old surprise kept when a new one comes.
    """

    centre_noise: float = 0.02
    wander: float = 0.1
    push: float = 0.02
    retention: float = 0.85
    size_noise: float = 0.02
    aspect_noise: float = 0.05
    size_wander: float = 0.02
    memory: float = 0.95


class BoxMotion:
    """The centre (2,) in pixels and the log size (2,) of a box: one `VectorTracker`.

    Parameters
    ----------
    centre : Vector
        Centre ``(2,)`` at the start, pixels.
    log_size : Vector
        Logarithms ``(2,)`` of width and height at the start.
    use : Use, default "coast"
        When the velocity of the centre enters the prediction: "always", only to "coast" while
        nothing is measured, or "never".
    settings : MotionSettings, default None
        Expected motion; None takes the defaults of `MotionSettings`.

    Examples
    --------
    >>> start = np.zeros(2), np.log([20.0, 20.0])
    >>> motion = BoxMotion(*start, use="always", settings=MotionSettings(retention=1.0))
    >>> for t in range(1, 40):
    ...     _, log_size = motion.predict()
    ...     motion.correct(np.array([2.0 * t, 0.0]), log_size)
    >>> motion.predict()[0].round(2).tolist()
    [80.0, 0.0]
    """

    def __init__(
        self,
        centre: Vector,
        log_size: Vector,
        *,
        use: Use = "coast",
        settings: MotionSettings | None = None,
    ) -> None:
        if use not in ("always", "coast", "never"):
            raise ValueError(f'use the velocity "always", to "coast" or "never", not {use!r}')
        self.use = use
        self.settings = s = settings or MotionSettings()
        scale = float(np.exp(np.mean(log_size)))
        same, other = np.full((2, 2), 0.5), np.array([[0.5, -0.5], [-0.5, 0.5]])
        noise = np.zeros((4, 4))
        self._noise = (s.centre_noise * scale) ** 2
        noise[:2, :2] = self._noise * np.eye(2)
        noise[2:, 2:] = s.size_noise**2 * same + s.aspect_noise**2 * other
        push = 0.0 if use == "never" else (s.push * scale) ** 2
        self._box = VectorTracker(
            4,
            noise_covariance=noise,
            position_noise=np.repeat([(s.wander * scale) ** 2, s.size_wander**2], 2),
            acceleration=np.repeat([push, 0.0], 2),
            rate_prior=np.repeat([max(push, 1e-12), 1e-12], 2),
            retention=s.retention,
            time_unit=1.0,
        )
        self._surprise = 1.0
        self._lost = False
        self._take(np.concatenate([centre, log_size]).astype(float))

    def predict(self) -> tuple[Vector, Vector]:
        """Centre and log size expected in the next frame; the state stays as it is."""
        moving = self.use == "always" or (self.use == "coast" and self._lost)
        return (self._next if moving else self.centre), self.log_size

    @property
    def spread(self) -> float:
        """Root mean square error of `predict` per axis, in units of sqrt(width height).

        The filter's own innovation covariance, scaled by how surprised it was lately.
        """
        variance = self._variance * self._surprise
        if self.use == "coast" and not self._lost:
            left_out = self._next - self.centre
            variance += 0.5 * float(left_out @ left_out)
        return math.sqrt(variance) / self._scale

    def correct(self, centre: Vector, log_size: Vector) -> None:
        """Take in the box found in the next frame."""
        # errors beyond a box are re-detections, not motion: they must not blow the gate open
        limit = self._scale**2 / self._variance
        self._lost = False
        error = centre - self._next
        nis = 0.5 * float(error @ error) / self._variance  # both axes alike
        self._take(np.concatenate([centre, log_size]))
        self._surprise += (1 - self.settings.memory) * (min(nis, limit) - self._surprise)

    def coast(self) -> None:
        """Go on without a measurement: drift with a velocity that decays, ever less certain."""
        self._lost = True
        self._take(None)

    def _take(self, box: Vector | None) -> None:
        found = self._box.update(box, assume_valid=True).position
        self.centre: Vector = found[:2]
        self.log_size: Vector = found[2:]
        self._scale = math.exp(0.5 * float(self.log_size[0] + self.log_size[1]))
        ahead = self._box.forecast(1)
        self._next: Vector = ahead.position[:2]
        self._variance = float(ahead.position_covariance[0, 0]) + self._noise
