"""Frames in, boxes out: visual tracking by region covariance.

Read in this order: `features` (what a pixel says), `regions` (covariances of rectangles),
`resample` and `cells` (a window as a map of SPD matrices), `appearance` and `motion` (what is
remembered), `tracker` (the search); then `videos`, `sequences`, `clip`, `evaluation`, `rivals` and
`figures`.
"""

from kgmrf.vision.appearance import AppearanceModel, ExponentialAverage
from kgmrf.vision.cells import jbld
from kgmrf.vision.features import FEATURES, feature_planes, register_feature
from kgmrf.vision.motion import BoxMotion, MotionSettings
from kgmrf.vision.regions import integral_covariances, integral_planes, region_covariance
from kgmrf.vision.tracker import RegionCovarianceTracker, SearchSettings

__all__ = [
    "FEATURES",
    "AppearanceModel",
    "BoxMotion",
    "ExponentialAverage",
    "MotionSettings",
    "RegionCovarianceTracker",
    "SearchSettings",
    "feature_planes",
    "integral_covariances",
    "integral_planes",
    "jbld",
    "region_covariance",
    "register_feature",
]
