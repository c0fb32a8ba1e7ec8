"""scikit-learn: an outlier detector with calibrated p-values; and river's way of one row a call."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kgmrf import _check
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.model.stationary import stationary
from kgmrf.model.tail import surprise
from kgmrf.trackers import KGMRF

with optional():
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["KineticDetector", "OnlineDetector"]


class KineticDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """log10 p(x): how probable is a row as far out as x, if it is like the rows of `fit`?

    X: ``(n_times, n_channels)``, NaN where a channel was not seen. `fit` takes rows without faults,
    which are all alike: one mean, one covariance, tails as heavy as theirs
    (:func:`kgmrf.model.stationary.stationary`). Other rows are scored one by one, and nothing is
    learned from them. Where what is normal moves, use :func:`kgmrf.alerts.watch` or
    `OnlineDetector`, which forecast each row from those before it.

    After `fit`: `location_` ``(d,)``, `density_` of a row off it, `offset_` (log10 of rate).

    Parameters
    ----------
    rate : float, default 0.1
        Share of normal rows that `predict` calls outliers; the default is that of scikit-learn's
        own detectors, 1e-4 that of `kgmrf.alerts`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2)) @ [[1.0, 0.9], [0.0, 0.4]]
    >>> detector = KineticDetector(rate=1e-3).fit(X)
    >>> detector.predict([[2.0, 1.9], [2.0, -1.9]])
    array([ 1, -1])
    >>> detector.contribution([[2.0, -1.9]]).round(0)
    array([[53., 47.]])
    """

    def __init__(self, *, rate: float = 0.1) -> None:
        self.rate = rate

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn what normal rows are like."""
        rate = _check.in_range(self.rate, "rate", 0.0, 1.0, open_low=True)
        rows = self._rows(X, reset=True, ensure_min_samples=2)
        self.location_, self.density_ = stationary(rows)
        self.offset_ = float(np.log10(rate))
        return self

    def _rows(self, X: Any, **options: Any) -> Numbers:
        rows: Numbers = validate_data(
            self, _check.fill_masked(X), dtype=np.float64, ensure_all_finite="allow-nan", **options
        )
        return rows

    def _off(self, X: Any) -> Numbers:
        check_is_fitted(self)
        return self._rows(X, reset=False) - self.location_

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


class OnlineDetector:
    """-log10 p of one row at a time, a dict by channel, under the forecast from the rows before it.

    The protocol is that of river's detectors: `score_one`, then `learn_one`. For many rows or keys
    :func:`kgmrf.alerts.watch` and `kgmrf.stream` are a hundred times faster.

    mean: "ewm", "expanding" or "zero": the mean of the rows, as for :class:`kgmrf.KGMRF`.

    >>> detector = OnlineDetector()
    >>> for a in np.random.default_rng(0).normal(size=200):
    ...     detector.learn_one({"a": a, "b": -a + 0.01 * a**2})
    >>> detector.score_one({"a": 0.5, "b": 0.5}) > 3.0
    True
    """

    def __init__(self, mean: str = "ewm") -> None:
        self.tracker = KGMRF(mean=mean)
        self.channels: tuple[Any, ...] = ()
        self.n_rows = 0

    def learn_one(self, x: dict[Any, float]) -> None:
        """Take in one row; the first one names the channels. One that is missing was not seen."""
        self.channels = self.channels or tuple(x)
        self.tracker.update(self._row(x))
        self.n_rows += 1

    def score_one(self, x: dict[Any, float]) -> float:
        """The surprise of a row, -log10 p; 0 while there is no forecast."""
        if self.n_rows < 2:
            return 0.0
        location = self.tracker.location
        row = self._row(x) - (0.0 if location is None else location)
        found = self.tracker.forecast(1.0).density.p_value(row[None])
        return float(np.nan_to_num(surprise(found))[0])

    def _row(self, x: dict[Any, float]) -> Numbers:
        unknown = [name for name in x if name not in self.channels]
        if unknown:
            known = ", ".join(map(str, self.channels))
            raise ValueError(f"x has {unknown[0]!r}; the channels are {known}")
        return np.array([x.get(name, np.nan) for name in self.channels], dtype=float)
