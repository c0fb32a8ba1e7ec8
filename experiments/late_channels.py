"""Assets that are listed late: how soon their volatility and correlations are known.

    python -m experiments run late_channels

Simulated returns: one factor, Student-t with 5 degrees of freedom, sizes that differ by a standard
deviation of .3 in the logarithm, a common log variance that wanders; the last of 8 channels comes
after 600 rows. Compared with the same data where it was there from the start, and the others with
the same data without it. Once more with a first value of .02 standard deviations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import KGMRF
from kgmrf._types import Numbers

D, FIRST, AFTER = 8, 600, 200
ROWS = (5, 20, 50, 100, 200)


def returns(seed: int) -> Numbers:
    """Rows ``(T, d)``."""
    g = np.random.default_rng(seed)
    n, log = FIRST + AFTER, 0.0
    loadings, sizes = 0.7 + 0.2 * g.normal(size=D), np.exp(0.3 * g.normal(size=D))
    x = g.normal(size=(n, 1)) * loadings + 0.7 * g.normal(size=(n, D))
    x *= sizes * np.sqrt(3.0 / g.chisquare(5, size=(n, 1)))
    for row in x:
        log = 0.97 * log + 0.15 * g.normal()
        row *= np.exp(0.5 * log)
    return x


def covariances(x: Numbers) -> Numbers:
    """After the late channel came, ``(AFTER, d, d)``."""
    return KGMRF(x.shape[1], time_scale=1).filter(x, fields="covariance").covariance[FIRST:]


def run(entries: int = 200, first: float | None = None) -> dict[str, Any]:
    """Ratios of volatility, shares of correlation, and how far other volatilities were moved."""
    ratios, shares, moved = [], [], []
    for seed in range(entries):
        x = returns(seed)
        late = x.copy()
        late[:FIRST, -1] = np.nan
        if first is not None:
            late[FIRST, -1] = first * x[:, -1].std()
        full, found, alone = (covariances(part) for part in (x, late, x[:, :-1]))
        ratios.append([np.sqrt(found[k - 1, -1, -1] / full[k - 1, -1, -1]) for k in ROWS])
        there, here = (correlations(part) for part in (full, found))
        shares.append([here[k - 1] @ there[k - 1] / (there[k - 1] @ there[k - 1]) for k in ROWS])
        other = np.diagonal(found[:100, :-1, :-1], axis1=1, axis2=2)
        change = np.sqrt(other / np.diagonal(alone[:100], axis1=1, axis2=2))
        moved.append(max(change.max(), 1.0 / change.min()))
    ratio = np.array(ratios)
    within = [
        ((ratio > low) & (ratio < high)).mean(axis=0) for low, high in ((0.6, 1.7), (0.8, 1.25))
    ]
    return {
        "rows": ROWS,
        "volatility": np.quantile(ratio, [0.025, 0.5, 0.975], axis=0),
        "within .6 to 1.7": within[0],
        "within .8 to 1.25": within[1],
        "correlation": np.mean(shares, axis=0),
        "others moved": np.quantile(moved, [0.5, 0.95, 1.0]),
    }


def correlations(S: Numbers) -> Numbers:
    """Of the last channel with the others, ``(T, d - 1)``."""
    variance = np.diagonal(S, axis1=1, axis2=2)
    return S[:, -1, :-1] / np.sqrt(variance[:, -1:] * variance[:, :-1])


def units(quick: bool) -> list[Unit]:
    """With an ordinary first value, and with one that is far too small."""
    small: dict[str, Any] = {"entries": 5} if quick else {}
    return [
        unit("late_channels", "usual", run, **small),
        unit("late_channels", "tiny_first", run, first=0.02, **small),
    ]
