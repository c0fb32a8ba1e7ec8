"""Estimators for scikit-learn: `estimator`, `detector`, `recentring`."""

from kgmrf.sklearn.detector import KineticDetector
from kgmrf.sklearn.estimator import KineticCovariance, KineticTransformer
from kgmrf.sklearn.recentring import OnlineRecenter

__all__ = ["KineticCovariance", "KineticDetector", "KineticTransformer", "OnlineRecenter"]
