"""Faces to other packages: skfolio, PyPortfolioOpt, pyRiemann, used as their users would."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF

pytest.importorskip("sklearn")


def test_names_are_found_where_users_look_for_them() -> None:
    from kgmrf import KineticCovariance, track_table

    assert KineticCovariance.__module__ == "kgmrf.sklearn.estimator"
    assert track_table.__module__ == "kgmrf.tables"
    assert kgmrf.diagnose is importlib.import_module("kgmrf.diagnosis").diagnose
    assert set(kgmrf.__all__) <= {*dir(kgmrf), *kgmrf._OPTIONAL}
    with pytest.raises(AttributeError, match="no attribute 'KineticThing'"):
        _ = kgmrf.KineticThing


# ---------------------------------------------------------------------- skfolio


@pytest.fixture(scope="module")
def returns():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("skfolio")
    rng = np.random.default_rng(0)
    values = 0.01 * rng.standard_normal((400, 4)) @ np.linalg.cholesky(0.5 * np.eye(4) + 0.5).T
    days = pd.date_range("2022-01-03", periods=400, freq="B")
    return pd.DataFrame(values, index=days, columns=["AAA", "BBB", "CCC", "DDD"])


def test_mean_risk_takes_it(returns) -> None:
    from skfolio import RiskMeasure
    from skfolio.optimization import MeanRisk
    from skfolio.prior import EmpiricalPrior

    from kgmrf.skfolio import KineticCovariance

    prior = EmpiricalPrior(covariance_estimator=KineticCovariance())
    model = MeanRisk(risk_measure=RiskMeasure.VARIANCE, prior_estimator=prior).fit(returns)
    tracker = KGMRF()
    tracker.filter(returns)
    S = tracker.forecast(1).covariance
    weights = np.linalg.solve(S, np.ones(4))
    np.testing.assert_allclose(model.weights_, weights / weights.sum(), atol=2e-3)


def test_online_evaluation_calls_partial_fit_and_gives_what_fit_gives(returns) -> None:
    from skfolio.model_selection import online_covariance_forecast_evaluation

    from kgmrf.skfolio import KineticCovariance

    found = online_covariance_forecast_evaluation(
        KineticCovariance(), returns, warmup_size=200, test_size=20
    )
    assert np.isfinite(found.summary().loc["Mahalanobis ratio", "mean"])
    whole, parts = KineticCovariance().fit(returns), KineticCovariance()
    for first in range(0, 400, 130):
        parts.partial_fit(returns.iloc[first : first + 130])
    np.testing.assert_allclose(parts.covariance_, whole.covariance_, rtol=1e-9)
    assert parts.tracker_.forecast(1).channels == ("AAA", "BBB", "CCC", "DDD")


def test_assets_that_are_listed_late_or_no_more(returns) -> None:
    from kgmrf.skfolio import KineticCovariance

    late = returns.copy()
    late.iloc[:390, 2] = np.nan
    found = KineticCovariance().fit(late).covariance_
    assert np.isnan(found[2]).all()
    assert np.isfinite(found[np.ix_([0, 1, 3], [0, 1, 3])]).all()
    known = KineticCovariance(min_observations=5).fit(late).covariance_
    assert np.isfinite(known).all()
    active = np.ones(returns.shape, dtype=bool)
    active[380:, 1] = False
    gone = KineticCovariance().fit(returns, active_mask=active)
    assert np.isnan(gone.covariance_[1]).all()
    assert np.isfinite(gone.score(returns.iloc[-20:]))
    with pytest.raises(ValueError, match="active_mask has shape"):
        KineticCovariance().fit(returns, active_mask=active[:5])
    with pytest.raises(ValueError, match="horizon must be a whole number"):
        KineticCovariance(horizon=0).fit(returns)


def test_a_horizon_is_an_average_over_days(returns) -> None:
    from kgmrf.skfolio import KineticCovariance

    model = KineticCovariance(horizon=5).fit(returns)
    total = model.tracker_.forecast_total(5)
    np.testing.assert_allclose(5 * model.covariance_, total.covariance, rtol=1e-8)


def test_pyportfolioopt_takes_the_table(returns) -> None:
    pypfopt = pytest.importorskip("pypfopt")
    tracker = KGMRF()
    tracker.filter(returns)
    frontier = pypfopt.EfficientFrontier(None, tracker.forecast_total(21).table())
    assert set(frontier.min_volatility()) == {"AAA", "BBB", "CCC", "DDD"}
