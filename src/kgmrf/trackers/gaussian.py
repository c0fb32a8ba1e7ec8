"""A stream of samples whose mean drifts while their covariance turns: mean x covariance."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from kgmrf import _check
from kgmrf._align import OnOverlap
from kgmrf._check import ObservationError
from kgmrf._mask import as_mask
from kgmrf._time import Clock
from kgmrf._types import Mask, Numbers
from kgmrf.model.density import Density
from kgmrf.model.factors import FactorDensity
from kgmrf.model.tail import chi_squared_tail
from kgmrf.results import Estimate, Result, Values, stacked
from kgmrf.trackers._contract import Tracker
from kgmrf.trackers._files import rebuilt
from kgmrf.trackers._samples import CovarianceTracker
from kgmrf.trackers.kgmrf import KGMRF
from kgmrf.trackers.product import Composite, ProductEstimate, ProductResult
from kgmrf.trackers.vector import VectorTracker


def _wider(density: Density | FactorDensity, s: Numbers) -> Density | FactorDensity:
    """The density whose scale is (1 + s_i s_j) times that of another, s ``(..., d)``."""
    if isinstance(density, FactorDensity):
        loadings = np.concatenate([density.loadings, s[..., None] * density.loadings], axis=-1)
        return replace(density, loadings=loadings, noise=density.noise * (1.0 + s * s))
    return replace(density, scale=density.scale * (1.0 + s[..., :, None] * s[..., None, :]))


LEAST_SHARE = 1e-12
"""Directions with less than this share of a channel's variance count as having none."""


class GaussianEstimate(ProductEstimate):
    """What is known of a Gaussian: ``mean``, ``covariance``; ``estimate["mean"]`` has the rest.

    >>> KineticGaussian().update([[1.0, 2.0], [3.0, 2.0]]).mean
    array([2., 2.])
    """

    @property
    def mean(self) -> Numbers:
        """Estimate of the mean, (..., d)."""
        return self["mean"].position

    @property
    def covariance(self) -> Numbers:
        """Estimate of the covariance about the mean, (..., d, d)."""
        return self["covariance"].covariance

    @property
    def density(self) -> Density | FactorDensity:
        """The density of x - `mean`, wider by what is not known of the mean.

        Of ``forecast(h)`` it is that of the observation h steps ahead. The error of the mean has
        the covariance s_i s_j S_ij, so its scale is (1 + s_i s_j) times that of the covariance.
        """
        part = self["covariance"]
        size = np.sqrt(np.diagonal(part.covariance, axis1=-2, axis2=-1))
        return _wider(part.density, self["mean"].std / np.where(size > 0.0, size, 1.0))

    def log_density(self, x: Any) -> Numbers:
        """log p(x) of vectors ``(..., d)``; NaN cells are integrated out."""
        return self.density.log_density(np.asarray(x, dtype=float) - self.mean)

    def mahalanobis(self, x: Any) -> Numbers:
        """Squared distance of vectors ``(..., d)`` from the mean; compare with `region`."""
        return self.density.mahalanobis(np.asarray(x, dtype=float) - self.mean)

    def region(self, level: float) -> Numbers:
        """The squared distance within which an observation falls with this probability."""
        return self.density.region(level)


class GaussianResult(GaussianEstimate, ProductResult):
    """What was known of a Gaussian at every time; `GaussianEstimate`, time first.

    >>> KineticGaussian().filter([[1.0, 2.0], [3.0, 2.0], [2.0, 1.0]]).mean.shape
    (3, 2)
    """

    _estimate = GaussianEstimate


class KineticGaussian(Composite):
    """x ~ N(mu_t, S_t): follow a drifting mean and a turning covariance from the samples alone.

    In units of S every channel has the same Kalman filter: the error of its mean has variance p,
    that of the mean of n samples 1/n. So the mean needs no S, and what is left of the samples is
    taken in by ``covariance``: those within a block about their mean, and the surprise of that mean
    divided by sqrt(1 + n p), by which it has the variance S/n that it should have. What is not
    known of the mean is never taken for covariance. The first sample of a channel only tells where
    it is.

    Samples are ``(d,)``, or ``(..., m, d)`` for blocks. Missing samples are NaN; a partly missing
    one counts with what is there. The log-likelihood is that of the samples under the forecast of
    ``covariance`` about the predicted mean, and NaN where ``covariance`` has none.

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    covariance : Tracker or dict[str, Any], default None
        A tracker of covariances; None: ``KGMRF(d)``.
    mean_acceleration, mean_noise, mean_rate_prior : float, default 1e-5, 0.0 and 1e-2
        Of the mean as in `VectorTracker`, but in units of the covariance itself, so that nothing
        depends on the units of the samples.
    mean_retention : float, default 1.0
        Share of the mean's velocity that survives a unit of time.
    time_unit : float, default None
        The usual time between steps in units of ``times``, as for every tracker; None takes that of
        ``covariance``, or the median of the first eight intervals.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drifting = rng.standard_normal((400, 2)) * [3.0, 1.0] + 0.2 * np.arange(400.0)[:, None]
    >>> result = KineticGaussian().filter(drifting)
    >>> bool(np.abs(result.mean[-1] - 0.2 * 399).max() < 2.0)
    True
    >>> result.covariance.shape
    (400, 2, 2)
    """

    kind = "product"
    axes = 2
    _state_attributes = ("components", "_scores")
    _scores: Numbers  # (3, ...): nis and log-likelihood of the last mean, and that of all samples

    def __init__(
        self,
        d: int | None = None,
        *,
        covariance: Tracker | dict[str, Any] | None = None,
        mean_acceleration: float = 1e-5,
        mean_noise: float = 0.0,
        mean_retention: float = 1.0,
        mean_rate_prior: float = 1e-2,
        time_unit: float | None = None,
    ) -> None:
        part = KGMRF(d) if covariance is None else covariance
        part = rebuilt(part) if isinstance(part, dict) else part
        if not isinstance(part, CovarianceTracker) or part.now is not None:
            raise ValueError(f"covariance must be a fresh tracker of covariances, got {part!r}")
        if d is not None and part.d not in (None, d):
            raise ValueError(f"covariance has d = {part.d}, but d = {d}")
        unit = part.time_unit if time_unit is None else time_unit
        super().__init__(part.d if d is None else d, None, "raise", unit)
        part.clock = Clock(1.0)  # it gets its time counted already
        self.covariance = part
        self.mean_acceleration = _check.in_range(
            mean_acceleration, "mean_acceleration", 0.0, np.inf
        )
        self.mean_noise = _check.in_range(mean_noise, "mean_noise", 0.0, np.inf)
        self.mean_retention = _check.in_range(mean_retention, "mean_retention", 1e-6, 1.0)
        self.mean_rate_prior = _check.in_range(
            mean_rate_prior, "mean_rate_prior", 0.0, np.inf, open_low=True
        )
        mean = VectorTracker(
            noise_std=1.0,
            acceleration=mean_acceleration,
            position_noise=mean_noise,
            retention=mean_retention,
            rate_prior=mean_rate_prior,
        )
        self.components = {"mean": mean, "covariance": part}

    # ------------------------------------------------------------------ the public contract

    def partial_fit(self, samples: Any, *, dt: float = 1.0) -> GaussianEstimate:
        """The same as `update`, by the name that covariance trackers use for raw samples."""
        return self.update(samples, dt=dt)  # type: ignore[return-value]

    def filter(  # type: ignore[override]
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        on_overlap: OnOverlap = "raise",
    ) -> GaussianResult:
        """Run over samples ``(T, d)`` or blocks of them ``(T, ..., m, d)``.

        times: ``(T,)`` time stamps; mask: ``(T, ...)``, True where there is an observation. Tables
        and recordings as for every tracker; on_overlap likewise.
        """
        record = self.prepare_sequence(sequence, times=times, mask=mask, on_overlap=on_overlap)
        self.channels = record.channels or self.channels
        self.until = self.until if record.until is None else record.until
        looks = [self.current_values() for _ in self._steps(record)]
        means, covariances, joint = zip(*looks, strict=True)
        parts = {"mean": Result(stacked(means)), "covariance": Result(stacked(covariances))}
        for part in parts.values():
            part.with_labels(self.channels, record.index)
        return self.in_stamp_units(GaussianResult(parts, np.stack(joint)), record.times)

    def in_stamp_units(self, what: Any, times: Any = None) -> Any:
        """An estimate or result with its times in units of the stamps."""
        converted = {
            name: super(KineticGaussian, self).in_stamp_units(part, times)
            for name, part in what.items()
        }
        return type(what)(converted, what._log_likelihood)

    def _estimate_of_values(self, values: Any) -> GaussianEstimate:
        mean, covariance, joint = values
        parts = {"mean": Estimate(mean), "covariance": Estimate(covariance)}
        return self.in_stamp_units(GaussianEstimate(parts, joint))

    def current_values(self) -> Any:
        """The fields of mean and covariance as they stand now, and the joint likelihood."""
        part: Any = self.components["mean"]
        scatter = self.covariance.forecast_scatter(0.0)
        nis, log_likelihood, joint = self._scores
        mean = _in_units(part.current_values(), scatter, nis, log_likelihood, part._values)
        return mean, self.covariance.current_values(), joint

    def predicted_values(self, dt: float) -> Any:
        """The same ``dt`` of counted time from now."""
        nan = np.full_like(self._scores[0], np.nan)
        mean = self.components["mean"].predicted_values(dt)
        scatter = self.covariance.forecast_scatter(dt)
        return _in_units(mean, scatter, nan, nan, nan), self.covariance.predicted_values(dt), nan

    # ------------------------------------------------------------------ one step

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step; an error, such as a covariance tracker may raise, changes nothing."""
        step, mean = float(np.max(dt, initial=0.0)), self.components["mean"]
        expected, scatter = mean.predicted_values(step), self.covariance.forecast_scatter(step)
        there = ~np.isnan(seen)
        n = there.sum(axis=-2)
        centre = np.where(there, seen, 0.0).sum(axis=-2) / np.where(n > 0, n, np.nan)
        known = ~np.isnan(expected["position"])
        wider = 1.0 + n * np.where(known, expected["std"], 0.0) ** 2
        surprise = (centre - expected["position"]) / np.sqrt(wider)
        rest = seen - centre[..., None, :]
        # Without a mean from before, n samples are worth n - 1.
        alone = rest * np.sqrt(n / np.where(n > 1, n - 1.0, np.nan))[..., None, :]
        deviations = np.where(known[..., None, :], rest + surprise[..., None, :], alone)
        with self.transaction():
            mean.advance(centre, observed, np.eye(n.shape[-1]) / np.maximum(n, 1)[..., None], dt)
            self.covariance.partial_fit(deviations, dt=step)
            used = known & (n > 0)
            spread = 0.5 * np.log(wider).sum(axis=-1, where=used)
            number = 0.5 * np.log(np.maximum(n, 1)).sum(axis=-1, where=used)
            nis, log_likelihood = _surprise(surprise * np.sqrt(n), scatter)
            joint = self.covariance.current_values()["log_likelihood"] - spread
            self._scores = np.stack([nis, log_likelihood + number - spread, joint])

    # ------------------------------------------------------------------ checks and memory

    def validate(
        self, value: Any, mask: Any = None, *, sequence: bool = False
    ) -> tuple[Numbers, Mask]:
        """Samples as ``(..., m, d)``, NaN where the mask is False, and where there are any."""
        if sequence:
            _check.some_frames(value)
        if value is None:
            if self.d is None:
                raise ObservationError("the first frame is None and d is unknown; give d")
            value = np.full((*(self.batch_shape or ()), 1, self.d), np.nan)
        blocks = self.covariance.blocks(
            value if sequence else self._one_row(value), sequence=sequence
        )
        if mask is not None:
            used = as_mask(mask, blocks.shape[:-2])
            blocks = np.where(used[..., None, None], blocks, np.nan)
        return blocks, np.asarray(~np.isnan(blocks).all(axis=(-2, -1)))

    def _trusted(self, observation: Any) -> tuple[Numbers, Mask]:
        return self.validate(observation)

    def _interval(self, dt: Any, batch: tuple[int, ...]) -> Numbers:
        return np.broadcast_to(super()._interval(dt, ()), batch)  # one number for all items

    def allocate(self, shape: tuple[int, ...]) -> None:
        """Allocate for blocks of this shape, unless that is done."""
        if self.batch_shape is None:
            self.d = int(shape[-1])
            for part in self.components.values():
                part.d = self.d
            self.covariance._raw = True  # it gets samples
            super().allocate(tuple(shape[:-2]))
            self._scores = np.full((3, *shape[:-2]), np.nan)


def _in_units(
    mean: Values, scatter: Numbers, nis: Numbers, log_likelihood: Numbers, values: Numbers
) -> Values:
    """The fields of a mean that is known to sqrt(p_i p_j) S_ij; values: numbers behind `nis`."""
    std = mean["std"]
    spread = scatter * std[..., :, None] * std[..., None, :]
    return {
        **mean,
        "std": np.sqrt(np.diagonal(spread, axis1=-2, axis2=-1)),
        "position_covariance": spread,
        "nis": nis,
        "p_value": chi_squared_tail(nis, values),
        "log_likelihood": log_likelihood,
    }


def _surprise(x: Numbers, scatter: Numbers) -> tuple[Numbers, Numbers]:
    """x^T S^-1 x and log N(x; 0, S) of what is there of x ``(..., d)``; NaN where nothing is."""
    size = np.sqrt(np.diagonal(scatter, axis1=-2, axis2=-1))
    there = ~np.isnan(x) & (size > 0.0)
    both = there[..., :, None] & there[..., None, :]
    size = np.where(there, size, 1.0)
    shares = np.where(both, scatter, np.eye(x.shape[-1])) / size[..., :, None] / size[..., None, :]
    values, vectors = np.linalg.eigh(shares)
    proper = values > LEAST_SHARE  # channels may be copies of one another
    along = (np.where(there, x / size, 0.0)[..., None, :] @ vectors)[..., 0, :]
    number = there.sum(axis=-1)
    nis = (along**2 / np.where(proper, values, np.inf)).sum(axis=-1)
    nis = np.where(number > 0, nis, np.nan)
    log_det = np.log(size**2 * np.where(proper, values, 1.0)).sum(axis=-1)
    number = number - (~proper).sum(axis=-1)
    return nis, -0.5 * (number * math.log(2.0 * math.pi) + log_det + nis)
