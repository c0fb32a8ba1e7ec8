"""Start-up: how good is the forecast of the default before there are many more rows than channels?

    python -m experiments run starts

Rows of a factor model, x = B f + e, f of 5 normal factors. The score is the log-density of every
row under the forecast made from the rows before it, in nats per dimension, averaged over ranges of
rows. Beside ours: the Gaussian of Ledoit and Wolf's covariance of all rows so far, and the true
covariance (oracle). Ledoit and Wolf shrink to equal variances: channels of like size suit them, and
ours, which does not depend on units, must learn every variance by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from experiments.streams import scores
from experiments.streams.rivals import shrunk
from kgmrf import KGMRF
from kgmrf._types import Numbers

FACTORS, ROWS_PER_DIMENSION = 5, 4


def factor_model(d: int, seed: int, spread: float = 0.0) -> tuple[Numbers, Numbers]:
    """Samples ``(4 d, d)`` and their covariance D (B B^T + diag(psi)) D.

    log D has standard deviation ``spread``: sizes of channels alike (0) or not.
    """
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(d, FACTORS)) * np.sqrt([2.0, 0.5, 0.25, 0.15, 0.1])
    psi = rng.uniform(0.2, 1.2, size=d)
    covariance = loadings @ loadings.T + np.diag(psi)
    x = rng.normal(size=(ROWS_PER_DIMENSION * d, FACTORS)) @ loadings.T
    x += rng.normal(size=x.shape) * np.sqrt(psi)
    size = np.exp(spread * rng.normal(size=d))
    return x * size, covariance * np.outer(size, size)


def ranges(d: int) -> dict[str, slice]:
    """Row ranges by name; rows count from 0, and row 2 is the first with two rows behind it."""
    third = d // 3
    return {
        "2 to d/3": slice(2, third),
        "d/3 to d": slice(third, d),
        "d to 2d": slice(d, 2 * d),
        "2d to 4d": slice(2 * d, 4 * d),
    }


def expanding_ledoit_wolf(x: Numbers) -> Numbers:
    """log N(x_t; 0, LW of rows 0..t-1), NaN for the first two rows."""
    forecasts = np.stack([shrunk(x[:t]) for t in range(2, len(x))])
    found = scores.gaussian(scores.reach(x[2:], forecasts))
    return np.concatenate([[np.nan, np.nan], found])


def run(d: int, spread: float, n_seeds: int) -> dict[str, Any]:
    """Nats per dimension in every range of rows, mean over seeds."""
    table: dict[str, list[Numbers]] = {"ours": [], "Ledoit-Wolf": [], "oracle": []}
    second: list[float] = []
    for seed in range(n_seeds):
        x, covariance = factor_model(d, seed, spread)
        mine = KGMRF().filter(x).log_likelihood
        second.append(float(mine[1]) / d)
        every = np.broadcast_to(covariance, (len(x), d, d))
        rows = {
            "ours": mine,
            "Ledoit-Wolf": expanding_ledoit_wolf(x),
            "oracle": scores.gaussian(scores.reach(x, every)),
        }
        for name, score in rows.items():
            table[name].append(np.array([score[part].mean() / d for part in ranges(d).values()]))
    return {
        "ranges": list(ranges(d)),
        "rows": {name: np.mean(found, axis=0) for name, found in table.items()},
        "ours_second_row": float(np.mean(second)),
    }


SPREADS = {"alike": 0.0, "unlike": 1.0}


def units(quick: bool) -> list[Unit]:
    """One unit per dimension and spread of the channels' sizes."""
    return [
        unit("starts", f"{word}_{d}", run, d=d, spread=spread, n_seeds=1 if quick else 3)
        for d in ((12,) if quick else (60, 200))
        for word, spread in SPREADS.items()
    ]
