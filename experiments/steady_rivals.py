"""Other people's stabilisers, and the warps that they apply; none of them is ever a dependency.

vidstab 1.7.4 was written for OpenCV 4: two names that OpenCV 5 has elsewhere are put back
before it is loaded. Nothing else is changed, and both packages run at their own default settings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.store import NotAvailable

Images = NDArray[np.uint8]
WINDOW = 30
"""vidstab's default smoothing window."""


def vidstab(images: Images) -> int:
    """vidstab's moving average of the path; returns the number of steady images."""
    import cv2

    if not hasattr(cv2, "BRISK_create"):
        cv2.BRISK_create = cv2.xfeatures2d.BRISK_create
    try:
        import_module("imutils").is_cv4 = lambda *_, **__: True
        made = import_module("vidstab").VidStab()
    except ImportError as error:
        raise NotAvailable(f"vidstab: {error}") from None
    count = 0
    for image in images:
        made.stabilize_frame(image, WINDOW)
    while made.stabilize_frame(None, WINDOW) is not None:
        count += 1
    return count


def _vidgear(mode: str) -> Callable[[Images], int]:
    def run(images: Images) -> int:
        logging.disable(logging.CRITICAL)
        try:
            module = import_module("vidgear.gears.stabilizer")
        except ImportError as error:
            raise NotAvailable(f"vidgear: {error}") from None
        made = module.Stabilizer(mode=getattr(module.StabilizerMode, mode))
        return sum(made.stabilize(image) is not None for image in images)

    return run


RIVALS: dict[str, Callable[[Images], int]] = {
    "vidstab": vidstab,
    "vidgear": _vidgear("ASW"),
    "vidgear, Kalman": _vidgear("KALMAN"),
}


@contextmanager
def recorded(images: Images) -> Iterator[dict[int, NDArray[np.float64]]]:
    """The matrices given to OpenCV's warp, by the number of the image that is warped."""
    import cv2

    numbers = {_mark(image): k for k, image in enumerate(images)}
    found: dict[int, NDArray[np.float64]] = {}
    warp: Any = cv2.warpAffine

    def listening(image: Any, matrix: Any, *rest: Any, **more: Any) -> Any:
        full = np.vstack([np.asarray(matrix, dtype=float), [0, 0, 1]])
        found[numbers[_mark(image)]] = full
        return warp(image, matrix, *rest, **more)

    cv2.warpAffine = listening
    try:
        yield found
    finally:
        cv2.warpAffine = warp


def _mark(image: Any) -> int:
    """A number that tells images apart, whatever channel was added to them."""
    return hash(np.ascontiguousarray(image[::7, ::7, :3]).tobytes())
