"""scikit-learn: an estimator of a moving covariance, and transformers of matrices in time order."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.model.gains import Gains
from kgmrf.tables import windows
from kgmrf.trackers import KGMRF

with optional():
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data

__all__ = ["KineticCovariance", "KineticTransformer"]


class KineticCovariance(BaseEstimator):  # type: ignore[misc]
    """S_t, the covariance of the rows of X as it stands at the last of them.

    X: ``(n_times, n_channels)``, rows in time order, NaN where a channel was not seen. Attributes
    and methods are those of :class:`sklearn.covariance.EmpiricalCovariance`: `covariance_`,
    `location_`, `get_precision`, `score`, `mahalanobis`; of rows with NaN the rest counts.

    After `fit`: `covariance_` ``(d, d)``, `location_` ``(d,)``, `frame_`, `spectrum_`,
    `velocity_` (see :data:`kgmrf.results.FIELDS`), `log_likelihood_` (mean one-step-ahead
    log-likelihood per row of the last call, NaN before there is one), `tracker_`.

    Parameters
    ----------
    window : int, default 1
        Rows per step of the tracker; the last step of a call may be shorter.
    assume_centered : bool, default False
        X has mean zero. Otherwise each row is centred on the mean of the rows before it.
    mean : str, default "expanding"
        Which mean that is: "expanding", or "ewm" for one that moves (`location_` is its last
        value).
    gains, noise_floor : default "auto" and 0.0
        As for :class:`kgmrf.KGMRF`.
    time_scale : float or str, default "auto"
        As for :class:`kgmrf.KGMRF`; "auto" makes `covariance_` that of the signal where rows
        predict each other, as samples of EEG do, and changes nothing where they do not.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3)) * [3.0, 2.0, 1.0]
    >>> KineticCovariance().fit(X).covariance_.shape
    (3, 3)
    """

    def __init__(
        self,
        *,
        window: int = 1,
        assume_centered: bool = False,
        mean: str = "expanding",
        gains: str | Gains = "auto",
        noise_floor: float = 0.0,
        time_scale: float | str = "auto",
    ) -> None:
        self.window = window
        self.assume_centered = assume_centered
        self.mean = mean
        self.gains = gains
        self.noise_floor = noise_floor
        self.time_scale = time_scale

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Start again and track the rows of X; times: their stamps, numbers or dates."""
        return self._follow(X, True, times)

    def partial_fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Continue with the rows of X; give multiples of the window, or all at once."""
        return self._follow(X, not hasattr(self, "tracker_"), times)

    def _follow(self, X: Any, fresh: bool, times: Any) -> Self:
        window = _check.whole(self.window, "window")
        # Centring takes one row: a second one must be there to show any spread.
        least = 1 if self.assume_centered or not fresh else 2
        rows = self._rows(X, reset=fresh, ensure_min_samples=least)
        d = rows.shape[1]
        if fresh:
            mean = "zero" if self.assume_centered else self.mean
            self.tracker_ = KGMRF(
                d,
                mean=mean,
                gains=self.gains,
                noise_floor=self.noise_floor,
                time_scale=self.time_scale,
            )
            if hasattr(self, "feature_names_in_"):
                self.tracker_.channels = tuple(map(str, self.feature_names_in_))
            self.n_samples_seen_ = 0
        self.n_samples_seen_ += len(rows)
        blocks, times = windows(rows, window, times)
        result = self.tracker_.filter(blocks, samples=True, times=times, fields=["log_likelihood"])
        last = self.tracker_.estimate()
        self.covariance_ = last.covariance + self.noise_floor * np.eye(d)
        self.location_ = self.tracker_.location
        self.frame_, self.spectrum_, self.velocity_ = last.frame, last.spectrum, last.velocity
        scored = result.log_likelihood[np.isfinite(result.log_likelihood)]
        self.log_likelihood_ = float(scored.mean()) / window if scored.size else np.nan
        return self

    def _rows(self, X: Any, **options: Any) -> Numbers:
        rows: Numbers = validate_data(
            self, _check.fill_masked(X), dtype=np.float64, ensure_all_finite="allow-nan", **options
        )
        return rows

    def get_precision(self) -> Numbers:
        """The inverse of `covariance_` (pseudo-inverse where it has none)."""
        check_is_fitted(self)
        return np.linalg.pinv(self.covariance_, hermitian=True)

    def mahalanobis(self, X: Any) -> Numbers:
        """(x - location)^T S^{-1} (x - location) for every row, ``(n,)``; NaN if all is missing."""
        return self._rows_against(X)[0]

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood per row of X under the Gaussian of `location_` and `covariance_`."""
        distance, log_det, seen = self._rows_against(X)
        there = seen > 0
        if not there.any():
            raise ValueError(f"X of shape {np.shape(X)} holds nothing but NaN")
        each = -0.5 * (distance + log_det + seen * np.log(2.0 * np.pi))
        return float(each[there].mean())

    def _rows_against(self, X: Any) -> tuple[Numbers, Numbers, Numbers]:
        """Squared distance, log-determinant and number of the channels seen, for every row."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False) - self.location_
        there = ~np.isnan(rows)
        distance, log_det = np.full((2, len(rows)), np.nan)
        # Rows with the same channels missing share one decomposition.
        patterns, which = np.unique(there, axis=0, return_inverse=True)
        for k, pattern in enumerate(patterns):
            if not pattern.any():
                continue
            values, vectors = np.linalg.eigh(self.covariance_[np.ix_(pattern, pattern)])
            values = np.maximum(values, np.finfo(float).eps * max(values[-1], 1e-300))
            mine = which.reshape(-1) == k
            distance[mine] = np.sum((rows[mine][:, pattern] @ vectors) ** 2 / values, axis=-1)
            log_det[mine] = np.log(values).sum()
        return distance, log_det, there.sum(axis=-1)


class KineticTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """C_t -> S_t: every matrix is replaced by the tracked one.

    For pipelines of covariance matrices ``(n_matrices, d, d)`` in time order, such as
    pyRiemann's. To take the slow change of a recording out, see `OnlineRecenter`.

    Parameters
    ----------
    n_samples : float, default None
        Samples behind each matrix; None takes 2 d, a cautious guess.
    go_on : bool, default False
        True lets `transform` continue in time where `fit` ended; False starts again, so that
        ``fit(X).transform(X)`` is ``fit_transform(X)``.
    gains, noise_floor, on_invalid : default "auto", 0.0 and "raise"
        As for :class:`kgmrf.KGMRF`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.tile(np.diag([2.0, 0.5]), (20, 1, 1))
    >>> KineticTransformer(n_samples=50).fit_transform(X)[-1].diagonal().round(1)
    array([2. , 0.5])
    """

    def __init__(
        self,
        *,
        n_samples: float | None = None,
        go_on: bool = False,
        gains: str | Gains = "auto",
        noise_floor: float = 0.0,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        self.n_samples = n_samples
        self.go_on = go_on
        self.gains = gains
        self.noise_floor = noise_floor
        self.on_invalid = on_invalid

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Track the matrices X ``(n_matrices, d, d)``; times: their stamps, numbers or dates."""
        self.fit_transform(X, times=times)
        return self

    def fit_transform(self, X: Any, y: Any = None, *, times: Any = None) -> Numbers:
        """Track the matrices X and return them transformed, ``(n_matrices, d, d)``."""
        matrices = self._matrices(X)
        self.n_features_in_ = d = matrices.shape[-1]
        self.tracker_ = KGMRF(
            d,
            n_samples=2.0 * d if self.n_samples is None else self.n_samples,
            gains=self.gains,
            noise_floor=self.noise_floor,
            on_invalid=self.on_invalid,
        )
        self._blank = self.tracker_.copy()
        return self._through(self.tracker_, matrices, times)

    def transform(self, X: Any, *, times: Any = None) -> Numbers:
        """The matrices X ``(n_matrices, d, d)``, transformed; the transformer is not changed."""
        check_is_fitted(self)
        tracker = (self.tracker_ if self.go_on else self._blank).copy()
        return self._through(tracker, self._matrices(X), times)

    def _matrices(self, X: Any) -> Numbers:
        array = check_array(
            _check.fill_masked(X), dtype=np.float64, ensure_all_finite="allow-nan", allow_nd=True
        )
        if array.ndim != 3:
            raise ValueError(
                f"X must be matrices of shape (n_matrices, d, d), got shape {array.shape}; "
                "make them with pyriemann.estimation.Covariances, for example"
            )
        return array

    def _through(self, tracker: KGMRF, matrices: Numbers, times: Any) -> Numbers:
        return tracker.filter(matrices, times=times).covariance
