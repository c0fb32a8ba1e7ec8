"""Track covariance matrices and rotations as they move: online, second-order, on the manifold.

>>> from kgmrf import KGMRF, simulate
>>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
>>> KGMRF(n_samples=8).filter(scene.observations).covariance.shape
(400, 2, 2)
"""

from kgmrf import gains, geometry, learn, metrics, simulate, theory, wishart
from kgmrf._check import ObservationError
from kgmrf.bank import TrackerBank
from kgmrf.diagnose import diagnose
from kgmrf.kernels.engine import warmup
from kgmrf.results import Estimate, Result
from kgmrf.trackers import (
    KGMRF,
    AlphaBeta,
    ErrorStateKalman,
    EuclideanEMA,
    HoldLast,
    KineticGaussian,
    LogEuclideanEMA,
    OneEuro,
    PoseTracker,
    ProductTracker,
    RiemannianEMA,
    RobustTracker,
    RotationTracker,
    TangentKalman,
    Tracker,
    VectorTracker,
    load,
)

__version__ = "0.1.0"

__all__ = [
    "KGMRF",
    "AlphaBeta",
    "ErrorStateKalman",
    "Estimate",
    "EuclideanEMA",
    "HoldLast",
    "KineticGaussian",
    "LogEuclideanEMA",
    "ObservationError",
    "OneEuro",
    "PoseTracker",
    "ProductTracker",
    "Result",
    "RiemannianEMA",
    "RobustTracker",
    "RotationTracker",
    "TangentKalman",
    "Tracker",
    "TrackerBank",
    "VectorTracker",
    "__version__",
    "diagnose",
    "gains",
    "geometry",
    "learn",
    "load",
    "metrics",
    "simulate",
    "theory",
    "warmup",
    "wishart",
]
