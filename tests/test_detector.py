"""KineticDetector: scikit-learn's contract, calibration, explanations, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: no estimators")

from sklearn.utils.estimator_checks import check_estimator

from kgmrf import KGMRF
from kgmrf.detector import KineticDetector

MIX = np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 2.0]])


def rows(n: int, seed: int = 0) -> np.ndarray:
    return 7.0 + np.random.default_rng(seed).standard_normal((n, 3)) @ MIX


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("mean", ["running", "zero"])
def test_it_passes_scikit_learns_own_checks(mean: str) -> None:
    outcomes = check_estimator(KineticDetector(mean=mean), on_skip=None)
    assert not [one for one in outcomes if one["status"] == "failed"]


def test_outliers_are_as_rare_as_asked_for() -> None:
    """Means over fits: what a single fit of 1000 rows knows varies by itself."""
    shares = {rate: [] for rate in (1e-1, 1e-2)}
    for seed in range(10):
        model = KineticDetector().fit(rows(1000, seed))
        fresh = rows(5000, 100 + seed)
        for rate, found in shares.items():
            model.offset_ = np.log10(rate)
            found.append((model.predict(fresh) == -1).mean())
    for rate, found in shares.items():
        assert 0.5 * rate < np.mean(found) < 1.5 * rate


def test_rows_are_scored_one_by_one_and_nothing_is_learned() -> None:
    model = KineticDetector().fit(rows(300))
    fresh = rows(40, 1) + np.linspace(0, 5, 40)[:, None]
    before = model.tracker_.estimate().covariance
    whole = model.score_samples(fresh)
    alone = [model.score_samples(row[None])[0] for row in fresh]
    np.testing.assert_allclose(whole, alone, rtol=1e-9)
    np.testing.assert_array_equal(before, model.tracker_.estimate().covariance)
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


def test_parts_are_the_whole() -> None:
    x = rows(400)
    whole, parts = KineticDetector().fit(x), KineticDetector()
    for part in np.split(x, [100, 250]):
        parts.partial_fit(part)
    np.testing.assert_allclose(parts.score_samples(x), whole.score_samples(x), rtol=1e-9)


@pytest.mark.parametrize("mean", ["running", "zero"])
def test_one_row_at_a_time_is_the_p_value_of_the_tracker(mean: str) -> None:
    x = rows(60) if mean == "running" else rows(60) - 7.0
    model, found = KineticDetector(mean=mean), []
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
