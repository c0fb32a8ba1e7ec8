"""skfolio: an estimator of a moving covariance, for portfolios and online evaluation."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from kgmrf import _check
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.trackers import KGMRF

with optional():
    from skfolio.moments import BaseCovariance
    from sklearn.utils.validation import validate_data

__all__ = ["KineticCovariance"]


class KineticCovariance(BaseCovariance):  # type: ignore[misc]
    """S_{t+1} ... S_{t+h}, averaged: the covariance of returns forecast for the days after X.

    X: returns ``(n_observations, n_assets)`` in time order. NaN is a holiday, or a day before an
    asset was listed.

    After `fit` or `partial_fit`: `covariance_`, `location_`, `tracker_` (a :class:`kgmrf.KGMRF`).

    Parameters
    ----------
    horizon : int, default 1
        Days ahead, h. `covariance_` is per day, as skfolio's measures are; h times it is the
        covariance of the returns summed over the horizon.
    assume_centered : bool, default True
        Returns have mean zero, for daily means are far below the noise; otherwise each is centred
        on the mean of those before it.
    min_observations : int, default 20
        An asset that has been seen less often has NaN in `covariance_`, which skfolio leaves out of
        the portfolio.
    nearest, higham, higham_max_iteration : default True, False and 100
        As for every covariance of skfolio.

    Examples
    --------
    >>> import numpy as np
    >>> X = 0.01 * np.random.default_rng(0).normal(size=(300, 3)) * [3.0, 2.0, 1.0]
    >>> model = KineticCovariance().fit(X[:250])
    >>> model.partial_fit(X[250:]).covariance_.shape
    (3, 3)
    """

    # skfolio hands the universe of listed assets on by this name.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"active_mask": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"active_mask": True}

    def __init__(
        self,
        horizon: int = 1,
        assume_centered: bool = True,
        min_observations: int = 20,
        nearest: bool = True,
        higham: bool = False,
        higham_max_iteration: int = 100,
    ) -> None:
        super().__init__(
            assume_centered=assume_centered,
            nearest=nearest,
            higham=higham,
            higham_max_iteration=higham_max_iteration,
        )
        self.horizon = horizon
        self.min_observations = min_observations

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, active_mask: Any = None) -> Self:
        """Start again and track the returns X.

        active_mask: ``(n_observations, n_assets)``, False where an asset is not listed; one that is
        not listed on the last day has NaN in `covariance_`.
        """
        return self._follow(X, active_mask, fresh=True)

    def partial_fit(self, X: Any, y: Any = None, *, active_mask: Any = None) -> Self:
        """Continue with the returns X of the following days, one by one or all at once."""
        return self._follow(X, active_mask, fresh=not hasattr(self, "tracker_"))

    def _follow(self, X: Any, active_mask: Any, fresh: bool) -> Self:
        horizon = _check.whole(self.horizon, "horizon")
        least = _check.whole(self.min_observations, "min_observations")
        rows: Numbers = validate_data(
            self,
            _check.fill_masked(X),
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            reset=fresh,
        )
        d = rows.shape[1]
        active = np.ones(rows.shape, dtype=bool)
        if active_mask is not None:
            active = np.asarray(active_mask, dtype=bool)
            if active.shape != rows.shape:
                raise ValueError(f"active_mask has shape {active.shape}, but X has {rows.shape}")
        rows = np.where(active, rows, np.nan)
        if fresh:
            self.tracker_ = KGMRF(d, mean="zero" if self.assume_centered else "expanding")
            self.n_seen_ = np.zeros(d, dtype=int)
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            self.tracker_.channels = tuple(map(str, names))
        self.n_seen_ = self.n_seen_ + (~np.isnan(rows)).sum(axis=0)
        self.tracker_.filter(rows, layout="channels_last", fields=["log_likelihood"])
        covariance = self.tracker_.forecast_total(horizon).covariance / horizon
        unknown = (self.n_seen_ < least) | ~active[-1]
        covariance[unknown] = np.nan
        covariance[:, unknown] = np.nan
        self.location_ = np.where(~active[-1], np.nan, self.tracker_.location)
        self._set_covariance(covariance)
        return self
