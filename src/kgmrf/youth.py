"""How little a young track knows: what its density has to be wider for.

After n samples a variance is known as n values tell it, so a forecast from them is no Gaussian but
a Student-t, and its scale matrix has small eigenvalues that are too small. With

    delta(n) = 1/(1.5 n - .5) - 1/(1.5 n_0 - .5),  n_0 = 5 (d + 2);  0 from n_0 on

every tail nu_j of the density becomes 1/(1/nu_j + delta), and its scale is multiplied by

    c = 1 + delta^1.25 (d - 1 - delta)/2.

The estimate of the covariance has nothing of it, and while it lasts an observation counts at most
in full, u <= 1: those of a density that is wide on purpose look calm. After one sample both are
exact in the tail: t_1 in each of d independent channels is about t_1 of the scale d/2. Beyond, the
numbers are fitted to rows of N(0, A), A the identity, a factor model or of eigenvalues from 1 to
1000.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import TAILS, YOUTH_ENDS, YOUTH_POWER, YOUTH_RATE


def doubt_of(samples: Any, d: int) -> Numbers:
    """delta of so many samples in d channels, ``(...)``.

    >>> doubt_of([1, 2, 10, 50], 8).round(3).tolist()
    [0.987, 0.387, 0.056, 0.0]
    """

    def one(n: Any) -> Any:
        return 1.0 / (YOUTH_RATE * np.maximum(n, 1.0) - (YOUTH_RATE - 1.0))

    return np.asarray(
        np.maximum(one(np.asarray(samples, dtype=float)) - one(YOUTH_ENDS * (d + 2.0)), 0.0)
    )


def degrees(doubt: Any) -> Numbers:
    """nu of every tail, ``(..., 4)``.

    >>> degrees([0.0, 1.0]).round(2).tolist()
    [[3.0, 6.0, 12.0, 100000.0], [0.75, 0.86, 0.92, 1.0]]
    """
    nu = np.array(TAILS)
    return np.asarray(nu / (1.0 + np.asarray(doubt, dtype=float)[..., None] * nu))


def widening(doubt: Any, there: Any) -> Numbers:
    """c of a density over so many channels that were ever seen, ``(...)``.

    >>> widening([1.0, 0.4, 0.0], 8).round(3).tolist()
    [4.0, 2.05, 1.0]
    """
    delta = np.asarray(doubt, dtype=float)
    return np.asarray(1.0 + 0.5 * delta**YOUTH_POWER * (np.asarray(there) - 1.0 - delta))
