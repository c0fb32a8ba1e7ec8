"""Track covariance matrices and rotations as they move: online, second-order, on the manifold.

>>> from kgmrf import KGMRF, simulate
>>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
>>> KGMRF(n_samples=8).filter(scene.observations).covariance.shape
(400, 2, 2)
"""

import warnings
from importlib import import_module
from typing import Any

from kgmrf import _deprecated, geometry, learn, metrics, paper, simulate, theory
from kgmrf._check import ObservationError
from kgmrf.bank import TrackerBank
from kgmrf.baselines import (
    AlphaBeta,
    ErrorStateKalman,
    EuclideanEMA,
    HoldLast,
    IteratedEMA,
    LogEuclideanEMA,
    OneEuro,
    RiemannianEMA,
    ScaledEMA,
    TangentKalman,
)
from kgmrf.diagnosis import diagnose
from kgmrf.model import gains, wishart
from kgmrf.results import Estimate, Result
from kgmrf.trackers import (
    KGMRF,
    KineticGaussian,
    PoseTracker,
    ProductTracker,
    RotationTracker,
    Tracker,
    VectorTracker,
    load,
)

__version__ = "0.1.0"

_deprecated.install()

_OPTIONAL = {
    "KineticCovariance": "kgmrf.sklearn.estimator",
    "KineticDetector": "kgmrf.sklearn.detector",
    "KineticTransformer": "kgmrf.sklearn.estimator",
    "OnlineRecenter": "kgmrf.sklearn.recentring",
    "track_array": "kgmrf.tables",
    "track_table": "kgmrf.tables",
}
"""Names whose packages (scikit-learn, pandas) are loaded when they are first asked for; those that
need scikit-learn are not in ``__all__``, so that a star import works without it."""


def warmup() -> None:
    """Does nothing: the loops are compiled when kgmrf is built. It goes in the next release."""
    warnings.warn(
        "kgmrf.warmup does nothing any more, for loops are compiled when kgmrf is built: drop it",
        DeprecationWarning,
        stacklevel=2,
    )


def __getattr__(name: str) -> Any:
    if name not in _OPTIONAL:
        raise AttributeError(f"module 'kgmrf' has no attribute {name!r}")
    return getattr(import_module(_OPTIONAL[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OPTIONAL})


__all__ = [
    "KGMRF",
    "AlphaBeta",
    "ErrorStateKalman",
    "Estimate",
    "EuclideanEMA",
    "HoldLast",
    "IteratedEMA",
    "KineticGaussian",
    "LogEuclideanEMA",
    "ObservationError",
    "OneEuro",
    "PoseTracker",
    "ProductTracker",
    "Result",
    "RiemannianEMA",
    "RotationTracker",
    "ScaledEMA",
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
    "paper",
    "simulate",
    "theory",
    "track_array",
    "track_table",
    "warmup",
    "wishart",
]
