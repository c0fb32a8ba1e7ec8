"""How improbable an observation is under a mixture of Student-t densities of one shape.

    P(Q' >= Q) = sum_k pi_k SF_{F(n, nu_k)}(Q/(n f_k))

Q is the squared distance of n values from the forecast, in units of its scale; n = m d for m
samples, which share the size of one draw. The density falls with Q alone, so this is the
probability of an observation that is no more probable than the one at hand. The sum runs over the
components of the mixture: weights pi, degrees of freedom nu, sizes f.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers

LEAST = 1e-300
"""The smallest p-value that is given: below, the tail of the F distribution loses its digits."""


def tail_probability(
    distance: Any, values: Any, tails: Any, dofs: Any, factors: Any = 1.0
) -> Numbers:
    """P(Q' >= Q), ``(...)``; NaN where there are no values.

    distance: Q ``(...)``. values: n ``(...)``. tails, dofs, factors: as of
    :class:`kgmrf.model.density.Mixture`, ``(..., K)``.

    >>> tail_probability(5.99, 2, np.ones(1), np.array([1e8])).round(3).item()
    0.05
    """
    from scipy import special  # slow to import, and only this needs it

    n, q = np.asarray(values, dtype=float)[..., None], np.asarray(distance, dtype=float)[..., None]
    known = n > 0.0
    safe = np.where(known, n, 1.0)
    each = special.fdtrc(safe, dofs, np.where(known, q, np.nan) / (safe * factors))
    # Of a sum of weights that is 1 but for rounding.
    return np.clip((tails * each).sum(axis=-1), LEAST, 1.0)[()]


def chi_squared_tail(value: Any, freedom: Any) -> Numbers:
    """P(chi^2 >= value) with so many degrees of freedom; NaN where value is, or there are none.

    >>> chi_squared_tail([5.99, np.nan], 2).round(3).tolist()
    [0.05, nan]
    """
    from scipy import special

    value, freedom = np.broadcast_arrays(np.asarray(value, float), np.asarray(freedom, float))
    known = (freedom > 0.0) & ~np.isnan(value)
    found = special.chdtrc(np.where(known, freedom, 1.0), np.where(known, value, 0.0))
    return np.where(known, np.maximum(found, LEAST), np.nan)[()]


def surprise(p_value: Any) -> Numbers:
    """-log10 p: 3 is one in a thousand.

    >>> surprise([1e-3, 1.0]).tolist()
    [3.0, 0.0]
    """
    return np.abs(np.log10(np.asarray(p_value, dtype=float)))[()]
