"""Images in, boxes or a steady video out.

Boxes, in this order: `regions` (covariances of rectangles and cells), `resample` and `cells` (a
window as a map of SPD matrices), `motion` (where a box goes), `search`, `confidence`, `measurement`
(what finds a box), of which `appearance` (covariances) and `external` (other trackers) are two,
`tracker` (one box), `crowd` (several), `annotate`. Steady video: `camera` (motion of the camera),
`steady` (the warp). Images come from `videos`, or drawn from `scenery` and `clip`.
"""

from kgmrf.vision.crowd import BoxesTracker
from kgmrf.vision.motion import BoxMotion, MotionSettings
from kgmrf.vision.regions import jbld, region_covariance
from kgmrf.vision.search import SearchSettings
from kgmrf.vision.steady import Stabilizer
from kgmrf.vision.tracker import BoxTracker, RegionCovarianceTracker

__all__ = [
    "BoxMotion",
    "BoxTracker",
    "BoxesTracker",
    "MotionSettings",
    "RegionCovarianceTracker",
    "SearchSettings",
    "Stabilizer",
    "jbld",
    "region_covariance",
]
