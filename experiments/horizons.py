"""Forecasts h rows ahead, and the first row after a gap: score and coverage on real streams.

    python -m experiments run horizons

The streams of `experiments.streams`. Ours is scored by the log-density of its own forecast, as it
comes. Every EWMA, iterated EWMA and DCC-GARCH forecasts the matrix that it has for the next row;
each gets the setting, the degrees of freedom and the scale of a Student-t that are best on the
scored rows in hindsight, for every horizon again. Totals: the sum of the next h rows.

Gaps: after every 30 rows between 2 and 40 are left out; the score is that of the first row after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from experiments.streams import data, rivals, scores
from kgmrf import KGMRF
from kgmrf._types import Numbers

AHEAD = (1, 5, 20, 60)
LEVELS = (0.95, 0.99)
EVERY, OBSERVED, LONGEST = 5, 30, 40
RIVALS = ("ewma", "iterated_ewma", "dcc_garch")


def ours(x: Numbers, first: int, ahead: tuple[int, ...], every: int) -> dict[int, Any]:
    """For every horizon the scored rows t + h, log p of them, and whether regions hold them; the
    last of the sum of the next h rows as well."""
    tracker = KGMRF(time_scale=1, time_unit=1.0)
    tracker.filter(x[: first - 1], fields="log_likelihood")
    rows = {h: [] for h in ahead}  # type: dict[int, list[Any]]
    for t in range(first - 1, len(x)):
        tracker.partial_fit(x[t])
        for h in ahead:
            if (t - first + 1) % every or t + h >= len(x):
                continue
            now, seen = tracker.forecast(h), x[t + h]
            total, whole = tracker.forecast_total(h), x[t + 1 : t + 1 + h].sum(axis=0)
            found = [t + h, now.log_density(seen)]
            found += [now.density.cdf(now.mahalanobis(seen))]
            found += [total.log_density(whole), total.density.cdf(total.mahalanobis(whole))]
            rows[h].append(found)
    return {h: np.array(found) for h, found in rows.items()}


def run(stream: str, rows: int | None = None, every: int = EVERY) -> dict[str, Any]:
    """Score and coverage by horizon, of the row and of the sum up to it; the best rivals."""
    x, first = data.load(stream)
    x = x[:rows]
    mine = ours(x, first, AHEAD, every)
    out: dict[str, Any] = {}
    for h, found in mine.items():
        row, density, level, total, total_level = found.T
        out[str(h)] = {
            "t": density.mean(),
            "coverage": {str(p): float(np.mean(level <= p)) for p in LEVELS},
            "total": total.mean(),
            "total_coverage": {str(p): float(np.mean(total_level <= p)) for p in LEVELS},
            "rivals": {},
        }
        mine[h] = row.astype(int), density
    for rival in RIVALS:
        best: dict[int, tuple[Numbers, str]] = {}
        for settings, forecasts in rivals.RIVALS[rival](x):
            for h, (row, _) in mine.items():
                # What is forecast for row t + 1 is what is known after row t.
                score = scores.best_student(scores.reach(x[row], forecasts[row - h + 1]))[0]
                if h not in best or score.mean() > best[h][0].mean():
                    best[h] = score, settings
        for h, (score, settings) in best.items():
            ahead = mine[h][1] - score
            out[str(h)]["rivals"][rival] = {
                "score": score.mean(),
                "settings": settings,
                "ours_ahead": ahead.mean(),
                "interval": scores.interval(ahead),
            }
    return {"d": x.shape[1], "scored_from": first, "every": every, "by_horizon": out}


def gaps(stream: str, rows: int | None = None) -> dict[str, Any]:
    """Score of the first row after gaps."""
    x, first = data.load(stream)
    x = x[:rows]
    rng, tracker, found, lengths, t = np.random.default_rng(0), KGMRF(time_scale=1), [], [], 0
    while t + OBSERVED + LONGEST < len(x):
        tracker.filter(x[t : t + OBSERVED], fields="log_likelihood")
        gap = int(rng.integers(2, LONGEST + 1))
        for _ in range(gap - 1):
            tracker.partial_fit(np.full(x.shape[1], np.nan))
        t += OBSERVED + gap - 1
        ahead = tracker.forecast(1)
        if t >= first:
            level = ahead.density.cdf(ahead.mahalanobis(x[t]))
            found.append([ahead.log_density(x[t]), level])
            lengths.append(gap)
    score, level = np.array(found).T
    coverage = {str(p): float(np.mean(level <= p)) for p in LEVELS}
    return {"gaps": len(score), "first_row": score.mean(), "coverage": coverage}


def units(quick: bool) -> list[Unit]:
    """Two units per stream."""
    names = ("ff_monthly",) if quick else tuple(data.STREAMS)
    small: dict[str, Any] = {"rows": 600} if quick else {}
    found = [unit("horizons", f"{name}.ahead", run, stream=name, **small) for name in names]
    return found + [unit("horizons", f"{name}.gaps", gaps, stream=name, **small) for name in names]
