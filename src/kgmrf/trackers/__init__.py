"""Who remembers: one tracker, one file, one contract (see :mod:`kgmrf.trackers._contract`)."""

from kgmrf import _deprecated
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._files import load
from kgmrf.trackers.gaussian import KineticGaussian
from kgmrf.trackers.kgmrf import KGMRF
from kgmrf.trackers.pose import PoseTracker
from kgmrf.trackers.product import ProductTracker
from kgmrf.trackers.rotation import RotationTracker
from kgmrf.trackers.vector import VectorTracker

__all__ = [
    "KGMRF",
    "KineticGaussian",
    "PoseTracker",
    "ProductTracker",
    "RotationTracker",
    "Tracker",
    "VectorTracker",
    "load",
]

_BASELINES = (
    *("AlphaBeta", "ErrorStateKalman", "EuclideanEMA", "HoldLast", "IteratedEMA"),
    *("LogEuclideanEMA", "OneEuro", "RiemannianEMA", "ScaledEMA", "TangentKalman"),
)
__getattr__ = _deprecated.names(__name__, {name: ("kgmrf.baselines", name) for name in _BASELINES})
