"""The density of rows that are all alike: one mean, one shape, tails as heavy as theirs.

The Student-t of largest likelihood, with mean mu, shape S and nu degrees of freedom, by
expectation-maximisation (Liu and Rubin 1995, ML estimation of the t distribution using EM and its
extensions; missing cells are filled in by their conditional means). With
q = (x - mu)^T S^-1 (x - mu) over the n_o cells that were seen,

    w = (nu + n_o)/(nu + q)
    mu <- sum w x / sum w,    S <- mean of w (x - mu)(x - mu)^T + C,    nu <- arg max likelihood

where C is the covariance of what was filled in.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.model.density import GAUSSIAN, Density

STEPS = 100
"""Steps at most; about ten are usual."""

SETTLED = 1e-4
"""Relative change of the shape at which the steps end."""

DOFS = np.append(np.geomspace(2.1, 200.0, 40), GAUSSIAN)
"""Degrees of freedom to choose from."""

FLOOR = 1e-12
"""Share of a channel's variance that is added, so that every shape has an inverse."""


def stationary(rows: Numbers) -> tuple[Numbers, Density]:
    """The mean ``(d,)`` of rows ``(n, d)``, and the density of another row off that mean.

    NaN cells were not seen. The density allows for what n rows leave uncertain: its shape is
    S (n + 1)/(n - d), its degrees of freedom n - d at most, as of normal rows it must be.

    Parameters
    ----------
    rows : array
        ``(n, d)``, NaN where a channel was not seen.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_t(3.0, (2000, 2)) + 5.0
    >>> mean, density = stationary(rows)
    >>> mean.round(1), density.scale.round(1).tolist(), density.dofs.round(1).item()
    (array([5., 5.]), [[1.1, -0.0], [-0.0, 1.1]], 3.4)
    """
    there = ~np.isnan(rows)
    rows = rows[there.any(axis=1)]
    there = there[there.any(axis=1)]
    n, d = rows.shape
    count = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there, rows, 0.0).sum(axis=0) / count
    spread = np.where(there, rows - mean, 0.0)
    variance = (spread**2).sum(axis=0) / count
    least = FLOOR * np.where(variance > 0.0, variance, max(float(variance.max()), 1e-300))
    # Channels go in units of their own: S of constant ones is next to zero.
    unit = np.sqrt(variance + least)
    x, mu = (rows - mean) / unit, np.zeros(d)
    shape, nu = np.eye(d), 12.0
    patterns, which = np.unique(there, axis=0, return_inverse=True)
    groups = [(seen, np.flatnonzero(which.reshape(-1) == k)) for k, seen in enumerate(patterns)]
    seen_of_row = there.sum(axis=1)
    filled, q = np.empty((n, d)), np.empty(n)
    for _ in range(STEPS):
        before, extra = shape, np.zeros((d, d))
        for seen, mine in groups:
            inverse = np.linalg.inv(shape[np.ix_(seen, seen)])
            gain = inverse @ shape[seen]
            off = x[np.ix_(mine, seen)] - mu[seen]
            filled[mine] = off @ gain + mu
            q[mine] = (off * (off @ inverse)).sum(axis=1)
            extra += len(mine) * (shape - shape[:, seen] @ gain)
        nu = _tails(q, seen_of_row)
        weights = (nu + seen_of_row) / (nu + q)
        mu = weights @ filled / weights.sum()
        off = filled - mu
        shape = ((weights[:, None] * off).T @ off + extra) / n
        shape = 0.5 * (shape + shape.T) + FLOOR * np.eye(d)
        if np.abs(shape - before).max() <= SETTLED * np.abs(shape).max():
            break
    free = max(n - d, 1)
    scale = shape * (n + 1.0) / free * unit[:, None] * unit
    return mean + mu * unit, Density(scale, np.ones(1), np.array([min(nu, float(free))]))


def _tails(q: Numbers, values: Numbers) -> float:
    """The degrees of freedom under which squared distances ``(n,)`` of so many values are most
    probable."""
    from scipy import special

    n, nu = values[:, None], DOFS
    log = special.gammaln(0.5 * (nu + n)) - special.gammaln(0.5 * nu) - 0.5 * n * np.log(nu)
    log = log - 0.5 * (nu + n) * np.log1p(q[:, None] / nu)
    return float(nu[log.sum(axis=0).argmax()])
