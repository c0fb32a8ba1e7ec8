"""Rivals for many channels, written from their formulas: shrinkage of covariances, and OPAST.

Every covariance here is a forecast for row t from the rows before it. `Dense` has what the tables
compare: the log-density of the next row and the weights of the minimum-variance portfolio.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kgmrf._types import Numbers


class Dense(NamedTuple):
    """A covariance by its eigenvalues and eigenvectors (columns), times ``size``."""

    values: Numbers
    vectors: Numbers
    size: float = 1.0

    def distance(self, x: Numbers) -> float:
        """x^T S^-1 x."""
        return float(((self.vectors.T @ x) ** 2 / self.values).sum()) / self.size

    def log_det(self) -> float:
        """log |S|."""
        return float(np.log(self.values).sum()) + len(self.values) * math.log(self.size)

    def portfolio(self) -> Numbers:
        """S^-1 1, up to a factor."""
        return np.asarray(self.vectors @ (self.vectors.sum(axis=0) / self.values))


def ledoit_wolf(rows: Numbers) -> Dense:
    """(1 - b) S + b mu I with the b of Ledoit and Wolf (2004), zero mean; rows ``(n, d)``.

    >>> rows = np.random.default_rng(0).normal(size=(40, 60))
    >>> bool(0.8 < ledoit_wolf(rows).values.min() < ledoit_wolf(rows).values.max() < 1.2)
    True
    """
    n, d = rows.shape
    sample = rows.T @ rows / n
    mu = float(np.trace(sample)) / d
    apart = float((sample**2).sum()) / d - mu**2
    fourth = float(((rows**2).sum(axis=1) ** 2).mean()) / d
    scatter = (fourth - float((sample**2).sum()) / d) / n
    b = min(max(scatter / max(apart, 1e-300), 0.0), 1.0)
    values, vectors = np.linalg.eigh(sample)
    return Dense((1.0 - b) * np.maximum(values, 0.0) + b * mu, vectors)


def qis(sample: Numbers, n: float) -> Dense:
    """Quadratic-inverse shrinkage (Ledoit and Wolf, 2022) of a covariance of n rows.

    With lam^-1 the inverse eigenvalues, h = min(c^2, c^-2)^.35 d^-.35 and the smoothed Stein
    shrinker theta, its conjugate H:  1/delta = lam^-1 [(1-c)^2 + 2 c (1-c) theta + c^2 A], where
    A = theta^2 + H^2; for c > 1 lam^-1 A, and (c - 1) mean lam^-1 on the null space.

    >>> rows = np.random.default_rng(0).normal(size=(40, 60))
    >>> bool(0.6 < qis(rows.T @ rows / 40, 40).values.min())
    True
    """
    values, vectors = np.linalg.eigh(sample)
    d = len(values)
    whole = max(round(n), 1)
    known = min(d, whole, int((values > 1e-10 * values[-1]).sum()))
    c = d / whole
    inverse = 1.0 / values[d - known :]
    h = min(c * c, 1.0 / (c * c)) ** 0.35 / d**0.35
    gap = inverse[:, None] - inverse
    below = gap**2 + (h * inverse[:, None]) ** 2
    theta = (inverse[:, None] * gap / below).mean(axis=0)
    conjugate = (inverse[:, None] ** 2 * h / below).mean(axis=0)
    a = theta**2 + conjugate**2
    if c <= 1.0 and known == d:
        delta = 1.0 / (inverse * ((1.0 - c) ** 2 + 2.0 * c * (1.0 - c) * theta + c * c * a))
    else:
        null = 1.0 / (max(d / known - 1.0, 1.0 / known) * inverse.mean())
        delta = np.concatenate([np.full(d - known, null), 1.0 / (inverse * a)])
    return Dense(delta * values.sum() / delta.sum(), vectors)


def due(t: int, first: int, every: int) -> bool:
    """Whether a rival estimates again before row t: after a twentieth more rows or ``every``."""
    return (t - first) % min(max(t // 20, 1), every) == 0


def window(x: Numbers, length: int, first: int, every: int) -> Iterator[Dense]:
    """Ledoit-Wolf on the last ``length`` rows, for rows first, first + 1, ..."""
    for t in range(first, len(x)):
        if due(t, first, every):
            found = ledoit_wolf(x[max(0, t - length) : t])
        yield found


def moving(
    x: Numbers, half_life: float, first: int, every: int, size_gain: float = 0.0
) -> Iterator[Dense]:
    """EWMA + QIS, with a size clock if its gain is above 0, for rows first, first + 1, ..."""
    d, keep = x.shape[1], 2.0 ** (-1.0 / half_life)
    total, mass, mass2, s = np.zeros((d, d)), 0.0, 0.0, 0.0
    found = None
    for t, row in enumerate(x):
        s *= 0.98
        if t >= first:
            if due(t, first, every):
                found = qis(total / mass, mass * mass / mass2)
            assert found is not None
            now = found._replace(size=math.exp(s))
            yield now
            ratio = min(now.distance(row) / d, 50.0)
            s += math.log1p(size_gain * (ratio - 1.0))
        total = keep * total + math.exp(-s) * np.outer(row, row)
        mass, mass2 = keep * mass + 1.0, keep * keep * mass2 + 1.0


def opast(x: Numbers, rank: int, forgetting: float) -> Iterator[Numbers]:
    """OPAST (Abed-Meraim, Chkeif, Hua, 2000): orthonormal axes ``(d, rank)`` before every row."""
    d = x.shape[1]
    w, z = np.linalg.qr(np.random.default_rng(0).normal(size=(d, rank)))[0], np.eye(rank)
    for row in x:
        yield w
        y = w.T @ row
        q = z @ y / forgetting
        gamma = 1.0 / (1.0 + y @ q)
        p = gamma * (row - w @ y)
        z = z / forgetting - gamma * np.outer(q, q)
        norm = float(q @ q)
        tau = (1.0 / math.sqrt(1.0 + float(p @ p) * norm) - 1.0) / max(norm, 1e-300)
        w = w + np.outer(tau * (w @ q) + (1.0 + tau * norm) * p, q)
