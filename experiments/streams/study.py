"""The study of real streams: one unit per stream and method.

Ours is scored by the log-density of its own forecast, as it comes; nothing is chosen. A rival
forecasts a covariance and gets everything in hindsight: the setting of its grid, the degrees of
freedom and the scale of its Student-t that are best on the very rows that are scored; once more as
a plain Gaussian. Differences are paired, row by row, with 95 % intervals of a block bootstrap.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from experiments.store import Unit, unit
from experiments.streams import data, rivals, scores
from kgmrf import KGMRF
from kgmrf._types import Numbers
from kgmrf.members import Rotating, default_members

LEVELS = (0.95, 0.99)
N_TURNING = 2
"""The last two members of the ensemble carry a velocity."""


class Ours(NamedTuple):
    """The default's forecasts of every row, as :meth:`KGMRF.filter` reports them."""

    log_density: Numbers  # (T,)
    weights: Numbers  # (T, K)
    half_life: Numbers  # (T,)
    microseconds: float


def ours(x: Numbers) -> Ours:
    """The default tracker over a stream, whole."""
    KGMRF().filter(x[:50])  # compiles, if it has to
    began = time.process_time()
    result = KGMRF().filter(x)
    spent = 1e6 * (time.process_time() - began) / len(x)
    return Ours(result.log_likelihood, result.weights, result.half_life, spent)


def row_by_row(x: Numbers, first: int) -> tuple[Numbers, Numbers]:
    """Forecast, then look, row by row from ``first``, as a user would.

    Forecast covariances ``(T, d, d)``, and for every row the level of the region on whose edge it
    lies ``(T,)``: it is inside all regions of a higher level.
    """
    tracker = KGMRF()
    tracker.filter(x[:first])
    covariance, scale, tails = [], [], []
    for row in x[first:]:
        ahead = tracker.forecast(1)
        covariance.append(ahead.covariance)
        scale.append(ahead.density.scale)
        tails.append(ahead.density.tails)
        tracker.partial_fit(row)
    density = replace(ahead.density, scale=np.stack(scale), tails=np.stack(tails))
    return np.stack(covariance), density.cdf(density.mahalanobis(x[first:]))


def run_ours(stream: str, rows: int | None = None) -> dict[str, Any]:
    """Scores of the default, coverage of its regions, and what its members did."""
    x, first = data.load(stream)
    x = x[:rows]
    mine = ours(x)
    late = slice(first, None)
    covariance, level = row_by_row(x, first)
    found = scores.reach(x[first:], covariance)
    weights = mine.weights[late]
    return {
        "rows": len(x),
        "d": x.shape[1],
        "scored_from": first,
        "t": mine.log_density[late].mean(),
        "t_median": float(np.median(mine.log_density[late])),
        "t_from_second_row": float(np.nanmean(mine.log_density)),
        "gaussian": scores.gaussian(found).mean(),
        "qlike": scores.qlike(found),
        "coverage": {str(wanted): np.mean(level <= wanted) for wanted in LEVELS},
        "weights": weights.mean(axis=0),
        "weight_with_velocity": weights[:, -N_TURNING:].sum(axis=1).mean(),
        "half_life": float(np.median(mine.half_life[late])),
        "microseconds": mine.microseconds,
    }


def run_still(stream: str, rows: int | None = None) -> dict[str, Any]:
    """The default without the members that carry a velocity: what the averages earn alone."""
    x, first = data.load(stream)
    x = x[:rows]
    still = [m for m in default_members(x.shape[1]) if not isinstance(m, Rotating)]
    theirs = KGMRF(members=still).filter(x).log_likelihood[first:]
    return _against(ours(x).log_density[first:], theirs)


def run_rival(stream: str, rival: str, rows: int | None = None) -> dict[str, Any]:
    """A rival at its best in hindsight, as a t and as a Gaussian, and how far ours is ahead."""
    x, first = data.load(stream)
    x = x[:rows]
    began = time.process_time()
    found = {
        settings: scores.reach(x[first:], forecasts[first:])
        for settings, forecasts in rivals.RIVALS[rival](x)
    }
    spent = 1e6 * (time.process_time() - began) / len(x) / len(found)
    mine = ours(x).log_density[first:]
    out: dict[str, Any] = {"microseconds": spent}
    gaussian = {settings: scores.gaussian(r) for settings, r in found.items()}
    best = max(gaussian, key=lambda s: float(gaussian[s].mean()))
    out["gaussian"] = _against(mine, gaussian[best]) | {
        "settings": best,
        "qlike": scores.qlike(found[best]),
    }
    student = {settings: scores.best_student(r) for settings, r in found.items()}
    best = max(student, key=lambda s: float(student[s][0].mean()))
    score, dof, scale = student[best]
    out["t"] = _against(mine, score) | {"settings": best, "dof": dof, "scale": scale}
    return out


def _against(mine: Numbers, theirs: Numbers) -> dict[str, Any]:
    ahead = mine - theirs
    return {
        "score": theirs.mean(),
        "ours_ahead": ahead.mean(),
        "interval": scores.interval(ahead),
        "median_ahead": float(np.median(ahead)),
    }


def units(quick: bool) -> list[Unit]:
    """Ours and every rival on every stream."""
    found = []
    rows = {"rows": 600} if quick else {}
    for stream in ("factors8", "ff_monthly") if quick else data.STREAMS:
        where = {"stream": stream, **rows}
        found.append(unit("streams", f"{stream}.ours", run_ours, **where))
        found.append(unit("streams", f"{stream}.still", run_still, **where))
        for rival in rivals.RIVALS:
            settings = {**where, "rival": rival}
            name = f"{stream}.{rival}"
            found.append(unit("streams", name, run_rival, **settings))
    return found
