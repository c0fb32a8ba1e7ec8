"""KineticDetector: scikit-learn's contract, calibration, explanations, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: no estimators")

from scipy import stats
from sklearn.utils.estimator_checks import check_estimator

from kgmrf import KGMRF
from kgmrf.model.density import Density
from kgmrf.model.stationary import stationary
from kgmrf.sklearn.detector import KineticDetector, OnlineDetector

MIX = np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 2.0]])


def rows(n: int, seed: int = 0) -> np.ndarray:
    return 7.0 + np.random.default_rng(seed).standard_normal((n, 3)) @ MIX


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_it_passes_scikit_learns_own_checks() -> None:
    outcomes = check_estimator(KineticDetector(), on_skip=None)
    assert not [one for one in outcomes if one["status"] == "failed"]


@pytest.mark.parametrize(("n", "hidden"), [(20, 0.0), (100, 0.1)])
def test_p_values_are_uniform_however_few_rows_there_were(n: int, hidden: float) -> None:
    """One fresh row for each of 300 fits."""
    rng, found = np.random.default_rng(n), []
    for seed in range(300):
        x = rows(n + 1, seed)
        x[rng.random(x.shape) < hidden] = np.nan
        x[-1] = np.where(np.isnan(x[-1]).all(), 7.0, x[-1])
        found.append(KineticDetector().fit(x[:-1]).p_value(x[-1:])[0])
    assert stats.kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(("dof", "tolerance"), [(3.0, 0.1), (12.0, 0.1), (1e6, 0.1)])
def test_the_density_is_that_of_the_rows(dof: float, tolerance: float) -> None:
    """Shape, mean and the tail at 1e-3, of Student-t rows with a tenth of the cells missing."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((20_000, 3)) @ MIX / np.sqrt(rng.chisquare(dof, (20_000, 1)) / dof)
    x[rng.random(x.shape) < 0.1] = np.nan
    mean, density = stationary(x + 5.0)
    np.testing.assert_allclose(mean, 5.0, atol=0.05)
    correlation = density.scale[0, 1] / np.sqrt(density.scale[0, 0] * density.scale[1, 1])
    assert correlation == pytest.approx(0.9 / np.hypot(0.9, 0.4), abs=0.01)
    p = density.p_value(x)
    assert 0.5e-3 < np.nanmean(p <= 1e-3) < 1.5e-3
    assert np.nanmean(p <= 0.1) == pytest.approx(0.1, rel=tolerance)


def test_missing_cells_are_filled_in_as_the_whole_likelihood_says() -> None:
    """The steps end where no mean, shape or weight nearby is more probable."""
    x = rows(200)
    x[7] += 20.0
    x[::3, 1], x[1::5, 2] = np.nan, np.nan
    mean, density = stationary(x)
    n, d = x.shape
    best = Density(density.scale * (n - d) / (n + 1.0), density.tails, density.dofs)
    assert density.dofs.item() < n - d
    top = np.nansum(best.log_density(x - mean))
    rng = np.random.default_rng(0)
    for _ in range(20):
        turn = np.eye(d) + 0.01 * rng.standard_normal((d, d))
        other = Density(turn @ best.scale @ turn.T, best.tails, best.dofs)
        assert np.nansum(other.log_density(x - mean)) < top
        assert np.nansum(best.log_density(x - mean - 0.05 * rng.standard_normal(d))) < top


def test_rows_are_scored_one_by_one_and_nothing_is_learned() -> None:
    model = KineticDetector().fit(rows(300))
    fresh = rows(40, 1) + np.linspace(0, 5, 40)[:, None]
    before = model.density_.scale.copy()
    whole = model.score_samples(fresh)
    alone = [model.score_samples(row[None])[0] for row in fresh]
    np.testing.assert_allclose(whole, alone, rtol=1e-9)
    np.testing.assert_array_equal(before, model.density_.scale)
    np.testing.assert_allclose(model.p_value(fresh), 10.0**whole)


def test_a_broken_correlation_is_found_and_named() -> None:
    model = KineticDetector(rate=1e-2).fit(rows(500))
    broken = np.array([[8.0, 6.1, 7.0], [8.0, 7.9, 7.0]])
    assert model.predict(broken).tolist() == [-1, 1]
    assert model.contribution(broken)[0].argmin() == 2
    np.testing.assert_allclose(
        model.contribution(broken).sum(axis=1),
        model.density_.mahalanobis(broken - model.location_),
    )


def test_missing_channels_do_not_count() -> None:
    model = KineticDetector().fit(rows(300))
    x = rows(3, 2)
    x[0], x[1, 0] = np.nan, np.nan
    assert np.isnan(model.p_value(x)).tolist() == [True, False, False]
    assert model.predict(x)[0] == 1


@pytest.mark.parametrize("mean", ["expanding", "zero"])
def test_one_row_at_a_time_is_the_p_value_of_the_tracker(mean: str) -> None:
    x = rows(60) if mean == "expanding" else rows(60) - 7.0
    model, found = OnlineDetector(mean=mean), []
    for row in x:
        one = dict(zip("abc", row.tolist(), strict=True))
        found.append(model.score_one(one))
        model.learn_one({name: one[name] for name in "cab"} if len(found) > 1 else one)
    told = KGMRF(mean=mean).filter(x).surprise
    # The mean of few rows is uncertain, which `filter` takes off the row.
    np.testing.assert_allclose(found[30:], told[30:], rtol=0.1, atol=0.02)
    with pytest.raises(ValueError, match="'z'"):
        model.learn_one({"z": 1.0})


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="rate"):
        KineticDetector(rate=0.0).fit(rows(50))
