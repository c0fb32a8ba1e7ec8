"""Scores of forecasts: one Gaussian, one Student-t, regions, and intervals of differences.

A forecast of a zero-mean sample x is a matrix S. Its *squares* are z = x^T S^-1 x and its *size* is
log det S: every score below needs nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from kgmrf._types import Numbers

BLOCK = 50
DEGREES = np.array([1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100, 1e5])
"""Grid of nu for a t in hindsight; the last is a Gaussian."""


class Reach(NamedTuple):
    """How far samples lie from their forecasts: squares z and log det S, each ``(T,)``."""

    squares: Numbers
    log_det: Numbers
    d: int


def reach(x: Numbers, covariance: Numbers) -> Reach:
    """z_t = x_t^T S_t^-1 x_t and log det S_t; x ``(T, d)``, covariance ``(T, d, d)``.

    A matrix that is not positive definite gets a size of infinity: its score is -inf.
    """
    sign, log_det = np.linalg.slogdet(covariance)
    bad = ~(sign > 0) | ~np.isfinite(log_det)
    safe = np.where(bad[:, None, None], np.eye(x.shape[1]), covariance)
    squares = np.einsum("ti,ti->t", x, np.linalg.solve(safe, x[..., None])[..., 0])
    bad |= squares < 0
    return Reach(np.where(bad, 0.0, squares), np.where(bad, np.inf, log_det), x.shape[1])


def gaussian(found: Reach) -> Numbers:
    """log N(x; 0, S) = -(d log 2 pi + log det S + z)/2, row by row."""
    return -0.5 * (found.d * np.log(2 * np.pi) + found.log_det + found.squares)


def student(found: Reach, dof: float, scale: float = 1.0) -> Numbers:
    """log t_nu(x; scale matrix c S), row by row; nu = ``dof``, c = ``scale``."""
    d, z = found.d, found.squares / scale
    head = gammaln((dof + d) / 2) - gammaln(dof / 2) - d / 2 * np.log(dof * np.pi * scale)
    return head - found.log_det / 2 - (dof + d) / 2 * np.log1p(z / dof)


def best_student(found: Reach) -> tuple[Numbers, float, float]:
    """The t with the best nu of the grid and the best constant scale, both in hindsight.

    Returns the log-density of every row, nu and the scale c. For a given nu the best c solves
    c = mean of (nu + d) z / (nu + z/c) / d, by fixed-point steps (each raises the likelihood).
    """
    d, z = found.d, found.squares
    best: tuple[Numbers, float, float] | None = None
    for dof in DEGREES:
        scale = max((dof - 2) / dof, 0.2)
        for _ in range(200):
            new = float(np.mean((dof + d) / (dof + z / scale) * z) / d)
            if new <= 0 or abs(new - scale) < 1e-6 * scale:
                break
            scale = new
        score = student(found, float(dof), scale)
        if best is None or score.mean() > best[0].mean():
            best = score, float(dof), scale
    assert best is not None
    return best


def qlike(found: Reach) -> float:
    """Mean of log det S + z, the usual loss of volatility forecasts (less is better)."""
    return float(np.mean(found.log_det + found.squares))


def interval(difference: Numbers, seed: int = 0) -> list[float] | None:
    """95 % interval of the mean of a paired difference: bootstrap of circular blocks of 50 rows."""
    if not np.isfinite(difference).all():
        return None
    n = len(difference)
    rng = np.random.default_rng(seed)
    twice = np.concatenate([[0.0], np.cumsum(np.concatenate([difference, difference]))])
    sums = twice[BLOCK : n + BLOCK] - twice[:n]
    n_blocks = -(-n // BLOCK)
    means = sums[rng.integers(0, n, size=(2000, n_blocks))].sum(axis=1) / (n_blocks * BLOCK)
    return [float(q) for q in np.quantile(means, [0.025, 0.975])]
