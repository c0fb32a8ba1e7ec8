"""Boxes and scores of other trackers as measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgmrf._types import Numbers
from kgmrf.vision.confidence import WEIGHTS, surprise
from kgmrf.vision.measurement import Expected, Sighting

__all__ = ["External"]

CERTAIN = 1e-3
"""Scores nearer to 0 or 1 count as this far from them: no score is a proof."""

METHODS = ("init", "update", "getTrackingScore")


class External:
    """A `Measurement` by another tracker: log odds = log(p / (1 - p)) + w surprise, cost 1 - p.

    ``measure`` is an object with OpenCV's methods ``init(image, box)``, ``update(image) -> (found,
    box)`` and ``getTrackingScore()``, or a callable ``measure(image, expected box) -> (box,
    score)``. Boxes are left, top, width, height; p, the score, lies in [0, 1] and is taken for a
    probability. w is the weight of the surprise in :mod:`kgmrf.vision.confidence`; it was fitted
    with region covariances. A box or a score that is None or NaN is no observation, and so is a box
    whose centre is beyond the reach of the search: a jump to something else.
    """

    def __init__(self, measure: Any) -> None:
        self._object = measure if all(hasattr(measure, name) for name in METHODS) else None
        if self._object is None and not callable(measure):
            raise ValueError(
                f"measure {type(measure).__name__} needs the methods {', '.join(METHODS)}, or must "
                "be a callable measure(image, expected box) -> (box, score)"
            )
        self._measure: Callable[..., Any] = measure if self._object is None else self._from_object

    def _from_object(self, image: NDArray[np.generic], _: Any) -> tuple[Any, Any]:
        assert self._object is not None
        found, box = self._object.update(image)
        return (box, self._object.getTrackingScore()) if found else (None, None)

    def start(self, pixels: NDArray[np.generic], centre: Numbers, size: Numbers) -> None:
        """``init`` of an object, with whole pixels; a callable is not asked."""
        self._present = np.array(centre), np.array(size)
        if self._object is not None:
            corner = np.round(centre - size / 2).astype(int)
            extent = np.maximum(np.round(size), 1).astype(int)
            self._object.init(pixels, (*corner.tolist(), *extent.tolist()))

    def look(self, pixels: NDArray[np.generic], expected: Expected) -> Sighting:
        """The box that is returned, if it is within reach."""
        centre, size = expected.centre, expected.size
        box, score = _checked(self._measure(pixels, (*(centre - size / 2), *size)))
        nothing = Sighting(centre, 1.0, math.log(CERTAIN / (1 - CERTAIN)))
        if box is None:
            return nothing
        off = box[:2] + box[2:] / 2 - centre
        if abs(off).max() > expected.reach:
            return nothing
        self._present = centre + off, box[2:]
        p = min(max(score, CERTAIN), 1 - CERTAIN)
        unlikely = WEIGHTS[3] * surprise(off / expected.scale, expected.variance)
        return Sighting(centre + off, 1 - score, math.log(p / (1 - p)) + unlikely)

    def take(self) -> tuple[Numbers, Numbers]:
        """The box as it was returned."""
        return self._present

    def rest(self) -> None:
        """Others learn when they see fit."""


def _checked(answer: Any) -> tuple[Numbers | None, float]:
    """Box (4,) and score of an answer; None where nothing was observed."""
    try:
        box, score = answer
    except (TypeError, ValueError):
        raise ValueError(f"measure must return (box, score), not {answer!r}") from None
    if box is None or score is None:
        return None, 0.0
    four, value = np.asarray(box, dtype=np.float64), float(score)
    if four.shape != (4,):
        raise ValueError(f"measure returned a box of shape {four.shape}, it must be (4,)")
    if np.isnan(four).any() or math.isnan(value):
        return None, 0.0
    if not (np.isfinite(four).all() and four[2] > 0 and four[3] > 0):
        raise ValueError(
            f"measure returned the box {tuple(four.tolist())}: left, top, width, height must be "
            "finite and the size positive; return None where nothing is seen"
        )
    if not 0 <= value <= 1:
        raise ValueError(f"measure returned the score {value}, it must lie in [0, 1]")
    return four, value
