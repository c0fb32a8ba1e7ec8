"""Rivals of `kgmrf compare` that are no trackers: they forecast the covariance of the next row."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.baselines._dcc import Dcc


class Online:
    """An estimator of skfolio that is updated row by row; NaN until it has a matrix."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def covariances(self, rows: Numbers) -> Numbers:
        """S_{t+1} after each of these rows, ``(n, d, d)``."""
        out = np.full((len(rows), rows.shape[1], rows.shape[1]), np.nan)
        for k, row in enumerate(rows):
            out[k] = self.estimator.partial_fit(row[None]).covariance_
        return out


FORECASTERS = (Online, Dcc)


def forecasters(d: int, *, dcc: bool) -> list[tuple[str, str, Any]]:
    """Name, settings and forecaster: skfolio's where it is installed, DCC-GARCH if asked for."""
    found: list[tuple[str, str, Any]] = []
    try:
        from skfolio.moments import RegimeAdjustedEWCovariance
    except ModuleNotFoundError:
        pass
    else:
        made = Online(RegimeAdjustedEWCovariance())
        found.append(("RegimeAdjustedEWCovariance", f"half_life={made.estimator.half_life}", made))
        made = Online(RegimeAdjustedEWCovariance(half_life=10, corr_half_life=40))
        found.append(("RegimeAdjustedEWCovariance", "half_life=10, corr_half_life=40", made))
    if dcc:
        found.append(("DCC-GARCH", "fitted to the rows so far", Dcc(d)))
    return found
