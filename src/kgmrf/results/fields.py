"""The fields of estimates and results, each built when it is first looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from kgmrf import _deprecated
from kgmrf._types import Numbers
from kgmrf.model.density import GAUSSIAN, Density, components
from kgmrf.model.factors import DENSE, FactorDensity, derived, heaviness, solve
from kgmrf.model.tail import surprise
from kgmrf.results.rotation_fields import Field, RotationFields
from kgmrf.youth import widening

Values = Mapping[str, Numbers]


def _seen(variances: Numbers) -> Numbers:
    """How many channels have a variance, ``(...)``."""
    return np.asarray((~np.isnan(variances)).sum(axis=-1))


class _Fields(RotationFields):
    """Named arrays, computed once on demand.

    channels: the names of the channels, if what was followed had names, or None.
    index: labels of the rows (dates, seconds), if it had those, or None.
    """

    time = Field()
    """Time of the step, (...)."""
    age = Field()
    """Time since the last observation, (...); NaN before the first."""
    covariance = Field()
    """Estimate of M, (..., d, d)."""
    loadings = Field()
    """Factors of a covariance of many channels, (..., d, k): see `noise`."""
    noise = Field()
    """Diagonal beside the factors, (..., d): covariance = loadings loadings^T + diag(noise)."""
    position = Field()
    """Estimate of a vector, (..., d); NaN for components that were never seen."""
    std = Field()
    """Standard deviation of every component of a vector, (..., d)."""
    position_covariance = Field()
    """Covariance of the error of a vector, (..., d, d)."""
    frame = Field()
    """Eigenframe of the covariance, columns by descending eigenvalue, det +1, (..., d, d)."""
    spectrum = Field()
    """Eigenvalues of the covariance, descending, (..., d)."""
    angle_std = Field()
    """Standard deviation of the angle in each plane (i, j), radians, (..., d, d)."""
    nis = Field()
    """Surprise of the observation: chi-squared with d(d-1)/2 degrees of freedom, (...).

    Of a single law the normalised innovation squared, summed over planes. Of the self-tuned tracker
    the chi-squared value that is as improbable as the observation under its Student-t forecast.
    """
    log_likelihood = Field()
    """One-step-ahead log-likelihood of the observation, nats, (...)."""
    p_value = Field()
    """Probability of an observation at least as far from its forecast, (...); NaN where nothing was
    seen or forecast.

    Of the self-tuned tracker the tail of its density (:func:`kgmrf.model.tail.tail_probability`);
    of a single law, a rotation or a vector that of `nis`, which is chi-squared.
    """
    scale = Field()
    """Scale matrix of the forecast's Student-t density, (..., d, d)."""
    mean = Field()
    """Mean that was forecast for the row, (..., d), with ``KGMRF(mean="linear")``; the covariance
    is that about it."""
    tails = Field()
    """Weight of each degree of freedom (3, 6, 12, 1e5) of that density, (..., 4)."""
    size_std = Field()
    """Standard deviation of the log size of that density, (...): 0 one step ahead, and the larger
    the longer nothing was seen. Each tail comes in three sizes; see
    `kgmrf.model.density.components`."""
    doubt = Field()
    """How little the forecast of a young track knows, (...): 1 after one sample, 0 after 5 (d + 2).
    The tails of the density become 1/(1/nu + doubt), its scale grows; see :mod:`kgmrf.youth`."""
    steps = Field()
    """How many observations are summed, of `forecast_total`, (...)."""
    dof = Field()
    """Degrees of freedom of the one Student-t with the same second moment, (...)."""
    weights = Field()
    """Weight of each member of a self-tuned tracker, (..., K)."""
    half_life = Field()
    """Time after which a self-tuned tracker has half forgotten an observation, (...)."""
    is_initial = Field()
    """Whether fewer than 2 d samples are behind the estimate, (...)."""

    time_scale = Field()
    """Rows ahead on which the covariance of a signal was judged, (...); 1: one row, as it is of
    observations that do not predict each other. See ``KGMRF(time_scale=)``."""
    effective_samples = Field()
    """How many independent samples that many rows are worth, (...); see `time_scale`."""

    channels: tuple[str, ...] | None = None
    index: Any = None
    integrated_time: float = np.nan
    """Of a result of raw rows: tau of the first 2,048 that were filtered, the number of rows after
    which a row is new (:func:`kgmrf.model.integrated_time.integrated_time`); NaN where it is
    unknown."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def with_labels(self, channels: tuple[str, ...] | None, index: Any = None) -> Self:
        """The same with names for its channels, and for its rows."""
        self.channels, self.index = channels, index
        return self

    def _derived(self, name: str) -> Numbers:
        """A field that is not among the values."""
        if name in DENSE and "loadings" in self._values:
            heavy = heaviness(self.tails, self.size_std)
            return derived(name, self.loadings, self.noise, heavy)
        kinds = {"rotation": "rotation", "position": "vector"}
        kind = next((word for name, word in kinds.items() if name in self._values), "covariance")
        raise AttributeError(
            f"this tracker follows a {kind} and has no {name!r}; it has {', '.join(self._values)}"
        ) from None

    def __getstate__(self) -> dict[str, Any]:
        # What makes the fields may hold a whole sequence: what travels is the numbers.
        values = {name: np.array(value) for name, value in self.as_dict().items()}
        return {"_values": values, "channels": self.channels, "index": self.index}

    def as_dict(self) -> Values:
        """All fields by name."""
        return {name: getattr(self, name) for name in self.fields()}

    def fields(self) -> tuple[str, ...]:
        """The names of the fields that this tracker fills."""
        return tuple(self._values)

    @property
    def surprise(self) -> Numbers:
        """-log10 of `p_value`, (...): 3 is one in a thousand."""
        return surprise(self.p_value)

    @property
    def volatility(self) -> Numbers:
        """Standard deviation of every channel: sqrt(M_ii), (..., d)."""
        variances = np.diagonal(self.covariance, axis1=-2, axis2=-1)
        return np.sqrt(np.maximum(variances, 0.0))

    @property
    def correlation(self) -> Numbers:
        """M_ij / sqrt(M_ii M_jj), (..., d, d); 0 beside a channel without any variance."""
        size = self.volatility
        safe = np.where(size == 0, 1.0, size)
        shares = self.covariance / (safe[..., :, None] * safe[..., None, :])
        d = size.shape[-1]
        return np.where(np.eye(d, dtype=bool) & ~np.isnan(shares), 1.0, shares)

    def solve(self, x: Any) -> Numbers:
        """covariance^-1 x of vectors ``(..., d)``; of factors without a d x d array."""
        if "loadings" in self.fields():
            return solve(self.loadings, self.noise, x)
        vectors = np.asarray(x, dtype=float)
        return np.asarray(np.linalg.solve(self.covariance, vectors[..., None])[..., 0])

    @property
    def density(self) -> Density | FactorDensity:
        """The density that the estimate stands for: Student-t where there are tails, or Gaussian.

        Of ``forecast(h)`` it is the density of the next observation.
        """
        if "loadings" in self.fields():
            grow = heaviness(self.tails, self.size_std)[..., None]
            loadings = self.loadings / np.sqrt(grow[..., None])
            wide = widening(self.doubt, _seen(self.noise))
            parts = components(self.tails, self.size_std, 1.0, self.doubt, wide)
            return FactorDensity(loadings, self.noise / grow, *parts, channels=self.channels)
        if "tails" in self.fields():
            wide = widening(self.doubt, _seen(np.diagonal(self.scale, axis1=-2, axis2=-1)))
            steps = self._values.get("steps", 1.0)
            parts = components(self.tails, self.size_std, steps, self.doubt, wide)
            mean = self.mean if "mean" in self.fields() else 0.0
            return Density(self.scale, *parts, channels=self.channels, mean=mean)
        ones = np.ones((*self.covariance.shape[:-2], 1))
        return Density(self.covariance, ones, np.array([GAUSSIAN]), channels=self.channels)

    def log_density(self, x: Any) -> Numbers:
        """log p(x) of vectors ``(..., d)`` under `density`; NaN cells are integrated out."""
        return self.density.log_density(x)

    def channel_p_value(self, x: Any) -> Numbers:
        """Two-sided p-value of each channel of x given all others, ``(..., d)``, under `density`.

        Of ``forecast(1)`` and the next observation it tells which channel is not as expected.

        >>> from kgmrf import KGMRF
        >>> tracker = KGMRF()
        >>> x = np.random.default_rng(0).normal(size=(500, 2))
        >>> _ = tracker.filter(x @ [[1.0, 0.9], [0.0, 0.4]])
        >>> bool((tracker.forecast(1).channel_p_value([1.0, -1.0]) < 0.01).all())
        True
        """
        return self.density.channel_p_value(x)

    def contribution(self, x: Any) -> Numbers:
        """What each channel adds to ``mahalanobis(x)``, ``(..., d)``: they sum to it."""
        return self.density.contribution(x)

    def mahalanobis(self, x: Any) -> Numbers:
        """x^T scale^-1 x of vectors ``(..., d)``; compare with `region`."""
        return self.density.mahalanobis(x)

    def region(self, level: float) -> Numbers:
        """The squared distance within which an observation falls with this probability."""
        return self.density.region(level)


FIELDS = tuple(
    name
    for kind in (_Fields, RotationFields)
    for name, value in vars(kind).items()
    if isinstance(value, Field)
)
"""The names of all fields. A tracker fills those that it knows: see `Estimate.fields`."""


_Fields.starting = _deprecated.attribute("is_initial")  # type: ignore[attr-defined]
