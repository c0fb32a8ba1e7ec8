"""Which channel is to blame: an observation taken apart into its channels.

Both start from y = scale^-1 x and the diagonal P_ii of scale^-1:

    contribution     phi_i = x_i y_i, and of a pair x_i P_ij x_j
    channel p-value  x_i given all other channels: Student-t about x_i - y_i/P_ii

phi is the Shapley value of the game "the squared distance of x with the channels outside the
coalition put to zero" (Mayrhofer and Filzmoser 2023, Multivariate outlier explanations using
Shapley values and Mahalanobis distances, Econometrics and Statistics). It sums to the squared
distance, does not depend on units and follows a permutation of the channels. A channel that makes
the others less surprising has a negative one.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.model.tail import LEAST


def conditional_p_values(
    own: Numbers,
    distance: Numbers,
    values: Numbers,
    tails: Numbers,
    dofs: Numbers,
    factors: Numbers | float,
) -> Numbers:
    """P(|x_i' - E[x_i | others]| >= |x_i - E[x_i | others]| given the others), ``(..., d)``.

    own: a_i = y_i^2/P_ii ``(..., d)``, what channel i adds to the squared distance of the others;
    NaN where it was not seen. distance: Q ``(...)``. values: n ``(...)``. The rest ``(..., K)``.

    Given the others, component k is a t of nu + n - 1 degrees of freedom, of which the squared
    size is (f nu + Q - a_i)/((nu + n - 1) P_ii), and weighs pi_k t_k(others).
    """
    from scipy import special  # slow to import, and only this needs it

    full = (*own.shape, np.shape(tails)[-1])
    pi, nu, f = (
        np.broadcast_to(
            np.asarray(v, dtype=float)[..., None, :] if np.ndim(v) > 1 else np.asarray(v), full
        )
        for v in (tails, dofs, factors)
    )
    a = np.where(np.isnan(own), 0.0, own)[..., None]
    rest = np.maximum(np.asarray(distance)[..., None, None] - a, 0.0)
    n = np.asarray(values, dtype=float)[..., None, None] - 1.0
    log = special.gammaln(0.5 * (nu + n)) - special.gammaln(0.5 * nu)
    log = log - 0.5 * n * np.log(nu * f) - 0.5 * (nu + n) * np.log1p(rest / (nu * f))
    share = _shares(log, pi)
    free = nu + n
    beyond = special.fdtrc(1.0, free, a * free / (f * nu + rest))
    return np.where(np.isnan(own), np.nan, np.clip((share * beyond).sum(axis=-1), LEAST, 1.0))


def _shares(log: Numbers, weights: Numbers) -> Numbers:
    """weights exp(log), normalised along the last axis."""
    top = np.where(weights > 0.0, log, -np.inf).max(axis=-1, keepdims=True)
    found = weights * np.exp(np.minimum(log - top, 0.0))
    return np.asarray(found / found.sum(axis=-1, keepdims=True))
