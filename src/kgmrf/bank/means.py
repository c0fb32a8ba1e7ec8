"""Linear means of the tracks of a bank (`kgmrf.linear_mean`): a row for each, beside its row."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._types import Numbers
from kgmrf.engines import Engine, Lines, View
from kgmrf.linear_mean import LAGS, WithMean, ahead_with_mean, blank_rows, mean_of_last, take_off


def lags_of(settings: dict[str, Any]) -> int:
    """Lags of the linear mean that these settings of a bank ask for; 0: there is none."""
    mean = settings.get("mean", "zero")
    if mean not in ("zero", "linear"):
        raise ValueError(
            f"mean={mean!r}: a bank takes samples of mean zero, or mean='linear'; centre them "
            "first, for example with kgmrf.model.centring.RunningMean"
        )
    return int(settings.get("lags", LAGS)) if mean == "linear" else 0


class LinearMeans:
    """The part of a `TrackerBank` that takes the means off rows and puts them into estimates."""

    d: int
    _engine: Engine
    _rows: Numbers
    _means: Numbers  # (n, size); of size 0 without linear means
    _lags: int

    def _new_means(self, n: int) -> Numbers:
        return blank_rows(n, self.d, self._lags) if self._lags else np.zeros((n, 0))

    def _check_no_factors(self) -> None:
        if self._lags and "loadings" in self._engine.names:
            raise ValueError(
                f"mean='linear' with {self.d} channels needs rank=None, which follows them without "
                "factors; or difference the rows"
            )

    def _check_single_rows(self, seen: Numbers, raw: bool) -> None:
        if self._lags and not (raw and seen.shape[1] == 1):
            raise ObservationError(
                f"mean='linear' follows single rows, got {'blocks' if raw else 'matrices'} of "
                f"shape {seen.shape[1:]}; give samples (n, d), or leave out mean"
            )

    def _without_mean(self, lines: Lines) -> tuple[Lines, Numbers]:
        """Single rows less the mean that was forecast for each, and these means."""
        rows = np.where(lines.counts[:, None] > 0.0, lines.values[:, 0], np.nan)
        means = take_off(self._means, lines.track_index, rows, self._lags)
        return lines._replace(values=(rows - means)[:, None]), means

    def _with_last_mean(self, view: View, which: Numbers) -> Any:
        """Fields of tracks as they stand, with the mean that was forecast for their last row."""
        if not self._lags:
            return view
        return WithMean(view, mean_of_last(self._means[which], self.d, self._lags))

    def _predicted_values(self, dt: float, which: Numbers) -> Any:
        """All fields of tracks as predicted ``dt`` of counted time from now."""
        rows = self._rows[which]

        def forecast(dt: float) -> View:
            later, records = self._engine.ahead(rows, dt)
            return self._engine.view(records, later)

        if not self._lags:
            return forecast(dt)
        return ahead_with_mean(self._means[which], self.d, self._lags, dt, forecast)
