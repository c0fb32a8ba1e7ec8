"""Is a row forecast by the last ones? Scores with and without a linear mean, and coverage.

    python -m experiments run linear_mean

Streams of `experiments.streams` and water sensors (SKAB without anomalies), first 5,000 rows.
The score is the log-density of the next row (Student-t), from the row on that the study of streams
scores. Coverage: how often the row 1, 5 and 20 ahead lies in the 95 % region that was forecast,
every tenth row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import NotAvailable, Unit, unit
from experiments.streams import data
from kgmrf._types import Numbers

STREAMS = ("ssvep8", "eeg14", "gait_daphnet", "etth1", "factors8", "etf18")
AHEAD = (1, 5, 20)
LENGTH = 5000


def load(name: str) -> tuple[Numbers, int]:
    """Rows and the first that counts."""
    if name == "white noise":
        return np.random.default_rng(0).normal(size=(LENGTH, 6)), 200
    if name == "skab8":
        file = data.find("streams", "skab8.npz")
        if file is None:
            raise NotAvailable("no streams/skab8.npz; set KGMRF_DATA")
        with np.load(file) as found:
            return found["data"].astype(float)[:LENGTH], 200
    stream = data.load(name)
    return stream.samples[:LENGTH], stream.scored_from


def score(x: Numbers, first: int, mean: str, lags: int) -> float:
    """Mean log-density of the next row."""
    from kgmrf import KGMRF

    found = KGMRF(mean=mean, lags=lags, time_scale=1).filter(x, fields=["log_likelihood"])
    return float(np.nanmean(found.log_likelihood[first:]))


def run(stream: str, holes: float = 0.2, lags: int = 2) -> dict[str, Any]:
    """Scores by mean, also with a share of the cells missing, and coverage of the linear mean."""
    from kgmrf import KGMRF

    x, first = load(stream)
    missing = np.where(np.random.default_rng(1).random(x.shape) < holes, np.nan, x)
    words = ("zero", "expanding", "linear")
    out: dict[str, Any] = {"scores": {m: score(x, first, m, lags) for m in words}}
    out["with_holes"] = {m: score(missing, first, m, lags) for m in ("zero", "linear")}
    tracker = KGMRF(mean="linear", lags=lags, time_scale=1)
    tracker.filter(x[:first])
    inside: dict[int, list[bool]] = {h: [] for h in AHEAD}
    for k in range(first, len(x) - max(AHEAD), 10):
        for h, found in inside.items():
            ahead = tracker.forecast(h)
            found.append(bool(ahead.mahalanobis(x[k + h - 1]) <= ahead.region(0.95)))
        tracker.filter(x[k : k + 10], fields=["log_likelihood"])
    out["coverage"] = {str(h): float(np.mean(found)) for h, found in inside.items()}
    return out


def units(quick: bool) -> list[Unit]:
    """One unit per stream."""
    names = ("white noise",) if quick else (*STREAMS, "skab8", "white noise")
    found = [unit("linear_mean", name.replace(" ", "_"), run, stream=name) for name in names]
    # What two lags leave of this one is far from white.
    six = unit("linear_mean", "eeg14_six_lags", run, stream="eeg14", lags=6)
    return found if quick else [*found, six]
