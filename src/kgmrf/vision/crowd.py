"""Several boxes through one video, in one pass over each image."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.vision.resample import Pyramid, as_image
from kgmrf.vision.search import CROWD
from kgmrf.vision.tracker import RegionCovarianceTracker

__all__ = ["BoxesTracker", "Followed"]


class Followed(NamedTuple):
    """One target in one image: who it is, where, how sure, and whether it is lost."""

    identity: int
    box: tuple[float, float, float, float]
    score: float
    lost: bool
    reacquired: bool


class BoxesTracker:
    """Follow several boxes: one `RegionCovarianceTracker` each, on features that all of them share.

    The image and its coarser levels are made once for all boxes, and the search is thriftier than
    that of a single box (:data:`kgmrf.vision.search.CROWD`). A target keeps its identity, a number
    from 1 on, for good; ``add`` and ``drop`` change who is followed while the video runs. One box
    alone is followed exactly as by `RegionCovarianceTracker`. Arguments are those of that class.

    >>> rng = np.random.default_rng(0)
    >>> scene = rng.integers(0, 255, (60, 80, 3)).astype(np.uint8)
    >>> tracker = BoxesTracker()
    >>> tracker.init(scene, [(10, 10, 20, 16), (45, 30, 20, 16)])
    [1, 2]
    >>> found = tracker.update(np.roll(scene, (2, 3), axis=(0, 1)))
    >>> [(one.identity, [round(v) for v in one.box]) for one in found]
    [(1, [13, 12, 20, 16]), (2, [48, 32, 20, 16])]
    """

    def __init__(self, model: Any = "anchor+ema", **settings: Any) -> None:
        self.model, self.settings = model, settings
        self._make()  # wrong settings are said here
        self.trackers: dict[int, RegionCovarianceTracker] = {}
        self._last = 0

    def _make(self, **more: Any) -> RegionCovarianceTracker:
        return RegionCovarianceTracker(self.model, **{**more, **self.settings})

    def init(self, image: ArrayLike, boxes: ArrayLike) -> list[int]:
        """Learn the targets from their boxes (n, 4) in the first image; returns identities."""
        array = np.atleast_2d(np.asarray(boxes, dtype=np.float64))
        if array.ndim != 2 or array.shape[1] != 4 or not len(array):
            raise ValueError(f"boxes must have shape (n, 4), not {array.shape}")
        if len(array) == 1:
            alone = self._make()
            alone.init(image, array[0])
            self.trackers, self._last = {1: alone}, 1
            return [1]
        self.trackers, self._last = {}, 0
        shared = Pyramid(as_image(image))
        return [self.add(shared, box) for box in array]

    def add(self, image: ArrayLike | Pyramid, box: ArrayLike) -> int:
        """Follow one more box of the present image; returns its identity."""
        # what is learned in every fourth image is learned four times as fast
        one = self._make(settings=CROWD, model_gain=0.02 * CROWD.renew_every)
        one.init(image if isinstance(image, Pyramid) else Pyramid(as_image(image)), box)
        self._last += 1
        # some of the boxes are renewed in one image, others in the next
        one.stagger(self._last)
        self.trackers[self._last] = one
        return self._last

    def drop(self, identity: int) -> None:
        """Follow a target no longer; its number is not given again."""
        if identity not in self.trackers:
            raise KeyError(f"no target {identity}; there are {sorted(self.trackers)}")
        del self.trackers[identity]

    def update(self, image: ArrayLike) -> list[Followed]:
        """Find all targets in the next image, by identity."""
        pixels = as_image(image)
        alone = len(self.trackers) == 1 and self._last == 1
        shared: Any = pixels if alone else Pyramid(pixels)
        for tracker in self.trackers.values():
            tracker.update(shared)
        return self.present()

    def present(self) -> list[Followed]:
        """Where all targets are now."""
        return [
            Followed(identity, t.box, t.score, t.lost, t.reacquired)
            for identity, t in self.trackers.items()
        ]
