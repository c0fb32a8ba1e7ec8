"""The mean of a stream, and samples with it taken off, in one pass."""

from __future__ import annotations

import numpy as np

from kgmrf import _check, _deprecated
from kgmrf._types import Numbers

__all__ = ["HALF_LIFE", "MEANS", "RunningMean", "off_the_mean"]

MEANS = ("zero", "expanding", "ewm")
"""Samples of mean zero, with a constant mean, with a mean that drifts; ``mean=`` also takes
"linear" (`kgmrf.linear_mean`)."""

HALF_LIFE = 200.0
"""Samples after which half of a drifting mean is forgotten."""


class RunningMean:
    """e_n = (x_n - mean of the past) / sqrt(1 + sum w^2 / (sum w)^2), for every channel by itself.

    mean: "expanding" gives all of the past the same weight w; "ewm" forgets it with a half-life of
    200 samples. Only the past is used, so that a stream can be centred as it comes, and in chunks
    as well as whole. The factor undoes the error of the mean: e_n has the covariance of x_n
    exactly, if that and the mean are constant. The first value of a channel tells nothing about its
    spread and becomes NaN.

    >>> mean = RunningMean()
    >>> mean.centre(np.asarray([[1.0], [3.0], [2.0], [6.0]])).round(3)[:, 0].tolist()
    [nan, 1.414, 0.0, 3.464]
    >>> mean.location.tolist()
    [3.0]
    """

    def __init__(self, mean: str = "expanding", sums: Numbers | None = None) -> None:
        word = _check.choice(_deprecated.word(mean, _deprecated.MEANS, "mean"), MEANS, "mean")
        self.keep = 0.5 ** (1.0 / HALF_LIFE) if word == "ewm" else 1
        self.sums: Numbers = np.zeros((3, 0)) if sums is None else sums

    @property
    def location(self) -> Numbers:
        """The mean ``(..., d)`` now; NaN for a channel that was never seen."""
        total, weight, _ = self.sums
        known = weight > 0
        return np.where(known, total / np.where(known, weight, 1.0), np.nan)

    def centre(self, samples: Numbers) -> Numbers:
        """Take in samples ``(n, ..., d)`` and return them centred; NaN stays and does not count."""
        if self.sums.shape[-1] == 0:
            self.sums = np.zeros((3, *samples.shape[1:]))
        centred, self.sums = off_the_mean(samples, self.sums, self.keep)
        return centred


def off_the_mean(samples: Numbers, sums: Numbers, keep: float = 1.0) -> tuple[Numbers, Numbers]:
    """e_n = (x_n - mean before) / sqrt(1 + sum w^2 / (sum w)^2) along the first axis; new sums.

    samples: ``(n, ..., d)``. sums: ``(3, ..., d)``, of w x, w and w^2 over everything before. keep:
    the share of each weight w that is left one sample later.
    """
    from scipy.signal import lfilter  # half a second, which `import kgmrf` should not wait for

    there = ~np.isnan(samples)
    each = np.stack([np.where(there, samples, 0.0), there, there])
    after = np.empty((3, len(samples) + 1, *samples.shape[1:]))
    after[:, 0] = sums
    for k, share in enumerate((keep, keep, keep**2)):
        # One sample after the other, so that chunks add in the order in which the whole adds.
        after[k, 1:] = lfilter([1.0], [1.0, -share], each[k], axis=0, zi=share * sums[k][None])[0]
    total, weight, square = after[:, :-1]
    past = np.where(weight > 0, weight, 1.0)
    error = np.sqrt(1.0 + square / past**2)
    return np.where(there & (weight > 0), (samples - total / past) / error, np.nan), after[:, -1]
