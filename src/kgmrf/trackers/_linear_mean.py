"""A tracker whose rows have a linear mean: what is left is followed, and shown with the mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._types import Numbers
from kgmrf.engines.low_rank import CROSSOVER
from kgmrf.linear_mean import FARTHEST, WithMean, check_rows, predicted, responses, take_off
from kgmrf.readable.linear_mean import mean_track
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
        state = np.ascontiguousarray(self._sums[:, :-d])
        lines = blocks.reshape(-1, d)
        means = take_off(state, np.tile(np.arange(n), len(blocks)), lines, self.lags)
        self._sums = np.concatenate([state, means[len(means) - n :]], axis=1)
        self._means = means.reshape(*blocks.shape[:-2], d)
        return blocks - self._means[..., None, :]

    def _means_ahead(self, rows: int) -> Numbers:
        """mu of the next rows, ``(..., h, d)``."""
        d = self.d or 1
        found = [predicted(row[:-d], d, self.lags, rows) for row in self._sums]
        return np.stack(found).reshape(*(self.batch_shape or ()), rows, d)

    def current_values(self) -> Any:
        """All fields as they stand now; of a linear mean what was forecast for the last row."""
        if self.mean != "linear":
            return super().current_values()
        mean = self._sums[:, -(self.d or 1) :].reshape(*(self.batch_shape or ()), -1)
        return WithMean(super().current_values(), mean)

    def predicted_values(self, dt: float) -> Any:
        """All fields as predicted ``dt`` from now; with a linear mean of the row that is nearest.

        Cov = sum_k Psi_k S_{h-k} Psi_k^T, S_j the covariance of what is left j rows ahead.
        """
        values = super().predicted_values(dt)
        if self.mean != "linear":
            return values
        h = int(min(max(round(dt), 1), FARTHEST))
        mean = self._means_ahead(h)[..., -1, :]
        if h == 1:
            return WithMean(values, mean)
        near = [
            super(LinearMeanTracker, self).predicted_values(float(k))["covariance"]
            for k in range(1, h)
        ]
        left = np.stack([*near, values["covariance"]])[::-1].reshape(h, len(self._sums), -1)
        d = self.d or 1
        out = np.empty((len(self._sums), d, d))
        for k, row in enumerate(self._sums):
            psi = responses(mean_track(row[:-d], d, self.lags), h)
            own = left[:, k].reshape(h, d, d)
            total = (psi @ np.where(np.isnan(own), 0.0, own) @ np.swapaxes(psi, 1, 2)).sum(axis=0)
            out[k] = np.where(np.isnan(own[0]), np.nan, 0.5 * (total + total.T))
        return WithMean(values, mean, out.reshape(values["covariance"].shape))

    def _run(self, record: Recording, names: tuple[str, ...] | None) -> Any:
        found = super()._run(record, names)
        return WithMean(found, self._means) if self.mean == "linear" else found

    def check_state(self) -> None:
        """Raise ValueError if what is remembered of a linear mean cannot be."""
        super().check_state()
        if self.mean == "linear" and self.batch_shape is not None:
            d = self.d or 1
            check_rows(self._sums[:, :-d], d, self.lags)
