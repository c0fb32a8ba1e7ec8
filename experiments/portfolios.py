"""Portfolios: covariance forecasts judged by skfolio's own evaluation, and minimum variance.

    python -m experiments run portfolios

Daily returns (18 funds, 8 equity factors). `skfolio.model_selection`'s
``online_covariance_forecast_evaluation`` with its defaults (inverse-volatility portfolio, warm-up
of 500 days), one day and twenty days at a time: QLIKE of the portfolio, Mahalanobis ratio, bias
statistic. And the portfolio of least variance, S^{-1} 1 / 1' S^{-1} 1, of every day's forecast: its
volatility on the next day and its turnover, sum_i |w_t - w_{t-1}| per day; also with weights that
move only a tenth of the way each day. Rivals are skfolio's estimators with a grid of half-lives:
with defaults, and with those that are best in hindsight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import NotAvailable, Unit, unit
from kgmrf._types import Numbers

DATA = ("etf18", "factors8")
DAYS, WARM_UP, HORIZONS = 4000, 500, (1, 20)
SMOOTHING = 0.1
"""Share of the way to the new weights that a smoothed portfolio moves each day."""
OURS = "KineticCovariance"
GRIDS: dict[str, list[dict[str, float]]] = {
    OURS: [{}],
    "EWCovariance": [{}, *({"half_life": life} for life in (5, 10, 20, 80, 160))],
    "RegimeAdjustedEWCovariance": [
        {},
        *(
            {"half_life": fast, "corr_half_life": slow}
            for fast, slow in ((5, 40), (10, 40), (10, 80), (20, 80), (20, 160), (40, 160))
        ),
    ],
}
"""Estimators and settings; the first of each are its defaults."""


def returns_of(name: str, days: int) -> Numbers:
    """Daily returns (T, d), not in percent."""
    from experiments.streams import data

    found = getattr(data, name)()
    if found is None:
        raise NotAvailable("the returns are not there; set KGMRF_DATA")
    rows: Numbers = 0.01 * found.samples[:days]
    return rows


def estimator(name: str, settings: dict[str, float], horizon: int) -> Any:
    """A fresh estimator of the covariance of a day; ours of the mean of the next ``horizon``."""
    from skfolio import moments

    from kgmrf.skfolio import KineticCovariance

    if name == OURS:
        return KineticCovariance(horizon=horizon, **settings)
    return getattr(moments, name)(**settings)


def judged(name: str, settings: dict[str, float], rows: Numbers, horizon: int) -> dict[str, float]:
    """What skfolio's evaluation says."""
    from skfolio.model_selection import online_covariance_forecast_evaluation

    model = estimator(name, settings, horizon)
    found = online_covariance_forecast_evaluation(
        model, rows, warmup_size=WARM_UP, test_size=horizon
    )
    table = found.summary()
    return {
        "qlike": float(table.loc["Portfolio QLIKE", "mean"]),
        "mahalanobis": float(table.loc["Mahalanobis ratio", "mean"]),
        "diagonal": float(table.loc["Diagonal ratio", "mean"]),
        "bias": float(np.ravel(found.bias_statistic)[0]),
    }


def minimum_variance(name: str, settings: dict[str, float], rows: Numbers) -> dict[str, Any]:
    """Volatility (percent per year) and daily turnover of the portfolio of least variance."""
    model = estimator(name, settings, 1).partial_fit(rows[:WARM_UP])
    wanted = []
    for row in rows[WARM_UP:]:
        weights = np.linalg.solve(model.covariance_, np.ones(rows.shape[1]))
        wanted.append(weights / weights.sum())
        model.partial_fit(row[None])
    target = np.array(wanted)
    slow = target.copy()
    for k in range(1, len(slow)):
        slow[k] = slow[k - 1] + SMOOTHING * (target[k] - slow[k - 1])
    return {
        word: {
            "volatility": 100.0 * np.sqrt(252.0) * float(np.std((held * rows[WARM_UP:]).sum(1))),
            "turnover": float(np.abs(np.diff(held, axis=0)).sum(axis=1).mean()),
        }
        for word, held in (("daily", target), ("smoothed", slow))
    }


def run(stream: str, model: str, given: dict[str, float], days: int) -> dict[str, Any]:
    """One estimator on one data set."""
    rows = returns_of(stream, days)
    found: dict[str, Any] = {
        str(horizon): judged(model, given, rows, horizon) for horizon in HORIZONS
    }
    return found | {"minimum_variance": minimum_variance(model, given, rows), "days": len(rows)}


def units(quick: bool) -> list[Unit]:
    """Every estimator with every setting on every data set."""
    return [
        unit(
            "portfolios",
            ".".join([stream, name, *(f"{value:g}" for value in settings.values())]),
            run,
            stream=stream,
            model=name,
            given=settings,
            days=WARM_UP + 40 if quick else DAYS,
        )
        for stream in DATA
        for name, grid in GRIDS.items()
        for settings in grid
    ]
