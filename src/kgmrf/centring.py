"""The mean of a stream, and samples with it taken off, in one pass."""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers

__all__ = ["RunningMean", "off_the_mean"]


class RunningMean:
    """e_n = (x_n - mean of x_1 .. x_{n-1}) sqrt((n-1)/n), for every channel by itself.

    Only the past is used, so that a stream can be centred as it comes, and in chunks as well as
    whole. The factor undoes the error of the mean: e_n has the covariance of x_n exactly, if that
    is constant. The first value of a channel tells nothing about its spread and becomes NaN.

    >>> mean = RunningMean()
    >>> mean.centre(np.asarray([[1.0], [3.0], [2.0], [6.0]])).round(3)[:, 0].tolist()
    [nan, 1.414, 0.0, 3.464]
    >>> mean.location.tolist()
    [3.0]
    """

    def __init__(self) -> None:
        self.total: Numbers = np.zeros(0)
        self.count: Numbers = np.zeros(0)

    @property
    def location(self) -> Numbers:
        """The mean ``(d,)`` of everything seen; NaN for a channel that was never seen."""
        known = self.count > 0
        return np.where(known, self.total / np.where(known, self.count, 1.0), np.nan)

    def centre(self, samples: Numbers) -> Numbers:
        """Take in samples ``(n, d)`` and return them centred; NaN stays NaN and does not count."""
        if self.total.size == 0:
            self.total = np.zeros(samples.shape[-1])
            self.count = np.zeros(samples.shape[-1])
        centred, self.total, self.count = off_the_mean(samples, self.total, self.count)
        return centred


def off_the_mean(
    samples: Numbers, total: Numbers, count: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """e_n = (x_n - mean before) sqrt((n-1)/n) along the first axis; the new sums and counts.

    samples: ``(n, ..., d)``. total, count: ``(..., d)``, of everything before.

    >>> off_the_mean(np.asarray([[3.0], [2.0]]), np.ones(1), np.ones(1))[0].round(3)[:, 0].tolist()
    [1.414, 0.0]
    """
    there = ~np.isnan(samples)
    # The carried sums go first, so that chunks add in the order in which the whole adds.
    totals = np.cumsum(np.concatenate([total[None], np.where(there, samples, 0.0)]), axis=0)
    counts = np.cumsum(np.concatenate([count[None], there]), axis=0)
    before = counts[:-1]
    known = there & (before > 0)
    past = np.where(before > 0, before, 1.0)
    spread = np.sqrt(past / (past + 1.0))
    return np.where(known, (samples - totals[:-1] / past) * spread, np.nan), totals[-1], counts[-1]
