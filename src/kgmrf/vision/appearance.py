"""What the target looks like: one SPD matrix per cell, remembered from frame to frame."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kgmrf.trackers._contract import Tracker

__all__ = ["AppearanceModel", "CellMemory", "ExponentialAverage", "anchored"]

Matrices = NDArray[np.float64]


class AppearanceModel(Protocol):
    """Anything that takes in covariances and tells its estimate."""

    def update(self, observation: Matrices, /, *, n_samples: float) -> Any:
        """Take in the cells (cells, d, d) of a frame, each a mean of ``n_samples`` products.

        The estimate is the ``covariance`` of the answer, or else of the model.
        """
        ...


class ExponentialAverage:
    """M <- (1 - a) M + a C: the moments of a fading mixture of all Gaussians seen.

    ``covariance`` is M, None before the first update.

    >>> model = ExponentialAverage(gain=0.5)
    >>> for scale in (1.0, 3.0):
    ...     _ = model.update(scale * np.eye(2), n_samples=64)
    >>> model.covariance.tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    def __init__(self, gain: float) -> None:
        if not 0 <= gain <= 1:
            raise ValueError(f"gain must lie in [0, 1], not {gain}")
        self.gain = gain
        self.covariance: Matrices | None = None

    def update(self, observation: Matrices, /, *, n_samples: float = 1) -> Matrices:
        """Blend in an observation (..., d, d); the first one is taken as it is."""
        old = observation if self.covariance is None else self.covariance
        self.covariance = np.asarray(old + self.gain * (observation - old), dtype=np.float64)
        return self.covariance


class CellMemory:
    """What an appearance model remembers of the cells (cells, d, d), in frames with and without."""

    cells: Matrices

    def __init__(self, model: AppearanceModel, n_samples: float) -> None:
        self.model, self.n_samples = model, n_samples

    def update(self, cells: Matrices | None) -> None:
        """Take in the cells of a frame; without, a tracker of ours coasts, other models rest."""
        if cells is None:
            if isinstance(self.model, Tracker):
                self.cells = np.asarray(self.model.update(None).covariance)
            return
        answer = self.model.update(cells, n_samples=self.n_samples)
        estimate = getattr(answer, "covariance", None)
        if estimate is None and (estimate := getattr(self.model, "covariance", None)) is None:
            raise TypeError(f"neither {type(self.model).__name__} nor its update has a covariance")
        self.cells = np.asarray(estimate, dtype=np.float64)


def anchored(anchor: Matrices, present: Matrices, anchor_weight: float) -> Matrices:
    """w A + (1 - w) M: moments of the mixture of the first frame and the present model.

    One matrix per cell stands for both, so one Cholesky factor per candidate scores both. Where the
    present model is not finite (a tracker that is still warming up) the anchor stands alone.

    >>> anchored(np.eye(1), np.array([[3.0]]), 0.5)
    array([[2.]])
    """
    usable = np.isfinite(present).all(axis=(-2, -1), keepdims=True)
    return anchor_weight * anchor + (1 - anchor_weight) * np.where(usable, present, anchor)
