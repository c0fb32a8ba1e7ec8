"""scikit-learn: an estimator of a moving covariance, and transformers of matrices in time order."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.gains import Gains
from kgmrf.geometry import so
from kgmrf.labelled import windows
from kgmrf.trackers import KGMRF

with optional():
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data

__all__ = ["KineticCovariance", "KineticTransformer", "OnlineRecenter"]


class KineticCovariance(BaseEstimator):  # type: ignore[misc]
    """S_t, the covariance of the rows of X as it stands at the last of them.

    X: ``(n_times, n_channels)``, rows in time order, NaN where a channel was not seen. Attributes
    and methods are those of :class:`sklearn.covariance.EmpiricalCovariance`: `covariance_`,
    `location_`, `get_precision`, `score`, `mahalanobis`; of rows with NaN the rest counts.

    window: rows per step of the tracker; the last step of a call may be shorter.
    assume_centered: X has mean zero. Otherwise each row is centred on the mean of the rows before
    it: ``mean="running"``, or "drift" for a mean that moves (`location_` is its last value).
    gains, noise_floor: as for :class:`kgmrf.KGMRF`.

    After `fit`: `covariance_` ``(d, d)``, `location_` ``(d,)``, `frame_`, `spectrum_`,
    `velocity_` (see :data:`kgmrf.results.FIELDS`), `log_likelihood_` (mean one-step-ahead
    log-likelihood per row of the last call, NaN before there is one), `tracker_`.

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
        mean: str = "running",
        gains: str | Gains = "auto",
        noise_floor: float = 0.0,
    ) -> None:
        self.window = window
        self.assume_centered = assume_centered
        self.mean = mean
        self.gains = gains
        self.noise_floor = noise_floor

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Start anew and track the rows of X; times: their stamps, numbers or dates."""
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
            self.tracker_ = KGMRF(d, mean=mean, gains=self.gains, noise_floor=self.noise_floor)
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
            self, _check.unmasked(X), dtype=np.float64, ensure_all_finite="allow-nan", **options
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

    n_samples: samples behind each matrix; None takes 2 d, a cautious guess.
    go_on: True lets `transform` continue in time where `fit` ended; False starts anew, so that
    ``fit(X).transform(X)`` is ``fit_transform(X)``.
    gains, noise_floor, on_invalid: as for :class:`kgmrf.KGMRF`.

    >>> import numpy as np
    >>> X = np.tile(np.diag([2.0, 0.5]), (20, 1, 1))
    >>> KineticTransformer(n_samples=50).fit_transform(X)[-1].round(1)
    array([[2. , 0. ],
           [0. , 0.5]])
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
            _check.unmasked(X), dtype=np.float64, ensure_all_finite="allow-nan", allow_nd=True
        )
        if array.ndim != 3:
            raise ValueError(
                f"X must be matrices of shape (n_matrices, d, d), got shape {array.shape}; "
                "make them with pyriemann.estimation.Covariances, for example"
            )
        return array

    def _through(self, tracker: KGMRF, matrices: Numbers, times: Any) -> Numbers:
        return tracker.filter(matrices, times=times).covariance


class OnlineRecenter(KineticTransformer):
    """C_t -> S^{-1/2} C_t S^{-1/2}, where S is forecast for C_t from the matrices before it.

    Removes the slow change of a recording (another session, electrodes that drift), for a
    classifier that was trained before the change. Needs no labels and no data of the new session
    beforehand. X: ``(n_matrices, d, d)`` in time order, as from pyRiemann's ``Covariances``. The
    very first matrix is whitened by itself.

    `fit` tracks the training session. `transform` continues from there through the matrices of X,
    one after the other, without changing the state; `partial_fit` changes it. One epoch at a time:
    ``model.transform(C[None])``, then ``model.partial_fit(C[None])``.

    n_samples: samples behind each matrix; None takes 2 d, a cautious guess: S then follows more
    slowly. on_invalid: as for :class:`kgmrf.KGMRF`.
    turning: whiten in the rotating eigenframe, diag(lam)^{-1/2} Q^T, which also removes a rotation
    of the channels. Eigenvectors have a sign: no `new_session` between training and test.

    After a sudden change it needs some tens of epochs. Where the change is known, such as the start
    of a session, call `new_session`: then it needs a few.

    It cannot distinguish a change of the recording from a change of the classes. Where one class is
    far more frequent in the new session, or classes come in long blocks, S moves towards that class
    and the difference between the classes shrinks.

    >>> import numpy as np
    >>> X = np.tile(np.diag([2.0, 0.5]), (20, 1, 1))
    >>> OnlineRecenter(n_samples=50).fit(X).transform(X)[0].round(1)
    array([[1., 0.],
           [0., 1.]])
    """

    go_on, gains, noise_floor = True, "auto", 0.0

    def __init__(
        self,
        *,
        n_samples: float | None = None,
        turning: bool = False,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        self.n_samples = n_samples
        self.turning = turning
        self.on_invalid = on_invalid

    def new_session(self) -> Self:
        """Forget the reference; the next matrix starts a new one. For known starts of a session."""
        check_is_fitted(self)
        self.tracker_ = self._blank.copy()
        return self

    def partial_fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Continue with the matrices X; the first call fits."""
        if not hasattr(self, "tracker_"):
            return self.fit(X, times=times)
        self.tracker_.filter(self._matrices(X), times=times, fields=["log_likelihood"])
        return self

    def _through(self, tracker: KGMRF, matrices: Numbers, times: Any) -> Numbers:
        began = None if tracker.batch_shape is None else tracker.estimate()
        result = tracker.filter(matrices, times=times)
        # The estimate before, turned by the time since; of the very first matrix, its own.
        before = {}
        for name in ("time", "frame", "spectrum", "velocity"):
            value = getattr(result, name)
            first = value[0] if began is None else getattr(began, name)
            before[name] = np.concatenate([first[None], value[:-1]])
        waited = (result.time - before["time"])[:, None, None]
        frame = before["frame"] @ so.exp(waited * before["velocity"])
        # Before there are as many samples as channels some eigenvalues are zero.
        spectrum = np.maximum(before["spectrum"], 1e-12 * before["spectrum"][:, :1])
        whitener = np.swapaxes(frame, -1, -2) / np.sqrt(spectrum)[:, :, None]
        if not self.turning:
            whitener = frame @ whitener
        return whitener @ matrices @ np.swapaxes(whitener, -1, -2)
