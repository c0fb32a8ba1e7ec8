"""Several boxes through one video."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgmrf.vision.appearance import RegionCovariance
from kgmrf.vision.resample import as_image
from kgmrf.vision.search import CROWD
from kgmrf.vision.tracker import BoxTracker

__all__ = ["BoxesTracker", "Followed"]


class Followed(NamedTuple):
    """One target in one image: who it is, where, how sure, how alike, and whether it is lost."""

    identity: int
    box: tuple[float, float, float, float]
    score: float
    lost: bool
    reacquired: bool
    confidence: float


class BoxesTracker:
    """Follow several boxes: one `BoxTracker` each, whose arguments it takes.

    The search is thriftier than that of a single box (:data:`kgmrf.vision.search.CROWD`). A target
    keeps its identity, a number from 1 on, for good; ``add`` and ``drop`` change who is followed
    while the video runs. One box alone is followed exactly as by `BoxTracker`.

    Parameters
    ----------
    model : default "anchor+ema"
        As for `BoxTracker`, the same for all boxes.
    **settings
        Numbers of the search; None takes those for many boxes (fewer cells, a shorter reach).

    Examples
    --------
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
        if settings.get("measure") is not None:
            raise ValueError("a measurement follows one box: make a BoxTracker for each")
        self._alone = {"model": model, **settings}
        # what is learned in every fourth image is learned four times as fast
        gain = 0.02 * CROWD.renew_every
        self._among_others = {"settings": CROWD, "model_gain": gain, **self._alone}
        BoxTracker(**self._alone)  # wrong settings are said here
        self.trackers: dict[int, BoxTracker] = {}
        self._last = 0

    def init(self, image: ArrayLike, boxes: ArrayLike) -> list[int]:
        """Learn the targets from their boxes (n, 4) in the first image; returns identities."""
        array = np.atleast_2d(np.asarray(boxes, dtype=np.float64))
        if array.ndim != 2 or array.shape[1] != 4 or not len(array):
            raise ValueError(f"boxes must have shape (n, 4), not {array.shape}")
        self.trackers, self._last = {}, 0
        settings = self._alone if len(array) == 1 else self._among_others
        return [self._begin(image, box, settings) for box in array]

    def add(self, image: ArrayLike, box: ArrayLike) -> int:
        """Follow one more box of the present image; returns its identity."""
        return self._begin(image, box, self._among_others)

    def _begin(self, image: ArrayLike, box: ArrayLike, settings: dict[str, Any]) -> int:
        one = BoxTracker(**settings)
        one.init(image, box)
        self._last += 1
        # some of the boxes are renewed in one image, others in the next
        if isinstance(one.measure, RegionCovariance):
            one.measure.stagger(self._last)
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
        for tracker in self.trackers.values():
            tracker.find(pixels)
        return self.present()

    def present(self) -> list[Followed]:
        """Where all targets are now."""
        return [
            Followed(identity, t.box, t.score, t.lost, t.reacquired, t.confidence)
            for identity, t in self.trackers.items()
        ]
