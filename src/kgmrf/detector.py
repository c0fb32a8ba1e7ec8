"""scikit-learn: an outlier detector with calibrated p-values, and river's way of one row a call."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kgmrf import _check
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.density import Density
from kgmrf.factors import FactorDensity
from kgmrf.tail import surprise
from kgmrf.trackers import KGMRF

with optional():
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["KineticDetector"]


class KineticDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """log10 p(x): how probable is a row as far from the forecast as x, after the rows of `fit`?

    X: ``(n_times, n_channels)``, rows in time order, NaN where a channel was not seen. `fit` tracks
    rows without faults; others are scored one by one under the forecast for the next row, and
    nothing is learned from them. Where what is normal moves, go on with `partial_fit`, or use
    :func:`kgmrf.alerts.watch`, which forecasts each row from those before it.

    rate: share of normal rows that `predict` calls outliers; the default is that of
        scikit-learn's own detectors, 1e-4 that of `kgmrf.alerts`.
    mean: "running", "drift" or "zero": the mean of X, as for :class:`kgmrf.KGMRF`.

    After `fit`: `density_` (of a row off its mean), `location_` ``(d,)``, `offset_` (log10 of
    rate), `tracker_`.

    >>> X = np.random.default_rng(0).normal(size=(500, 2)) @ [[1.0, 0.9], [0.0, 0.4]]
    >>> detector = KineticDetector().fit(X)
    >>> detector.predict([[1.0, 1.0], [2.0, -1.9]])
    array([ 1, -1])
    >>> detector.contribution([[2.0, -1.9]]).round(0)
    array([[57., 51.]])
    """

    def __init__(self, *, rate: float = 0.1, mean: str = "running") -> None:
        self.rate = rate
        self.mean = mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Track the rows of X, which are normal."""
        return self._follow(X, True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with the rows of X."""
        return self._follow(X, not hasattr(self, "tracker_"))

    def _follow(self, X: Any, fresh: bool) -> Self:
        rate = _check.in_range(self.rate, "rate", 0.0, 1.0, open_low=True)
        rows = self._rows(X, reset=fresh, ensure_min_samples=2 if fresh else 1)
        if fresh:
            self.tracker_ = KGMRF(rows.shape[1], mean=self.mean)
            self.n_samples_seen_ = 0
        self.tracker_.filter(rows, fields=["p_value"], layout="channels_last")
        self.n_samples_seen_ += len(rows)
        self.offset_ = float(np.log10(rate))
        self.density_: Density | FactorDensity = self.tracker_.forecast(1.0).density
        found = self.tracker_.location
        self.location_ = np.zeros(self.n_features_in_) if found is None else found
        return self

    def _rows(self, X: Any, **options: Any) -> Numbers:
        rows: Numbers = validate_data(
            self, _check.unmasked(X), dtype=np.float64, ensure_all_finite="allow-nan", **options
        )
        return rows

    # ------------------------------------------------------------------ rows

    def p_value(self, X: Any) -> Numbers:
        """Probability of a row at least as far out, ``(n,)``; NaN where nothing was seen."""
        rows = self._off(X)
        return np.asarray(self.density_.p_value(rows))

    def score_samples(self, X: Any) -> Numbers:
        """log10 of the p-value, ``(n,)``: the lower, the less normal."""
        return -surprise(self.p_value(X))

    def decision_function(self, X: Any) -> Numbers:
        """`score_samples` less `offset_`, ``(n,)``: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Numbers:
        """-1 for outliers, 1 for all other rows, ``(n,)``."""
        return np.where(self.decision_function(X) < 0.0, -1, 1)

    def contribution(self, X: Any) -> Numbers:
        """What each channel adds to the squared distance of a row, ``(n, d)``."""
        rows = self._off(X)
        return np.asarray(self.density_.contribution(rows))

    def _off(self, X: Any) -> Numbers:
        check_is_fitted(self)
        return self._rows(X, reset=False) - self.location_

    # ------------------------------------------------------------------ one row at a time

    def learn_one(self, x: dict[Any, float]) -> None:
        """Take in one row, a dict by channel, as river does; the first one names the channels."""
        if not hasattr(self, "tracker_"):
            self.channels_, self.n_samples_seen_ = tuple(x), 0
            self.tracker_ = KGMRF(len(x), mean=self.mean)
        self.tracker_.update(self._row(x))
        self.n_samples_seen_ += 1

    def score_one(self, x: dict[Any, float]) -> float:
        """Surprise, -log10 p, of a row under the forecast from the rows before it; 0 while there is
        no forecast. Call it before `learn_one`.

        >>> detector = KineticDetector()
        >>> for a in np.random.default_rng(0).normal(size=200):
        ...     detector.learn_one({"a": a, "b": -a + 0.01 * a**2})
        >>> detector.score_one({"a": 0.5, "b": 0.5}) > 3.0
        True
        """
        if getattr(self, "n_samples_seen_", 0) < 2:
            return 0.0
        location = self.tracker_.location
        row = self._row(x) - (0.0 if location is None else location)
        found = self.tracker_.forecast(1.0).density.p_value(row[None])
        return float(np.nan_to_num(surprise(found))[0])

    def _row(self, x: dict[Any, float]) -> Numbers:
        unknown = [name for name in x if name not in self.channels_]
        if unknown:
            raise ValueError(f"x has {unknown[0]!r}; the channels are {', '.join(self.channels_)}")
        return np.array([x.get(name, np.nan) for name in self.channels_], dtype=float)
