"""Observations: whether they can be used, and what they say beside a forecast."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import FILL_LIMIT, INVALID, LARGEST, MISSING, OBSERVED, SMALLEST
from kgmrf.readable.top_clock import Aim, Along, along, along_matrix

# ----------------------------------------------------------------------- the check


def take_covariance(C: Numbers, tolerance: float) -> tuple[Numbers, int]:
    """C symmetrised, and OBSERVED, MISSING (all NaN) or INVALID.

    A negative tolerance trusts it; otherwise asymmetry and negative eigenvalues up to tolerance
    times the largest entry pass: C + tolerance I must be positive definite.
    """
    seen = 0.5 * C + 0.5 * C.T
    if tolerance < 0.0:
        return seen, MISSING if np.isnan(C[0, 0]) else OBSERVED
    if not np.isfinite(C).all():
        return seen, MISSING if np.isnan(C).all() else INVALID
    largest = float(np.abs(C).max())
    if not SMALLEST <= largest <= LARGEST or (C - C.T).max() > tolerance * largest:
        return seen, INVALID
    try:
        np.linalg.cholesky(seen / largest + tolerance * np.eye(len(C)))
    except np.linalg.LinAlgError:
        return seen, INVALID
    return seen, OBSERVED


def take_samples(samples: Numbers) -> tuple[float, int]:
    """How many of the samples ``(r, d)`` have a value, and OBSERVED, MISSING or INVALID."""
    if (np.abs(samples[~np.isnan(samples)]) > math.sqrt(LARGEST)).any():
        return 0.0, INVALID
    m = float((~np.isnan(samples).all(axis=1)).sum())
    return m, OBSERVED if m else MISSING


def inspect(matrices: Numbers, tolerance: float, status: Numbers) -> None:
    """Write the status of each of the matrices ``(n, d, d)``."""
    for k, matrix in enumerate(matrices):
        status[k] = take_covariance(matrix, tolerance)[1]


# ----------------------------------------------------------------------- compare


class Compared(NamedTuple):
    """What one observation says, once the forecast S is known (sums over its m samples).

    m: samples. values: N, observed numbers. distance: Q = sum x^T Sigma^-1 x. log_det: sum of
    log |Sigma|. outer: sum of S^-1 x x^T S^-1. precision: sum of S^-1. mean: E[x x^T | observed],
    without the conditional covariance of missing cells, which is ``rest``. cells: observed values
    of each channel.
    """

    m: float
    values: float
    distance: float
    log_det: float
    outer: Numbers
    precision: Numbers
    mean: Numbers
    rest: Numbers
    cells: Numbers
    top: Along

    def counted_as(self, m: float) -> Compared:
        """The same said by m samples; ``mean`` and ``rest`` are means."""
        share = m / self.m
        sums = {
            name: share * getattr(self, name)
            for name in ("values", "distance", "log_det", "outer", "precision", "cells")
        }
        return self._replace(m=m, top=Along(*(share * part for part in self.top)), **sums)


def compare(samples: Numbers, total: Numbers, kappa: float, there: Mask, top: Aim) -> Compared:
    """An observation of samples ``(m, d)``, NaN where a cell is missing, beside the forecast."""
    d = total.shape[-1]
    known = samples[~np.isnan(samples[:, there]).all(axis=1)]
    m, grow = float(len(known)), math.exp(kappa)
    outer, precision, mean, rest = np.zeros((4, d, d))
    values = distance = log_det = 0.0
    cells, seen = there * (~np.isnan(known)).sum(axis=0), Along()
    for x in known:
        o = there & ~np.isnan(x)
        hidden = there & np.isnan(x)
        block = total[np.ix_(o, o)]
        inverse = np.linalg.inv(block)
        y = np.zeros(d)
        y[o] = inverse @ x[o]
        filled = np.where(o, x, 0.0)
        # What is surprising in one channel must not make another surprising that nobody saw.
        apart = float(x[o] @ y[o]) / (FILL_LIMIT * o.sum())
        share = 1.0 / math.sqrt(max(apart, 1.0))
        filled[hidden] = share * (total @ y)[hidden]
        seen = seen.plus(along(top, x, o, inverse))
        values += o.sum()
        distance += float(x[o] @ y[o]) / grow
        log_det += np.linalg.slogdet(block)[1] + o.sum() * kappa
        outer += np.outer(y, y)
        precision[np.ix_(o, o)] += inverse
        mean += np.outer(filled, filled) / m
        h = np.ix_(hidden, hidden)
        across = total[np.ix_(hidden, o)]
        rest[h] += grow * (total[h] - across @ inverse @ across.T) / m
    return Compared(m, values, distance, log_det, outer, precision, mean, rest, cells, seen)


def compare_matrix(
    seen: Numbers, m: float, total: Numbers, kappa: float, there: Mask, top: Aim
) -> Compared:
    """An observation C = mean of x x^T over m samples beside the forecast."""
    d = total.shape[-1]
    o = np.ix_(there, there)
    inverse = np.zeros((d, d))
    inverse[o] = np.linalg.inv(total[o])
    n = float(there.sum())
    mean = np.where(there[:, None] & there, seen, 0.0)
    log_det = m * (np.linalg.slogdet(total[o])[1] + n * kappa)
    outer = m * inverse @ mean @ inverse
    distance = m * math.exp(-kappa) * float((inverse * mean).sum())
    rest, cells, seen_top = np.zeros((d, d)), m * there, along_matrix(top, mean, m)
    return Compared(m, m * n, distance, log_det, outer, m * inverse, mean, rest, cells, seen_top)
