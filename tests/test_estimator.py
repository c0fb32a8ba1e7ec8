"""The scikit-learn face, and tables and arrays with names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf import KGMRF, gains, simulate
from kgmrf.geometry import so
from kgmrf.model.centring import RunningMean

pytest.importorskip("sklearn", reason="scikit-learn is not installed: no estimators")

from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from kgmrf.sklearn.estimator import KineticCovariance, KineticTransformer
from kgmrf.sklearn.recentring import OnlineRecenter


def samples(n: int = 300, seed: int = 0, d: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.arange(d, 0, -1) + np.arange(d)


# ---------------------------------------------------------------------- the running mean


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 40), max_size=4))
def test_centring_in_chunks_equals_centring_the_whole(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, 3)) + 100.0
    rows[rng.random(rows.shape) < 0.2] = np.nan
    whole, pieces = RunningMean(), RunningMean()
    expected = whole.centre(rows)
    found = np.vstack([pieces.centre(part) for part in np.split(rows, sorted(cuts))])
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(pieces.location, whole.location)
    assert np.allclose(whole.location, np.nanmean(rows, axis=0))


def test_centred_samples_have_the_variance_of_the_samples() -> None:
    # sum of e_n^2 over n >= 2 is sum (x - mean)^2 exactly: n - 1 terms, no bias at any length.
    rows = samples(50)
    centred = RunningMean().centre(rows)
    assert np.allclose(np.nansum(centred**2, axis=0) / 49, np.var(rows, axis=0, ddof=1))


# ---------------------------------------------------------------------- KineticCovariance


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_it_passes_scikit_learns_own_checks() -> None:
    outcomes = check_estimator(KineticCovariance(), on_skip=None)
    assert len(outcomes) > 30
    assert {check["status"] for check in outcomes} <= {"passed", "skipped"}


def test_the_estimator_is_the_tracker() -> None:
    rows = samples() - np.arange(3)
    fitted = KineticCovariance(assume_centered=True).fit(rows)
    assert np.array_equal(fitted.covariance_, KGMRF(3).filter(rows).covariance[-1])
    assert np.array_equal(fitted.location_, np.zeros(3))


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("assume_centered", [True, False])
def test_fitted_in_parts_equals_fitted_whole(window: int, assume_centered: bool) -> None:
    rows = samples()
    rows[7, 1] = np.nan
    rows[20] = np.nan
    whole = KineticCovariance(window=window, assume_centered=assume_centered).fit(rows)
    parts = clone(whole)
    for part in np.split(rows, [5, 15, 100]):
        parts.partial_fit(part)
    for name in ("covariance_", "location_", "velocity_", "n_samples_seen_"):
        assert np.allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def test_a_window_that_is_not_full_still_counts() -> None:
    rows = samples(101)
    fitted = KineticCovariance(window=10, assume_centered=True).fit(rows)
    tracker = KGMRF(3)
    tracker.filter(rows[:100].reshape(10, 10, 3), samples=True)
    expected = tracker.partial_fit(rows[100:])
    assert np.allclose(fitted.covariance_, expected.covariance)


def test_score_precision_and_distance_mean_what_scikit_learn_means() -> None:
    rows, fresh = samples(), samples(50, seed=1)
    ours = KineticCovariance().fit(rows)
    theirs = EmpiricalCovariance().fit(rows)
    theirs._set_covariance(ours.covariance_)
    theirs.location_ = ours.location_
    assert ours.score(fresh) == pytest.approx(theirs.score(fresh), rel=1e-10)
    assert np.allclose(ours.mahalanobis(fresh), theirs.mahalanobis(fresh))
    assert np.allclose(ours.get_precision(), theirs.get_precision())


def test_a_missing_channel_is_scored_by_the_others() -> None:
    fitted = KineticCovariance().fit(samples())
    fresh = samples(20, seed=1)
    fresh[:, 1] = np.nan
    keep = [0, 2]
    block = fitted.covariance_[np.ix_(keep, keep)]
    centred = fresh[:, keep] - fitted.location_[keep]
    expected = np.einsum("ni,ij,nj->n", centred, np.linalg.inv(block), centred)
    assert np.allclose(fitted.mahalanobis(fresh), expected)
    by_hand = -0.5 * (expected + np.linalg.slogdet(block)[1] + 2 * np.log(2 * np.pi))
    assert fitted.score(fresh) == pytest.approx(by_hand.mean())
    fresh[3] = np.nan
    assert np.isnan(fitted.mahalanobis(fresh)[3])
    assert np.isfinite(fitted.score(fresh))
    with pytest.raises(ValueError, match="nothing but NaN"):
        fitted.score(np.full((2, 3), np.nan))


def test_it_follows_a_rotation_that_the_sample_covariance_smears() -> None:
    scene = simulate.ellipse(0.05, n_frames=300, n_samples=8, rng=2)
    rng = np.random.default_rng(0)
    roots = np.linalg.cholesky(scene.covariance)
    rows = np.einsum("tij,tmj->tmi", roots, rng.normal(size=(300, 8, 2))).reshape(-1, 2)
    ours = KineticCovariance(window=8, assume_centered=True).fit(rows)
    plain = EmpiricalCovariance(assume_centered=True).fit(rows)
    later = rng.multivariate_normal(np.zeros(2), scene.covariance[-1], 500)
    assert ours.score(later) > plain.score(later) + 0.1


def test_it_can_be_cross_validated() -> None:
    assert np.isfinite(cross_val_score(KineticCovariance(window=4), samples(120), cv=3)).all()


def test_a_single_gain_law_takes_its_settings() -> None:
    rows = samples() - np.arange(3)
    settings: dict[str, Any] = {"gains": gains.information(1e-5), "noise_floor": 0.1}
    fitted = KineticCovariance(assume_centered=True, **settings).fit(rows)
    expected = KGMRF(3, **settings).filter(rows).covariance[-1] + 0.1 * np.eye(3)
    assert np.array_equal(fitted.covariance_, expected)


def test_wrong_settings_are_told_when_fitted() -> None:
    with pytest.raises(ValueError, match="window must be a whole number"):
        KineticCovariance(window=0).fit(samples())
    with pytest.raises(ValueError, match="gains must be one of"):
        KineticCovariance(gains="bold").fit(samples())


# ---------------------------------------------------------------------- KineticTransformer


def matrices(n: int = 60, seed: int = 0) -> Any:
    return simulate.rotating_covariance(3, n_frames=n, n_samples=20, rng=seed).observations


def test_transform_is_the_filter_and_changes_nothing() -> None:
    X = matrices()
    step = KineticTransformer(n_samples=20).fit(X[:30])
    expected = KGMRF(3, n_samples=20).filter(X).covariance
    assert np.array_equal(step.transform(X), expected)
    assert np.array_equal(step.transform(X), expected)
    assert np.array_equal(clone(step).fit_transform(X), expected)


def test_going_on_continues_in_time() -> None:
    X = matrices()
    for step in (
        KineticTransformer(n_samples=20, go_on=True),
        OnlineRecenter(reference="tracker", n_samples=20),
        OnlineRecenter(reference="tracker", n_samples=20, turning=True),
    ):
        first, second = step.fit_transform(X[:30]), step.transform(X[30:])
        whole = clone(step).fit_transform(X)
        assert np.allclose(np.concatenate([first, second]), whole, rtol=1e-9, atol=1e-12)


def test_it_refuses_what_is_not_a_pile_of_matrices() -> None:
    with pytest.raises(ValueError, match=r"\(n_matrices, d, d\)"):
        KineticTransformer().fit(np.eye(3))


def drifting_trials(n: int, rng: Any) -> tuple[Any, Any]:
    """Two classes of signals (trials, channels, times) under a mixing that turns slowly."""
    labels = rng.integers(0, 2, n)
    scale = np.where(labels[:, None] == 0, [2.0, 1.0, 1.0], [1.0, 2.0, 1.0])
    turn = so.exp(so.hat(np.linspace(0.0, 1.5, n)[:, None] * np.asarray([0.0, 0.0, 1.0])))
    size = np.exp(np.linspace(0.0, 1.0, n))[:, None, None]
    raw = rng.normal(size=(n, 3, 60)) * np.asarray([3.0, 1.0, 0.5])[:, None] * scale[..., None]
    return size * (turn @ raw), labels


def test_a_pyriemann_classifier_behind_the_transformer() -> None:
    pytest.importorskip("pyriemann", reason="pyriemann is not installed: no pipeline")
    from pyriemann.classification import MDM
    from pyriemann.estimation import Covariances

    trials, labels = drifting_trials(300, np.random.default_rng(3))
    past, later = slice(0, 150), slice(150, None)
    body = OnlineRecenter(reference="tracker", n_samples=60, turning=True)
    pipes = {
        "plain": make_pipeline(Covariances(), MDM()),
        "ours": make_pipeline(Covariances(), body, MDM()),
    }
    score = {
        name: pipe.fit(trials[past], labels[past]).score(trials[later], labels[later])
        for name, pipe in pipes.items()
    }
    # The mixing has turned by half a radian to one and a half: the old axes mean nothing any more.
    assert score["ours"] > 0.9
    assert score["plain"] < 0.7


# ---------------------------------------------------------------------- names in, names out


def test_a_pandas_table_in_a_pandas_table_out_as_from_ewm() -> None:
    pd = pytest.importorskip("pandas")
    from kgmrf.tables import track_table

    days = pd.date_range("2024-01-01", periods=40, name="day")
    table = pd.DataFrame(samples(40), columns=["a", "b", "c"], index=days)
    table.columns.name = "asset"
    found = track_table(table, KGMRF(mean="expanding"))
    model = table.ewm(alpha=0.1).cov()
    assert found.index.equals(model.index)
    assert found.index.names == model.index.names
    assert found.columns.equals(model.columns)
    fitted = KineticCovariance().fit(table)
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    assert np.array_equal(found.loc[days[-1]].to_numpy(), fitted.covariance_)
    by_week = track_table(table, window=7)
    assert by_week.index.levels[0].tolist() == [days[k] for k in (6, 13, 20, 27, 34, 39)]


def test_pandas_and_polars_tables_agree() -> None:
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars", reason="polars is not installed: one kind of table less")
    from kgmrf.tables import track_table

    rows = samples(30)
    rows[4, 1] = np.nan
    table = pd.DataFrame(rows, columns=["a", "b", "c"])
    ours, theirs = track_table(table, window=4), track_table(pl.DataFrame(dict(table)), window=4)
    assert isinstance(theirs, pl.DataFrame)
    assert theirs.columns == ["row", "channel", "a", "b", "c"]
    assert theirs["row"].to_list() == ours.index.get_level_values(0).tolist()
    assert theirs["channel"].to_list() == ours.index.get_level_values(1).tolist()
    assert np.array_equal(theirs.select("a", "b", "c").to_numpy(), ours.to_numpy(), equal_nan=True)


def test_xarray_keeps_its_names() -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed: no named dimensions")
    from kgmrf.tables import track_array

    rng = np.random.default_rng(0)
    data = xr.DataArray(
        rng.normal(size=(3, 2, 64)) * np.asarray([3.0, 1.0, 0.5])[:, None, None],
        dims=("sensor", "subject", "time"),
        coords={"sensor": ["x", "y", "z"], "time": np.arange(64) * 0.01, "subject": ["s1", "s2"]},
    )
    found = track_array(data, channel="sensor", window=8, unit=0.08)
    assert found.covariance.dims == ("time", "subject", "sensor", "sensor_2")
    assert found.sizes["time"] == 8
    assert np.allclose(found.time, np.arange(7, 64, 8) * 0.01)
    one = data.sel(subject="s2").transpose("time", "sensor").values.reshape(8, 8, 3)
    alone = KGMRF().filter(one, samples=True)
    picked = found.covariance.sel(subject="s2", sensor="x", sensor_2="z")
    assert np.allclose(picked, alone.covariance[:, 0, 2])
    with pytest.raises(ValueError, match="none named 'channel'"):
        track_array(data)
    with pytest.raises(ValueError, match="do not fill one window"):
        track_array(data, channel="sensor", window=100)


def test_the_transformer_takes_time_stamps() -> None:
    """Stamps in another unit change nothing; a gap counts as long as it lasts."""
    rng = np.random.default_rng(3)
    X = np.stack([np.cov(rng.normal(size=(3, 30))) for _ in range(40)])
    times = np.arange(40.0)
    times[20:] += 15.0
    for model in (
        KineticTransformer(n_samples=30, gains="information"),
        OnlineRecenter(reference="tracker"),
    ):
        plain, slow = model.fit_transform(X, times=times), model.fit_transform(X, times=60 * times)
        np.testing.assert_allclose(slow, plain, rtol=1e-7, atol=1e-9)
        even = model.fit_transform(X)
        np.testing.assert_allclose(plain[:20], even[:20], rtol=1e-7, atol=1e-9)
        assert not np.allclose(plain[20:25], even[20:25], rtol=1e-4)
    half = KineticTransformer(n_samples=30, go_on=True).fit(X[:20], times=times[:20])
    whole = KineticTransformer(n_samples=30).fit_transform(X, times=times)
    np.testing.assert_allclose(half.transform(X[20:], times=times[20:]), whole[20:], rtol=1e-9)
