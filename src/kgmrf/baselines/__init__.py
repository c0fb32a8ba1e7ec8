"""What others use, under the same contract: averages, filters, and those of risk models."""

from kgmrf.baselines._contract import BaselineTracker
from kgmrf.baselines.filters import (
    AlphaBeta,
    ErrorStateKalman,
    EuclideanEMA,
    HoldLast,
    LogEuclideanEMA,
    OneEuro,
    RiemannianEMA,
    TangentKalman,
)
from kgmrf.baselines.risk_averages import IteratedEMA, ScaledEMA

__all__ = [
    "AlphaBeta",
    "BaselineTracker",
    "ErrorStateKalman",
    "EuclideanEMA",
    "HoldLast",
    "IteratedEMA",
    "LogEuclideanEMA",
    "OneEuro",
    "RiemannianEMA",
    "ScaledEMA",
    "TangentKalman",
]
