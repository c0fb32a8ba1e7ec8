"""What robotics expects of an estimated orientation: quaternions, velocities as vectors, scipy.

All of it is made from the fields ``rotation`` and ``velocity``, so every tracker of rotations has
it. Quaternions are (x, y, z, w), as in ROS and scipy; their sign is the one with w >= 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._types import Numbers

if TYPE_CHECKING:
    from scipy.spatial.transform import Rotation


class Field:
    """A field of an estimate or result by its own name, made when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, fields: Any, owner: type | None = None) -> Numbers:
        if fields is None:
            return self  # type: ignore[return-value]
        try:
            return fields._values[self._name]
        except KeyError:
            return fields._derived(self._name)


class RotationFields:
    """Views of the fields ``rotation`` (..., 3, 3) and ``velocity`` of an estimate or result.

    >>> from kgmrf import RotationTracker
    >>> estimate = RotationTracker().update(np.eye(3))
    >>> estimate.quaternion
    array([0., 0., 0., 1.])
    >>> estimate.as_quat(scalar_first=True).shape, estimate.angular_velocity.shape
    ((4,), (3,))
    """

    rotation = Field()
    """Estimate of the rotation, (..., d, d)."""
    velocity = Field()
    """Angular velocity per unit time in the body frame, skew, (..., d, d); of a vector (..., d)."""
    noise_std = Field()
    """Standard deviation of the observed rotations, as given or learned, radians, (...)."""
    status = Field()
    """What became of the observation: 0 none, 1 taken in, 3 outlier, 4 new start, 5 stale."""
    outlier_probability = Field()
    """Probability that the observation was an outlier, as known at its time; NaN without one."""

    @property
    def quaternion(self) -> Numbers:
        """The rotation as unit quaternions (x, y, z, w), (..., 4)."""
        return self.as_quat()

    def as_quat(self, *, scalar_first: bool = False) -> Numbers:
        """The rotation as unit quaternions (x, y, z, w), or (w, x, y, z); NaN where unknown."""
        matrices = self.rotation
        known = ~np.isnan(matrices).any(axis=(-2, -1))
        found = np.full((*matrices.shape[:-2], 4), np.nan)
        if known.any():
            from scipy.spatial.transform import Rotation  # slow to import

            found[known] = Rotation.from_matrix(matrices[known]).as_quat(canonical=True)
        return np.roll(found, 1, axis=-1) if scalar_first else found

    def as_rotation(self) -> Rotation:
        """The rotation as scipy's ``Rotation``; frames before the first observation raise."""
        from scipy.spatial.transform import Rotation

        matrices = self.rotation
        if np.isnan(matrices).any():
            raise ValueError(
                "some frames come before the first observation and have no rotation; drop them"
            )
        return Rotation.from_matrix(matrices)

    @property
    def angular_velocity(self) -> Numbers:
        """Angular velocity in the body frame, rad per unit of time, (..., 3)."""
        w = self.velocity
        return np.stack([w[..., 2, 1], w[..., 0, 2], w[..., 1, 0]], axis=-1)

    @property
    def angular_velocity_world(self) -> Numbers:
        """Angular velocity in the world frame, R times that of the body, (..., 3)."""
        turned = self.rotation @ self.angular_velocity[..., None]
        return np.asarray(turned[..., 0])
