"""How `kgmrf compare` scores a forecast of a covariance: as a Gaussian, and as a Student-t.

Data have heavier tails than a Gaussian, and a forecast that knows only a covariance should not be
blamed for that. So every rival is also scored as a Student-t whose tails and size are learned from
the steps before, as the default's are.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, logsumexp

from kgmrf._types import Mask, Numbers

TAILS = (2.5, 3.0, 4.0, 6.0, 12.0, 30.0, 1e5)
SIZES = np.linspace(-2.0, 1.0, 31)
"""Degrees of freedom, and logarithms of the factor between covariance and scale: what is tried."""


def against(forecast: Numbers, seen: Numbers) -> tuple[Numbers, Numbers]:
    """log det S and tr(S^{-1} C) of every step; NaN where S has no full rank or C is missing.

    >>> log_det, distance = against(np.array([[[2.0]]]), np.array([[[8.0]]]))
    >>> log_det.round(4).item(), distance.item()
    (0.6931, 4.0)
    """
    good: Mask = np.all(np.isfinite(forecast + seen), axis=(-2, -1))
    values, vectors = np.linalg.eigh(np.where(good[:, None, None], forecast, np.eye(len(seen[0]))))
    good &= values[:, 0] > 1e-12 * values[:, -1]
    values = np.where(good[:, None], values, 1.0)
    inside = np.where(good[:, None, None], seen, 0.0)
    body = np.einsum("nij,nik,nkj->nj", vectors, inside, vectors)
    log_det = np.where(good, np.log(values).sum(axis=-1), np.nan)
    return log_det, np.where(good, (body / values).sum(axis=-1), np.nan)


def against_cells(forecast: Numbers, rows: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The same for samples ``(T, d)`` with holes: of the cells that are there, and how many.

    >>> found = against_cells(np.diag([2.0, 3.0])[None], np.array([[4.0, np.nan]]))
    >>> [part.round(4).item() for part in found]
    [0.6931, 8.0, 1.0]
    """
    there = ~np.isnan(rows)
    filled = np.where(there, rows, 0.0)
    both = there[:, :, None] & there[:, None, :]
    # Variances of cells that are not there are 1: they add nothing.
    known = np.where(both, forecast, np.eye(rows.shape[1]))
    log_det, distance = against(known, filled[:, :, None] * filled[:, None, :])
    values = there.sum(axis=-1).astype(float)
    return log_det, np.where(values > 0, distance, np.nan), values


def lead_of(gap: Numbers) -> tuple[float, float]:
    """The mean of differences of scores and half of its 95 % interval, of means of twenty blocks:
    neighbouring steps are not independent.

    >>> lead_of(np.array([1.0, 3.0]))[0]
    2.0
    """
    blocks = np.array([part.mean() for part in np.array_split(gap, min(20, len(gap)))])
    wide = 1.96 * blocks.std(ddof=1) / np.sqrt(len(blocks)) if len(blocks) > 1 else np.nan
    return float(gap.mean()), float(wide)


def student(log_det: Numbers, distance: Numbers, samples: Numbers, values: Numbers) -> Numbers:
    """log sum_j w_j t_{nu_j}(x; scale e^{s_j} S), w_j prop to the likelihood of the steps before.

    A Bayesian mixture over `TAILS` and `SIZES`: over a whole file it is at most log(217) = 5.4 nats
    behind the pair that is best in hindsight. log_det, distance: of S, tr(S^{-1} C). samples:
    behind each C, values: numbers in all of them. NaN stays NaN and teaches nothing.

    >>> z = np.random.default_rng(0).chisquare(3, 2000)
    >>> gaussian = -0.5 * (z + 3 * np.log(2 * np.pi))
    >>> found = student(np.zeros(2000), z, np.ones(2000), np.full(2000, 3.0))
    >>> bool(abs(found.sum() - gaussian.sum()) < 5.4)
    True
    """
    nu, s = (part.reshape(-1)[:, None] for part in np.meshgrid(np.array(TAILS), SIZES))
    z = samples * distance * np.exp(-s)
    terms = gammaln(0.5 * (nu + values)) - gammaln(0.5 * nu) - 0.5 * values * np.log(nu * np.pi)
    terms = terms - 0.5 * (samples * log_det + values * s) - 0.5 * (nu + values) * np.log1p(z / nu)
    learned = np.cumsum(np.where(np.isfinite(terms), terms, 0.0), axis=1)
    before = np.concatenate([np.zeros((len(learned), 1)), learned[:, :-1]], axis=1)
    return np.asarray(logsumexp(terms + before, axis=0) - logsumexp(before, axis=0))
