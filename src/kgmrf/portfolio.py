"""The density of a portfolio: a mixture of Student-t densities on the line.

    p(y) = sum_k pi_k t_{nu_k}(y; f_k s^2),   y = w^T x,   s^2 = w^T scale w

A weighted sum of the channels of a multivariate t is a univariate t with the same degrees of
freedom, so every component keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._extras import optional
from kgmrf._types import Numbers

if TYPE_CHECKING:
    import pandas

LARGEST_STEPS = 200
"""Newton steps to a quantile; some ten are taken."""


@dataclass(frozen=True)
class PortfolioDensity:
    """Zero-mean density of weighted sums; see `Density.project`.

    Gains are positive: a loss is -y, and value at risk and expected shortfall are sizes of losses.

    Parameters
    ----------
    variance : array
        s^2, ``(...)``.
    tails : array
        Weights of the components, ``(..., K)``.
    dofs : array
        Their degrees of freedom, ``(K,)``.
    factors : array or float, default 1.0
        Their scale over s^2.
    names : default None
        Names of the portfolios, if a table has some.

    Examples
    --------
    >>> import numpy as np
    >>> normal = PortfolioDensity(np.array(4.0), np.ones(1), np.array([1e8]))
    >>> normal.value_at_risk(0.99).round(3), normal.expected_shortfall(0.99).round(3)
    (np.float64(4.653), np.float64(5.33))
    """

    variance: Numbers
    tails: Numbers
    dofs: Numbers
    factors: Numbers | float = 1.0
    names: Any = None

    @property
    def volatility(self) -> Numbers:
        """Standard deviation, ``(...)``."""
        heavy = np.where(self.dofs > 2.0, self.dofs / np.maximum(self.dofs - 2.0, 1e-300), np.inf)
        return np.sqrt(self.variance * (self.tails * self.factors * heavy).sum(axis=-1))[()]

    def cdf(self, y: Any) -> Numbers:
        """P(w^T x <= y), of numbers that broadcast against ``(...)``."""
        from scipy import special  # slow to import, and only densities need it

        at = np.asarray(y, dtype=float)[..., None] / self._sizes()
        return (self.tails * special.stdtr(self.dofs, at)).sum(axis=-1)[()]

    def log_density(self, y: Any) -> Numbers:
        """log p(y), of numbers that broadcast against ``(...)``."""
        from scipy import special

        size = self._sizes()
        at = np.asarray(y, dtype=float)[..., None] / size
        each = _log_t(at, self.dofs) - np.log(size)
        weights = np.broadcast_to(self.tails, each.shape)
        return np.asarray(special.logsumexp(each, axis=-1, b=weights))[()]

    def quantile(self, level: float) -> Numbers:
        """The y below which w^T x falls with this probability, ``(...)``."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        side = 1.0 if level > 0.5 else -1.0
        unit = _upper_quantile(max(level, 1.0 - level), self.tails, self.dofs, self.factors)
        return (side * unit * np.sqrt(self.variance))[()]

    def value_at_risk(self, level: float = 0.99) -> Numbers:
        """The loss that is not exceeded with probability ``level``, ``(...)``."""
        return self.quantile(level)  # a zero-mean symmetric density: losses are as gains

    def expected_shortfall(self, level: float = 0.99) -> Numbers:
        """Mean of the losses beyond the value at risk, E[-y | -y > VaR], ``(...)``.

        Of a component t_nu with density f it is f(z) (nu + z^2)/(nu - 1) in units of its scale,
        and infinite for nu <= 1, as after the first rows of a track.
        """
        size, nu = self._sizes(), self.dofs
        z = np.asarray(self.value_at_risk(level))[..., None] / size
        safe = np.where(nu > 1.0, nu - 1.0, 1.0)
        beyond = np.where(nu > 1.0, np.exp(_log_t(z, nu)) * (nu + z**2) / safe, np.inf)
        each = np.where(self.tails > 0.0, self.tails * size * beyond, 0.0)
        return (each.sum(axis=-1) / (1.0 - level))[()]

    def table(self, levels: tuple[float, ...] = (0.95, 0.99)) -> pandas.DataFrame:
        """A row for every portfolio: volatility, value at risk and expected shortfall.

        >>> import numpy as np
        >>> PortfolioDensity(np.array([1.0, 4.0]), np.ones(1), np.array([1e8])).table().round(2)
           volatility  VaR 95%  ES 95%  VaR 99%  ES 99%
        0         1.0     1.64    2.06     2.33    2.67
        1         2.0     3.29    4.13     4.65    5.33
        """
        with optional():
            import pandas as pd

        if np.ndim(self.variance) > 1:
            raise ValueError(
                f"portfolios of shape {np.shape(self.variance)} are no table; give weights (P, d) "
                "to the density of one forecast"
            )
        columns = {"volatility": np.atleast_1d(self.volatility)}
        for level in levels:
            columns[f"VaR {100 * level:g}%"] = np.atleast_1d(self.value_at_risk(level))
            columns[f"ES {100 * level:g}%"] = np.atleast_1d(self.expected_shortfall(level))
        return pd.DataFrame(columns, index=self.names)

    def _sizes(self) -> Numbers:
        """Scale of every component, ``(..., K)``."""
        return np.sqrt(np.asarray(self.variance)[..., None] * self.factors)


def _log_t(z: Numbers, nu: Numbers) -> Numbers:
    from scipy import special

    rise = special.gammaln(0.5 * (nu + 1.0)) - special.gammaln(0.5 * nu)
    return rise - 0.5 * np.log(np.pi * nu) - 0.5 * (nu + 1.0) * np.log1p(z**2 / nu)


def _upper_quantile(level: float, tails: Numbers, nu: Numbers, factors: Any) -> Numbers:
    """The quantile above the median of sum_k pi_k t_{nu_k}(0, f_k), for a level from 1/2 on."""
    from scipy import special

    size = np.sqrt(np.broadcast_to(factors, np.broadcast_shapes(np.shape(factors), tails.shape)))
    bounds = size * special.stdtrit(nu, level)
    y = bounds.min(axis=-1)
    # Above the median the distribution function is concave: from below, Newton never goes too far.
    for _ in range(LARGEST_STEPS):
        z = y[..., None] / size
        missing = (tails * special.stdtr(nu, -z)).sum(axis=-1) - (1.0 - level)
        step = missing / (tails * np.exp(_log_t(z, nu)) / size).sum(axis=-1)
        y = y + step
        if not (np.abs(step) > 1e-13 * np.abs(y)).any():
            break
    return y


def as_weights(weights: Any, d: int, channels: tuple[str, ...] | None) -> tuple[Numbers, Any]:
    """Weights ``(..., d)`` in the order of the channels, and the names of a table's rows.

    A dict, a series or a table (a row for each portfolio) is read by name; who is not named has
    the weight 0.

    Parameters
    ----------
    weights
        Weights, by position, or by name in a table or series.
    d : int
        Number of channels.
    channels : tuple[str, ...]
        Names of the channels, or None.
    """
    if isinstance(weights, Mapping):
        names, values, rows = list(weights), np.asarray(list(weights.values()), dtype=float), None
    elif hasattr(weights, "columns") and hasattr(weights, "to_numpy"):
        names, values = list(weights.columns), np.asarray(weights.to_numpy(), dtype=float)
        rows = getattr(weights, "index", None)
    elif hasattr(weights, "index") and hasattr(weights, "to_numpy"):
        names, values, rows = list(weights.index), np.asarray(weights.to_numpy(), dtype=float), None
    else:
        names, values, rows = None, np.asarray(weights, dtype=float), None
    if names is not None and channels is not None:
        values = _aligned(values, [str(name) for name in names], channels)
    elif isinstance(weights, Mapping):
        raise ObservationError(
            f"weights name {', '.join(map(str, names or ()))}, but this forecast has no names; "
            "follow a table with names, or give the weights as an array"
        )
    if values.ndim < 1 or values.shape[-1] != d:
        raise ObservationError(f"weights must have shape (..., {d}), got {values.shape}")
    if not np.isfinite(values).all():
        raise ObservationError(
            f"weights hold {int((~np.isfinite(values)).sum())} values that are not finite; "
            "an asset that is not held has the weight 0"
        )
    return values, rows


def _aligned(values: Numbers, names: list[str], channels: tuple[str, ...]) -> Numbers:
    unknown = [name for name in names if name not in channels]
    if unknown:
        raise ObservationError(
            f"weights name {', '.join(unknown)}; the channels are {', '.join(channels)}"
        )
    if len(set(names)) < len(names):
        raise ObservationError(f"weights name a channel twice: {', '.join(names)}")
    out = np.zeros((*values.shape[:-1], len(channels)))
    out[..., [channels.index(name) for name in names]] = values
    return out
