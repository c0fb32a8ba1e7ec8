"""How many samples matrices are worth, by how they scatter about their forecast.

    r = |W - I|^2,  W = S^-1/2 C S^-1/2 of trace n;   v <- v + max(.02, 1/c)(min(r, 4 v) - v)
    m = (n - 1)(n + 2)/v

The size of C is divided out, and C may be singular. src/core/spread.hpp has the same names.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import SPREAD_GAIN, SPREAD_LIMIT, SPREAD_START
from kgmrf.engines.layout import JUDGED, SPREAD


def scatter_of(relative: Numbers, n: float) -> float:
    """r of S^-1 C over n channels."""
    trace, square = float(np.trace(relative)), float((relative * relative.T).sum())
    return square * (n / trace) ** 2 - n


def learned(judged: float, spread: float, scatter: float) -> tuple[float, float]:
    """c matrices are judged so far, v is their usual r: both after one more."""
    judged += 1.0
    if judged > SPREAD_START:
        scatter = min(scatter, SPREAD_LIMIT * spread)
    return judged, spread + max(SPREAD_GAIN, 1.0 / judged) * (scatter - spread)


def samples_of(spread: float, n: float) -> float:
    """m of matrices over n channels; one channel has nothing but its size."""
    return (n - 1.0) * (n + 2.0) / max(spread, 1e-300) if n > 1.0 else 2.0


def worth(known: Numbers, claimed: float, n: float) -> float:
    """How many samples an observation is worth that is said to be of ``claimed``.

    known: the numbers of a row; before they know anything it is 2 n. Of few samples r is
    n (n - 1)(n + 2)/(m n + 2) in the mean, exactly: the size of C is known from C itself.
    """
    m = samples_of(float(known[SPREAD]), n) - 2.0 / n if known[JUDGED] > 0.0 else 2.0 * n
    return min(max(m, 1.0), claimed)
