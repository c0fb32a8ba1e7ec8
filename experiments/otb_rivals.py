"""OpenCV's trackers under our two words, for comparison in the same process."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Box = tuple[float, float, float, float]
RIVALS = ("CSRT", "KCF", "KCF-0", "MIL", "MOSSE")
"""KCF as OpenCV ships it, and KCF-0 with its failure threshold (detect_thresh) at 0."""


class OpenCVTracker:
    """One of :data:`RIVALS`, on one thread; needs opencv-contrib-python(-headless).

    OpenCV wants whole pixels: the box is rounded. MOSSE lives in ``cv2.legacy`` and knows only
    colour images, so grey frames are repeated three times for all.
    """

    def __init__(self, name: str) -> None:
        cv2: Any = import_module("cv2")  # its type stubs do not know the contrib trackers
        cv2.setNumThreads(1)
        try:
            if name == "KCF-0":
                parameters = cv2.TrackerKCF_Params()
                parameters.detect_thresh = 0.0
                self._tracker = cv2.TrackerKCF_create(parameters)
            else:
                home = cv2.legacy if name == "MOSSE" else cv2
                self._tracker = getattr(home, f"Tracker{name}_create")()
        except AttributeError:
            raise ImportError(
                f"this OpenCV has no {name}: install opencv-contrib-python-headless"
            ) from None

    def init(self, image: NDArray[np.uint8], box: Box) -> None:
        """Learn the target."""
        x, y, width, height = (round(v) for v in box)
        self._tracker.init(_colour(image), (x, y, max(width, 1), max(height, 1)))

    def update(self, image: NDArray[np.uint8]) -> tuple[bool, Box]:
        """Find it in the next frame; (False, zeros) where it is given up."""
        found, box = self._tracker.update(_colour(image))
        x, y, width, height = (float(v) for v in (box if found else (0, 0, 0, 0)))
        return bool(found), (x, y, width, height)


def _colour(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)
