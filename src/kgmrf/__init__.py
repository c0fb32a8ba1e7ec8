"""Track covariance matrices and rotations as they move: online, second-order, on the manifold.

>>> from kgmrf import KGMRF, simulate
>>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
>>> KGMRF(n_samples=8).filter(scene.observations).covariance.shape
(400, 2, 2)
"""

from kgmrf import gains, geometry, metrics, simulate, theory, wishart
from kgmrf._check import ObservationError
from kgmrf.results import Estimate, Result
from kgmrf.trackers import (
    KGMRF,
    AlphaBeta,
    EuclideanEMA,
    HoldLast,
    LogEuclideanEMA,
    RiemannianEMA,
    RotationTracker,
    TangentKalman,
    Tracker,
    load,
)

__version__ = "0.1.0"

__all__ = [
    "KGMRF",
    "AlphaBeta",
    "Estimate",
    "EuclideanEMA",
    "HoldLast",
    "LogEuclideanEMA",
    "ObservationError",
    "Result",
    "RiemannianEMA",
    "RotationTracker",
    "TangentKalman",
    "Tracker",
    "__version__",
    "gains",
    "geometry",
    "load",
    "metrics",
    "simulate",
    "theory",
    "wishart",
]
