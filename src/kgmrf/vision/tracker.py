"""Follow a box through a video: motion, size, occlusion and confidence around a measurement."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kgmrf._types import Numbers
from kgmrf.trackers._contract import Tracker
from kgmrf.vision.appearance import RegionCovariance
from kgmrf.vision.confidence import Confidence
from kgmrf.vision.external import External
from kgmrf.vision.measurement import Expected, Measurement
from kgmrf.vision.motion import BoxMotion, MotionSettings, Use
from kgmrf.vision.resample import as_image
from kgmrf.vision.search import SearchSettings

__all__ = ["BoxTracker", "RegionCovarianceTracker"]

Box = tuple[float, float, float, float]
DEFAULTS: tuple[Any, ...] = ("anchor+ema", 0.25, 0.02)
"""Of model, anchor_weight and model_gain."""


class BoxTracker:
    """argmin over boxes of sum_k w_k phi(JBLD(C_k, M_k)) / median + prior, frame after frame.

    That is the default measurement: the box is divided into about 36 square-ish cells; each is one
    SPD matrix (covariance, mean and slope of colour and absolute gradient).

    `BoxMotion` follows centre and log size; the search prefers places within what it says of its
    own error.

    After each frame: ``box``; ``confidence``, the probability that the box is on its target (IoU
    above .3; :mod:`kgmrf.vision.confidence`); ``score``, the cost of the match relative to the
    median of its window (0 like the target, 1 like its surroundings); ``lost`` and ``reacquired``.
    A target is lost where the confidence falls below one half or the score says so. While the score
    does, the box coasts and nothing is learned, until something scores about as well as the target
    usually did; while nothing does, the window grows. With another measurement the score is 1 -
    that of the measurement, and the confidence is not calibrated.

    Parameters
    ----------
    model : {"anchor+ema", "static"} or Tracker, default "anchor+ema"
        What the cells are compared with: "static" the first frame, "anchor+ema" the first frame
        mixed with a slow average, or the estimate of any covariance tracker of this library, mixed
        with the first frame; a given tracker is copied at ``init`` and stays untouched.
    anchor_weight : float, default 0.25
        Weight of the first frame in that mixture; it keeps the model from drifting away.
    model_gain : float, default 0.02
        Gain of the slow average of "anchor+ema".
    kinetics : Use, default "coast"
        When the velocity of the centre is used: to "coast" while the target is lost, "always" (the
        search starts where it points), or "never".
    settings : SearchSettings, default None
        Numbers of the search; None takes those of `SearchSettings`.
    motion : MotionSettings, default None
        Expected motion; None takes that of `MotionSettings`.
    measure : default None
        Another measurement in the place of the covariances: an object of OpenCV with the methods
        ``init``, ``update`` and ``getTrackingScore`` (`cv2.TrackerNano`, `cv2.TrackerVit`), or a
        callable ``measure(image, expected box) -> (box, score)``; see `External`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scene = rng.integers(0, 255, (60, 80, 3)).astype(np.uint8)
    >>> tracker = BoxTracker()
    >>> tracker.init(scene, (30, 20, 20, 16))
    >>> found, box = tracker.update(np.roll(scene, (2, 3), axis=(0, 1)))
    >>> found, [round(v) for v in box]
    (True, [33, 22, 20, 16])
    """

    def __init__(
        self,
        model: Literal["anchor+ema", "static"] | Tracker = "anchor+ema",
        *,
        anchor_weight: float = 0.25,
        model_gain: float = 0.02,
        kinetics: Use = "coast",
        settings: SearchSettings | None = None,
        motion: MotionSettings | None = None,
        measure: Any = None,
    ) -> None:
        self.settings = settings or SearchSettings()
        self.measure: Measurement
        if measure is None:
            self.measure = RegionCovariance(
                model, anchor_weight=anchor_weight, model_gain=model_gain, settings=self.settings
            )
        elif not isinstance(model, str) or (model, anchor_weight, model_gain) != DEFAULTS:
            raise ValueError(
                "model, anchor_weight and model_gain are settings of the covariances: "
                "leave them out where measure is given"
            )
        else:
            self.measure = External(measure)
        self.kinetics = kinetics
        self.motion = motion or MotionSettings()
        self._motion: BoxMotion | None = None

    # ------------------------------------------------------------------ state
    @property
    def box(self) -> Box:
        """Left, top, width, height of the present box; pixel k covers [k, k + 1)."""
        motion = self._started()
        # plain numbers: those of an array cost more than all of this
        width, height = np.exp(motion.log_size).tolist()
        x, y = self._near(motion.centre).tolist()
        return x - width / 2, y - height / 2, width, height

    @property
    def lost(self) -> bool:
        """Whether the target was not found in the last frame, or is not likely to be."""
        return not self._is_found

    def _started(self) -> BoxMotion:
        if self._motion is None:
            raise RuntimeError("call init(image, box) before asking for boxes")
        return self._motion

    # ------------------------------------------------------------------ verbs
    def init(self, image: ArrayLike, box: ArrayLike) -> None:
        """Learn the target from ``box`` (left, top, width, height) of the first frame."""
        pixels = as_image(image)
        x, y, width, height = (float(v) for v in np.asarray(box, dtype=np.float64).reshape(4))
        rows, cols = pixels.shape[:2]
        if not (np.isfinite([x, y, width, height]).all() and width >= 1 and height >= 1):
            raise ValueError(f"box {(x, y, width, height)} must be finite and at least one pixel")
        if x >= cols or y >= rows or x + width <= 0 or y + height <= 0:
            raise ValueError(f"box {(x, y, width, height)} lies outside the {cols} x {rows} image")
        self._channels = pixels.shape[2]
        self.score, self.reacquired = 0.0, False
        self._frames_lost = self._frames_unlike = 0
        self._is_found = True
        self._confidence, self.confidence = Confidence(), 1.0
        self._limits = np.array([cols, rows], dtype=np.float64)
        centre, extent = np.array([x + width / 2, y + height / 2]), np.array([width, height])
        motion = BoxMotion(centre, np.log(extent), use=self.kinetics, settings=self.motion)
        self.measure.start(pixels, centre, extent)
        self._motion = motion

    def update(self, image: ArrayLike) -> tuple[bool, Box]:
        """Find the target in the next frame: (found, box)."""
        return self.find(as_image(image))

    def find(self, pixels: NDArray[np.generic]) -> tuple[bool, Box]:
        """`update` with an image that :func:`kgmrf.vision.resample.as_image` has made."""
        motion, s = self._started(), self.settings
        if pixels.shape[2] != self._channels:
            raise ValueError(
                f"frame has {pixels.shape[2]} channels, the first one had {self._channels}"
            )
        self._limits = np.array([pixels.shape[1], pixels.shape[0]], dtype=np.float64)
        predicted, log_size = motion.predict()
        predicted, size = self._near(predicted), np.exp(log_size)
        scale = math.sqrt(float(size[0]) * float(size[1]))
        reach = min(s.reach * s.reach_growth**self._frames_unlike, s.reach_limit) * scale
        variance = motion.spread**2 + s.prior_floor**2
        seen = self.measure.look(pixels, Expected(predicted, size, scale, variance, reach))
        self.score = seen.cost
        self.confidence = self._confidence.update(seen.log_odds)
        was_lost, self.reacquired = self.lost, False
        self._is_found = False
        # as a target is taken up again: much as it was, not the next best place
        near = seen.cost <= min(s.found_below, seen.usual + s.found_near)
        self._frames_unlike = 0 if near else self._frames_unlike + 1
        taken = near if self._frames_lost else seen.cost <= s.lost_above
        if not taken:
            self._frames_lost += 1
            motion.coast()
            self.measure.rest()
            return False, self.box
        # what the box does is left to the score, so that the confidence can be fitted to it
        self._is_found = self.confidence >= s.found_above
        self.reacquired = was_lost and self._is_found
        self._frames_lost = 0

        centre, size = self.measure.take()
        limited = np.minimum(np.maximum(size, 4.0), 1.5 * self._limits)
        motion.correct(centre, np.log(limited))
        return self._is_found, self.box

    # ------------------------------------------------------------------ parts
    def _near(self, centre: Numbers) -> Numbers:
        # a box that has left the image waits at its edge, where the target would come back
        return np.minimum(np.maximum(centre, 0.0), self._limits)


RegionCovarianceTracker = BoxTracker
"""The older name."""
