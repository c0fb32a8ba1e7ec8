"""Portfolios along a file: what each was forecast to lose, and what it lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kgmrf import metrics
from kgmrf._types import Mask, Numbers
from kgmrf.commands._run import Run
from kgmrf.io import Chunk
from kgmrf.portfolio import PortfolioDensity

NAMES = ("equal weights", "minimum variance")
LEVELS = (0.95, 0.99)


@dataclass(frozen=True)
class Track:
    """One portfolio, one number per scored step."""

    name: str
    returns: Numbers
    value_at_risk: dict[float, Numbers]
    shortfall: dict[float, Numbers]
    volatility: Numbers  # as forecast
    turnover: Numbers  # sum of |changes of weights| before the step

    def beyond(self, level: float) -> Mask:
        """The steps that lost more than the value at risk."""
        return np.asarray(-self.returns > self.value_at_risk[level])

    def tests(self, level: float) -> tuple[metrics.Backtest, metrics.Backtest]:
        """Kupiec's and Christoffersen's."""
        hit = self.beyond(level)
        return metrics.kupiec_test(hit, level), metrics.christoffersen_test(hit, level)


class Portfolios:
    """Walks through a file once more, row by row: forecast, weigh, then look.

    The weights of a step are made from the forecast before it. A channel that is not known yet has
    no weight; a step in which a channel is missing is not scored.
    """

    def __init__(self, run: Run) -> None:
        self._tracker = run.tracker.copy()
        self._before: float | None = None
        self._weights = np.zeros((len(NAMES), run.source.d))
        self._rows: list[tuple[Any, ...]] = []
        self._seen = 0

    def take(self, chunk: Chunk) -> None:
        """The next rows ``(n, d)``."""
        for k, row in enumerate(chunk.values):
            dt = 1.0
            if chunk.times is not None:
                dt = 0.0 if self._before is None else float(chunk.times[k]) - self._before
                self._before = float(chunk.times[k])
            if self._seen:
                self._score(row, self._tracker.forecast(dt))
            self._tracker.partial_fit(row, dt=dt)
            self._seen += 1

    def _score(self, row: Numbers, ahead: Any) -> None:
        weights = _weights(ahead.covariance)
        traded = np.abs(weights - self._weights).sum(axis=-1)
        self._weights = weights
        held = np.where(weights == 0.0, 0.0, weights * row)
        # NaN cells that are not held do not matter.
        density = ahead.density
        one = density.project(weights)
        tails = np.asarray(one.tails)
        mixture = [np.broadcast_to(part, tails.shape) for part in (tails, one.dofs, one.factors)]
        self._rows.append((held.sum(axis=-1), one.variance, np.stack(mixture), traded))

    def tracks(self, first: int) -> tuple[Numbers, list[Track]]:
        """The scored steps, as row numbers of the file from ``first`` on, and every portfolio."""
        if not self._rows:
            return np.empty(0, dtype=int), []
        columns: list[Any] = [*zip(*self._rows, strict=True)]
        returns, variance, traded = (np.stack(columns[k]) for k in (0, 1, 3))
        mixture = _padded(columns[2])
        scored = np.isfinite(returns).all(axis=-1) & np.isfinite(variance).all(axis=-1)
        scored &= np.arange(1, len(scored) + 1) >= first
        which = np.flatnonzero(scored)
        tails, dofs, factors = np.moveaxis(mixture[which, :, None], 1, 0)
        density = PortfolioDensity(variance[which], tails, dofs, factors)
        risk = {level: density.value_at_risk(level) for level in LEVELS}
        shortfall = {level: density.expected_shortfall(level) for level in LEVELS}
        found = [
            Track(
                name,
                returns[which, k],
                {level: value[:, k] for level, value in risk.items()},
                {level: value[:, k] for level, value in shortfall.items()},
                density.volatility[:, k],
                traded[which, k],
            )
            for k, name in enumerate(NAMES)
        ]
        return which + 1, found


def _padded(mixtures: Any) -> Numbers:
    """Weights, degrees of freedom and factors ``(3, K)`` of every step as one array ``(T, 3, K)``.

    A forecast over a weekend has another mixture than one over a day. What is short is filled up
    with its last component, of weight 0.
    """
    most = max(mixture.shape[-1] for mixture in mixtures)
    out = np.empty((len(mixtures), 3, most))
    for k, mixture in enumerate(mixtures):
        n = mixture.shape[-1]
        out[k, :, :n], out[k, :, n:] = mixture, mixture[:, -1:]
        out[k, 0, n:] = 0.0
    return out


def _weights(covariance: Numbers) -> Numbers:
    """Equal weights, and S^-1 1 / 1' S^-1 1, of the channels that are known; ``(2, d)``."""
    variance = np.diagonal(covariance)
    known = np.isfinite(variance) & (variance > 0.0)
    out = np.zeros((len(NAMES), len(variance)))
    if not known.any():
        return out
    out[0, known] = 1.0 / known.sum()
    part = covariance[np.ix_(known, known)]
    scale = np.sqrt(np.diagonal(part))
    # A start with fewer rows than channels has no full rank; a small ridge decides there.
    correlation = part / np.outer(scale, scale) + 1e-9 * np.eye(len(scale))
    raw = np.linalg.solve(correlation, 1.0 / scale) / scale
    out[1, known] = raw / raw.sum()
    return out
