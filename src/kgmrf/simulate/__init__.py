"""Truth and observations from one random generator.

>>> from kgmrf import simulate
>>> scene = simulate.ellipse(0.08, observed=simulate.occlusions(), rng=0)
>>> scene.observations.shape, int((~scene.observed).sum())
((400, 2, 2), 90)
"""

from kgmrf.simulate.observe import bursts, iid, occlusions
from kgmrf.simulate.scenes import (
    CovarianceScene,
    RotationScene,
    camera_shake,
    ellipse,
    rotating_covariance,
    rotating_frame,
    steady_camera,
)

__all__ = [
    "CovarianceScene",
    "RotationScene",
    "bursts",
    "camera_shake",
    "ellipse",
    "iid",
    "occlusions",
    "rotating_covariance",
    "rotating_frame",
    "steady_camera",
]
