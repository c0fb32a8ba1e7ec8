"""What the target looks like: one SPD matrix per cell, remembered from frame to frame."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["AppearanceModel", "ExponentialAverage"]

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
