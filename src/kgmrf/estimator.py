"""The scikit-learn face: a covariance that moves, and a step for pipelines of matrices."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np

from kgmrf import _check
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.gains import Gains, transition
from kgmrf.geometry import so
from kgmrf.labelled import as_blocks, window_stamps
from kgmrf.results import Result
from kgmrf.trackers import KGMRF

with optional():
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data

__all__ = ["KineticCovariance", "KineticTransformer", "OnlineRecenter"]


class KineticCovariance(BaseEstimator):  # type: ignore[misc]
    """S_t, the covariance of the rows of X as it stands at the last of them.

    X: ``(n_times, n_channels)``, rows in time order, NaN where a channel was not seen. The words
    of :class:`sklearn.covariance.EmpiricalCovariance` have their meaning there: `covariance_`,
    `location_`, `get_precision`, `score`, `mahalanobis`; a row with NaN counts by its other
    channels.

    window: rows per frame of the tracker; the last frame of a call may be shorter.
    assume_centered: X has mean zero already; otherwise each row is centred on the mean of the rows
    before it, as ``mean`` says: "running", or "drift" for a mean that moves (`location_` is its
    last value).
    gains, noise_floor, spectrum, spectrum_rate, scale_rate: as for
    :class:`kgmrf.KGMRF`; the last three are for a single gain law only, such as
    ``gains="information"``.

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
        spectrum: Any = "adaptive",
        spectrum_rate: float = 1e-4,
        scale_rate: float = 0.0,
    ) -> None:
        self.window = window
        self.assume_centered = assume_centered
        self.mean = mean
        self.gains = gains
        self.noise_floor = noise_floor
        self.spectrum = spectrum
        self.spectrum_rate = spectrum_rate
        self.scale_rate = scale_rate

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Forget everything and follow the rows of X; times: their stamps, numbers or dates."""
        self._follow(X, True, times)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Go on with the rows of X; in chunks (multiples of the window) as well as whole."""
        self._follow(X, not hasattr(self, "tracker_"), times)
        return self

    def track(self, X: Any, *, times: Any = None) -> Any:
        """Fit to X and return the covariance at every frame; times: stamps of the rows.

        An array gives ``(n_frames, d, d)``. A pandas table gives what ``X.ewm(...).cov()`` gives:
        one block of rows per frame under the index of its last row, channels in rows and columns.
        """
        covariances = self._follow(X, True, times).covariance
        if hasattr(X, "iloc"):
            return as_blocks(covariances, X, self.window)
        return covariances

    def _follow(self, X: Any, fresh: bool, times: Any = None) -> Result:
        window = _whole(self.window, "window")
        # Centring takes one row: a second one must be there to show any spread.
        least = 1 if self.assume_centered or not fresh else 2
        rows = validate_data(
            self,
            _check.unmasked(X),
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=least,
            reset=fresh,
        )
        if fresh:
            self.tracker_ = KGMRF(
                rows.shape[1],
                gains=self.gains,
                noise_floor=self.noise_floor,
                spectrum=self.spectrum,
                spectrum_rate=self.spectrum_rate,
                scale_rate=self.scale_rate,
                mean="zero" if self.assume_centered else self.mean,
            )
            if hasattr(self, "feature_names_in_"):
                self.tracker_.channels = tuple(map(str, self.feature_names_in_))
            self.n_samples_seen_ = 0
        self.n_samples_seen_ += len(rows)
        short = -len(rows) % window
        padded = np.vstack([rows, np.full((short, rows.shape[1]), np.nan)])
        blocks = padded.reshape(-1, window, rows.shape[1])
        times = window_stamps(times, len(rows), window)
        result = self.tracker_.filter(blocks, samples=True, times=times)
        self._settle(result, rows)
        return result

    def _settle(self, result: Result, rows: Numbers) -> None:
        scatter = self.noise_floor * np.eye(rows.shape[1])
        last = result[-1]  # of many channels the matrices of all rows would not fit into memory
        self.covariance_ = last.covariance + scatter
        self.location_ = self.tracker_.location
        self.frame_, self.spectrum_, self.velocity_ = last.frame, last.spectrum, last.velocity
        likelihood = result.log_likelihood
        scored = np.isfinite(likelihood)
        per_frame = likelihood[scored].mean() if scored.any() else np.nan
        self.log_likelihood_ = float(per_frame) / self.window

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
        rows = validate_data(
            self,
            _check.unmasked(X),
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            reset=False,
        )
        rows = rows - self.location_
        there = ~np.isnan(rows)
        distance = np.full(len(rows), np.nan)
        log_det = np.full(len(rows), np.nan)
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
    """C_t -> S_t, or C_t -> A C_t A^T where A whitens the S predicted for it from the past.

    For pipelines of covariance matrices ``(n_matrices, d, d)`` in time order, such as
    pyRiemann's.

    output: "estimate" replaces every matrix by the tracked one, S_t. "recentred" takes the slow
    change of a whole recording off and leaves what is special about each matrix: A = S^{-1/2}.
    "body" does the same in the turning eigenframe, A = diag(lam)^{-1/2} Q^T, which takes off a
    rotation of the channels too; eigenvectors have a sign, so that training and test must be one
    track: use it with ``go_on=True``. The first matrix of all is whitened by itself.
    n_samples: samples behind each matrix; None takes 2 d, a cautious guess.
    go_on: True lets `transform` continue in time where `fit` ended; False starts anew, so that
    ``fit(X).transform(X)`` is ``fit_transform(X)``.
    gains, spectrum_rate, scale_rate, noise_floor, on_invalid: as for :class:`kgmrf.KGMRF`.

    >>> import numpy as np
    >>> X = np.tile(np.diag([2.0, 0.5]), (20, 1, 1))
    >>> KineticTransformer(n_samples=50).fit_transform(X)[-1].round(1)
    array([[2. , 0. ],
           [0. , 0.5]])
    >>> KineticTransformer(n_samples=50, output="recentred").fit_transform(X)[-1].round(1)
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(
        self,
        *,
        output: Literal["estimate", "recentred", "body"] = "estimate",
        n_samples: float | None = None,
        go_on: bool = False,
        gains: str | Gains = "auto",
        spectrum_rate: float = 1e-4,
        scale_rate: float = 0.0,
        noise_floor: float = 0.0,
        on_invalid: Literal["raise", "skip", "repair"] = "raise",
    ) -> None:
        self.output = output
        self.n_samples = n_samples
        self.go_on = go_on
        self.gains = gains
        self.spectrum_rate = spectrum_rate
        self.scale_rate = scale_rate
        self.noise_floor = noise_floor
        self.on_invalid = on_invalid

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Follow the matrices X ``(n_matrices, d, d)``; the labels y are not used."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Numbers:
        """Follow the matrices X and return them transformed, ``(n_matrices, d, d)``."""
        matrices = self._matrices(X)
        self._word = _check.choice(self.output, ("estimate", "recentred", "body"), "output")
        d = matrices.shape[-1]
        self.n_features_in_ = d
        self.tracker_ = KGMRF(
            d,
            gains=self.gains,
            spectrum_rate=self.spectrum_rate,
            scale_rate=self.scale_rate,
            noise_floor=self.noise_floor,
            n_samples=2.0 * d if self.n_samples is None else self.n_samples,
            on_invalid=self.on_invalid,
        )
        self._blank = self.tracker_.copy()
        return self._through(self.tracker_, matrices)

    def transform(self, X: Any) -> Numbers:
        """The matrices X ``(n_matrices, d, d)``, transformed; the transformer stays as it is."""
        check_is_fitted(self)
        tracker = (self.tracker_ if self.go_on else self._blank).copy()
        return self._through(tracker, self._matrices(X))

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

    def _through(self, tracker: KGMRF, matrices: Numbers) -> Numbers:
        began = None if tracker.batch_shape is None else tracker.estimate()
        result = tracker.filter(matrices)
        if self._word == "estimate":
            return result.covariance
        return self._whitened(matrices, began, result)

    def _whitened(self, matrices: Numbers, began: Any, result: Result) -> Numbers:
        """A C A^T, with A from the estimate before, turned on; of the very first, from itself."""
        # The self-tuning tracker tells the angle that it will turn by in a unit of time.
        law = self.tracker_.gains
        turn = 1.0 if isinstance(law, str) else transition(law, np.asarray(1.0)).turn
        d = matrices.shape[-1]
        first = result.frame[:1]
        if began is not None:
            first = (began.frame @ so.exp(turn * began.velocity)).reshape(1, d, d)
        ahead = result.frame[:-1] @ so.exp(turn * result.velocity[:-1])
        frame = np.concatenate([first, ahead])
        before = result.spectrum[:1] if began is None else began.spectrum.reshape(1, d)
        spectrum = np.concatenate([before, result.spectrum[:-1]])
        spectrum = spectrum + self.noise_floor
        # Before there are as many samples as channels some eigenvalues are zero.
        roots = np.sqrt(np.maximum(spectrum, 1e-12 * spectrum[:, :1]))[:, :, None]
        whitener = np.swapaxes(frame, -1, -2) / roots
        if self._word == "recentred":
            whitener = frame @ whitener
        return whitener @ matrices @ np.swapaxes(whitener, -1, -2)


class OnlineRecenter(KineticTransformer):
    """C_t -> S^{-1/2} C_t S^{-1/2}, where S is forecast for C_t from the matrices before it.

    Takes the slow change of a recording off (another session, electrodes that drift) and leaves
    what is special about each matrix, for a classifier that was trained before the change. Needs no
    labels and no data of the new session beforehand. X: ``(n_matrices, d, d)`` in time order, such
    as those of pyRiemann's ``Covariances``.

    `fit` follows the training session. `transform` goes on from there with the matrices of X, one
    after the other, and remembers nothing; `partial_fit` remembers. One epoch at a time:
    ``model.transform(C[None])``, then ``model.partial_fit(C[None])``.

    n_samples: samples behind each matrix; None takes 2 d, a cautious guess: fewer samples let S
    follow more slowly. on_invalid: as for :class:`kgmrf.KGMRF`.

    A sudden change is followed within some tens of epochs; at one that is known, such as the start
    of a new session, call `new_session`, and it takes a few.

    What it cannot do: tell a change of the recording from a change of the classes. Where one class
    comes far more often in the new session, or classes come in long blocks, S moves towards that
    class and the difference that is wanted shrinks.

    >>> import numpy as np
    >>> X = np.tile(np.diag([2.0, 0.5]), (20, 1, 1))
    >>> OnlineRecenter(n_samples=50).fit(X).transform(X)[0].round(1)
    array([[1., 0.],
           [0., 1.]])
    """

    output = "recentred"
    go_on = True
    gains = "auto"
    spectrum_rate, scale_rate, noise_floor = 1e-4, 0.0, 0.0

    def __init__(
        self,
        *,
        n_samples: float | None = None,
        on_invalid: Literal["raise", "skip", "repair"] = "raise",
    ) -> None:
        self.n_samples = n_samples
        self.on_invalid = on_invalid

    def new_session(self) -> Self:
        """Forget the reference: the next matrix starts one. Say it where the recording changes."""
        check_is_fitted(self)
        self.tracker_ = self._blank.copy()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with the matrices X; the first call fits."""
        if not hasattr(self, "tracker_"):
            return self.fit(X)
        self.tracker_.filter(self._matrices(X), fields=["log_likelihood"])
        return self


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)
