"""What the target looks like: one SPD matrix per cell, remembered from frame to frame."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kgmrf.results import Estimate, Values
from kgmrf.trackers._contract import Tracker

__all__ = ["AppearanceModel", "CellsTracker", "ExponentialAverage", "anchored", "observe"]

Matrices = NDArray[np.float64]


class AppearanceModel(Protocol):
    """Anything that takes in covariances; :func:`observe` reads the estimate."""

    def update(self, observation: Matrices, /, *, n_samples: float) -> Any:
        """Take in the cells (cells, d, d) of a frame, each a mean of ``n_samples`` products."""
        ...


def observe(model: AppearanceModel, cells: Matrices, *, n_samples: float) -> Matrices:
    """Update a model and read its estimate: ``covariance`` of the answer, else of the model.

    >>> observe(ExponentialAverage(0.5), np.eye(2), n_samples=1).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    answer = model.update(cells, n_samples=n_samples)
    for holder in (answer, model):
        if (estimate := getattr(holder, "covariance", None)) is not None:
            return np.asarray(estimate, dtype=np.float64)
    raise TypeError(f"neither {type(model).__name__} nor its update has a covariance")


class ExponentialAverage:
    """M <- (1 - a) M + a C: the moments of a fading mixture of all Gaussians seen.

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
        self._mean: Matrices | None = None

    @property
    def covariance(self) -> Matrices:
        """Present estimate, of the shape of the observations."""
        if self._mean is None:
            raise ValueError("no observation yet: call update first")
        return self._mean

    def update(self, observation: Matrices, /, *, n_samples: float = 1) -> Matrices:
        """Blend in an observation (..., d, d); the first one is taken as it is."""
        if self._mean is None:
            self._mean = np.array(observation, dtype=np.float64)
        else:
            self._mean = self._mean + self.gain * (observation - self._mean)
        return self._mean


class CellsTracker(Tracker):
    """All cells (cells, d, d) of one target as one observation: an appearance model on a clock.

    A frame without cells is one in which nothing is learned: a tracker of this library coasts, any
    other model rests.
    """

    kind = "cells"
    axes = 3

    def __init__(self, model: AppearanceModel, n_samples: float) -> None:
        super().__init__(None, n_samples, "raise")
        self.model = model
        self._time: float | None = None
        self._seen = np.nan
        self._cells: Matrices | None = None

    @property
    def counted_now(self) -> float | None:
        """Time of the last image; None before the first."""
        return self._time

    def update(  # type: ignore[override]
        self,
        observation: Matrices | None,
        *,
        dt: float = 1.0,
        assume_valid: bool = False,
    ) -> Estimate:
        """Take in the cells of a frame, or None."""
        self.batch_shape = ()
        self._time = 0.0 if self._time is None else self._time + dt
        if observation is not None:
            self._seen = self._time
            self._cells = observe(self.model, observation, n_samples=self.n_samples or 1.0)
        elif isinstance(self.model, Tracker) and self._cells is not None:
            self._cells = np.asarray(self.model.update(None, dt=dt).covariance)
        return Estimate(self.look())

    def forecast(self, steps: float = 1.0) -> Estimate:
        """The cells expected ``steps`` ahead: those of the model's forecast, or as they are."""
        values = self.look()
        if isinstance(self.model, Tracker):
            values["covariance"] = self.model.forecast(steps).covariance
        return Estimate({**values, "time": values["time"] + steps, "age": values["age"] + steps})

    def look(self) -> Values:
        """All fields as they stand now."""
        nan, now = np.asarray(np.nan), np.asarray(self._time)
        cells = nan if self._cells is None else self._cells
        return {
            "time": now,
            "age": now - self._seen,
            "covariance": cells,
            "nis": nan,
            "log_likelihood": nan,
        }


def anchored(anchor: Matrices, present: Matrices, anchor_weight: float) -> Matrices:
    """w A + (1 - w) M: moments of the mixture of the first frame and the present model.

    One matrix per cell stands for both, so one Cholesky factor per candidate scores both. Where the
    present model is not finite (a tracker that is still warming up) the anchor stands alone.

    >>> anchored(np.eye(1), np.array([[3.0]]), 0.5)
    array([[2.]])
    """
    if np.isfinite(present).all():
        return anchor_weight * anchor + (1 - anchor_weight) * present
    usable = np.isfinite(present).all(axis=(-2, -1), keepdims=True)
    blend = anchor_weight * anchor + (1 - anchor_weight) * np.where(usable, present, anchor)
    return np.where(usable, blend, anchor)
