"""A tracker whose rows have a linear mean: what is left is followed, and shown with the mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.engines.low_rank import CROSSOVER
from kgmrf.linear_mean import WithMean, ahead_with_mean, check_rows, mean_of_last, take_off
from kgmrf.trackers._engine import EngineTracker
from kgmrf.trackers._input import Recording
from kgmrf.trackers._samples import CovarianceTracker


class LinearMeanTracker(EngineTracker, CovarianceTracker):
    """Takes the mean off rows and puts it into estimates, if ``mean`` is "linear"."""

    mean: str
    lags: int
    automatic: bool
    rank: Any
    _sums: Numbers
    _means: Numbers  # of the rows that were taken in last

    def _begin_with(self, block: Numbers) -> None:
        many = isinstance(self.rank, int) or (self.rank == "auto" and block.shape[-1] >= CROSSOVER)
        if self.mean == "linear" and self.automatic and many:
            raise _check.ObservationError(
                f'mean="linear" with {block.shape[-1]} channels needs rank=None, which follows '
                "them without factors; or difference the rows"
            )
        super()._begin_with(block)

    def _off_linear_mean(self, blocks: Numbers) -> Numbers:
        """Rows ``(T, ..., 1, d)`` less the mean before each, which `_run` finds in ``_means``."""
        if blocks.shape[-2] != 1:
            raise _check.ObservationError(
                f'mean="linear" follows single rows, got blocks of shape {blocks.shape[1:]}; give '
                'rows (T, d), or take mean="expanding"'
            )
        d, n = blocks.shape[-1], len(self._sums)
        self._sums = self._sums.copy()
        index, lines = np.tile(np.arange(n), len(blocks)), blocks.reshape(-1, d)
        means = take_off(self._sums, index, lines, self.lags)
        self._means = means.reshape(*blocks.shape[:-2], d)
        return blocks - self._means[..., None, :]

    def _mean_rows(self) -> Numbers:
        """The rows of the mean with the batch axes."""
        return self._sums.reshape(*(self.batch_shape or ()), -1)

    def current_values(self) -> Any:
        """All fields as they stand now; of a linear mean what was forecast for the last row."""
        if self.mean != "linear":
            return super().current_values()
        mean = mean_of_last(self._mean_rows(), self.d or 1, self.lags)
        return WithMean(super().current_values(), mean)

    def predicted_values(self, dt: float) -> Any:
        """All fields as predicted ``dt`` from now; with a linear mean of the row that is
        nearest."""
        if self.mean != "linear":
            return super().predicted_values(dt)
        forecast, rows = super().predicted_values, self._mean_rows()
        return ahead_with_mean(rows, self.d or 1, self.lags, dt, forecast)

    def _run(self, record: Recording, names: tuple[str, ...] | None) -> Any:
        found = super()._run(record, names)
        return WithMean(found, self._means) if self.mean == "linear" else found

    def check_state(self) -> None:
        """Raise ValueError if what is remembered of a linear mean cannot be."""
        super().check_state()
        if self.mean == "linear" and self.batch_shape is not None:
            check_rows(self._sums, self.d or 1, self.lags)
