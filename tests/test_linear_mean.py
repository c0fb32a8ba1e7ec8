"""A mean that is linear in the last rows: core and readable, the tracker, its forecasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, ObservationError, load
from kgmrf.alerts import Alarm, watch
from kgmrf.engines import core
from kgmrf.linear_mean import blank_rows, take_off
from kgmrf.readable import linear_mean as readable
from kgmrf.trackers._linear_mean import LinearMeanTracker

A = np.array([[0.7, 0.2], [-0.3, 0.5]])


def autoregressive(n: int = 3000, seed: int = 0) -> Any:
    """x_t = A x_{t-1} + e, e with covariance diag(1, .25)."""
    rng = np.random.default_rng(seed)
    noise, x = rng.normal(size=(n, 2)) * [1.0, 0.5], np.zeros((n, 2))
    for t in range(1, n):
        x[t] = A @ x[t - 1] + noise[t]
    return x


def with_holes(x: Any, share: float = 0.1) -> Any:
    x = x.copy()
    x[np.random.default_rng(9).random(x.shape) < share] = np.nan
    return x


@pytest.mark.skipif(core.compiled() is None, reason="the core is not built")
@pytest.mark.parametrize("lags", [1, 2, 3])
def test_core_and_readable_agree_one_step_from_the_same_row(lags: int) -> None:
    x = with_holes(autoregressive(400))
    x[:60, 1] = np.nan  # comes late
    x[200] *= 1e6
    x[250:255] = np.nan
    rows, index = blank_rows(1, 2, lags), np.zeros(1, np.int64)
    for line in x:
        other = rows.copy()
        ours, theirs = np.empty((2, 1, 2))
        readable.follow_linear_mean(other, index, line[None], lags, theirs)
        core.functions("linear_mean").follow_linear_mean(rows, index, line[None], lags, ours)
        np.testing.assert_allclose(rows, other, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)


def test_lines_of_many_tracks_are_those_of_each() -> None:
    x = np.stack([autoregressive(200, seed) for seed in range(3)])
    index = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 200))
    order = np.argsort(index, kind="stable")
    values = np.empty((600, 2))
    values[order] = x.reshape(600, 2)
    rows = blank_rows(3, 2, 2)
    found = take_off(rows, index, values, 2)
    for k in range(3):
        alone = blank_rows(1, 2, 2)
        expected = take_off(alone, np.zeros(200, int), x[k], 2)
        assert np.array_equal(found[index == k], expected)
        assert np.array_equal(rows[k], alone[0])


def test_it_finds_the_recursion_and_leaves_its_noise() -> None:
    tracker = KGMRF(mean="linear", lags=1)
    result = tracker.filter(autoregressive(6000))
    t = readable.mean_track(tracker._sums[0], 2, 1)
    units = np.sqrt(t.level)
    np.testing.assert_allclose(units[:, None] * t.slopes.T / units, A, atol=0.08)
    assert readable.share(t) > 0.95
    assert np.allclose(np.diag(result.covariance[-500:].mean(axis=0)), [1.0, 0.25], rtol=0.15)


def test_a_mean_that_forecasts_is_worth_it_and_one_that_does_not_costs_nothing() -> None:
    rng = np.random.default_rng(1)
    for x, least, most in (
        (autoregressive(), 0.3, 2.0),
        (rng.normal(size=(3000, 4)), -0.003, 0.003),
    ):
        plain = KGMRF(time_scale=1).filter(x, fields=["log_likelihood"]).log_likelihood
        linear = KGMRF(mean="linear").filter(x, fields=["log_likelihood"]).log_likelihood
        assert least < np.nanmean(linear[500:]) - np.nanmean(plain[500:]) < most


def test_the_likelihood_is_that_of_the_forecast() -> None:
    x = with_holes(autoregressive(300))
    tracker = KGMRF(mean="linear")
    for k, row in enumerate(x):
        if k > 2 and not np.isnan(row).all():
            expected = tracker.forecast(1).log_density(row)
            p = tracker.forecast(1).density.p_value(row)
            found = tracker.update(row)
            assert found.log_likelihood == pytest.approx(expected, rel=1e-9)
            assert found.p_value == pytest.approx(p, rel=1e-6)
        else:
            tracker.update(row)


def test_forecasts_further_ahead_are_those_of_the_companion_form() -> None:
    x = autoregressive(4000)
    tracker = KGMRF(mean="linear", lags=1)
    tracker.filter(x)
    t = readable.mean_track(tracker._sums[0], 2, 1)
    units = np.sqrt(t.level)
    own = readable.share(t) * units[:, None] * t.slopes.T / units
    steps = [KGMRF.forecast(tracker, k) for k in (1, 2, 3)]
    np.testing.assert_allclose(steps[0].mean, own @ x[-1], rtol=1e-8)
    np.testing.assert_allclose(steps[2].mean, own @ own @ own @ x[-1], rtol=1e-8)
    first, second = (
        super(LinearMeanTracker, tracker).predicted_values(float(k))["covariance"] for k in (1, 2)
    )
    expected = second + own @ first @ own.T
    np.testing.assert_allclose(steps[1].covariance, expected, rtol=1e-10)
    assert np.trace(steps[2].covariance) > np.trace(steps[1].covariance)
    # Far ahead there is nothing left of the last rows.
    far = tracker.forecast(200)
    np.testing.assert_allclose(far.mean, 0.0, atol=1e-3)
    assert far.covariance.shape == (2, 2)


def test_regions_of_forecasts_hold_what_they_promise() -> None:
    x = autoregressive(4000)
    tracker = KGMRF(mean="linear")
    tracker.filter(x[:1000])
    inside: dict[int, list[bool]] = {1: [], 5: [], 20: []}
    for k in range(1000, 3970, 5):
        for h, found in inside.items():
            ahead = tracker.forecast(h)
            found.append(bool(ahead.mahalanobis(x[k + h - 1]) <= ahead.region(0.95)))
        tracker.filter(x[k : k + 5], fields=["log_likelihood"])
    for h, found in inside.items():
        assert 0.91 < np.mean(found) < 0.985, h


def test_in_chunks_row_by_row_and_from_a_file_as_in_one_go(tmp_path: Path) -> None:
    x = with_holes(autoregressive(500))
    x[100:110] = np.nan
    whole = KGMRF(mean="linear").filter(x)
    tracker, means, covariances = KGMRF(mean="linear"), [], []
    for part in np.split(x, [3, 105, 300]):
        found = tracker.filter(part)
        means.append(found.mean)
        covariances.append(found.covariance)
        tracker.save(tmp_path / "state.npz")
        tracker = load(tmp_path / "state.npz")
    assert np.array_equal(np.concatenate(means), whole.mean)
    assert np.array_equal(np.concatenate(covariances), whole.covariance, equal_nan=True)
    single = KGMRF(mean="linear")
    for k, row in enumerate(x):
        estimate = single.update(row)
        assert np.array_equal(estimate.mean, whole.mean[k])
    assert np.array_equal(single.estimate().mean, whole[-1].mean)
    assert np.array_equal(single.forecast(4).covariance, tracker.forecast(4).covariance)


def test_a_batch_is_its_items() -> None:
    x = np.stack([autoregressive(200, seed) for seed in range(3)], axis=1)
    batch = KGMRF(mean="linear")
    whole = batch.filter(x[:, :, None], samples=True)
    ahead = batch.forecast(3)
    for k in range(3):
        tracker = KGMRF(mean="linear")
        alone = tracker.filter(x[:, k])
        assert np.array_equal(whole.mean[:, k], alone.mean)
        np.testing.assert_allclose(ahead.covariance[k], tracker.forecast(3).covariance, rtol=1e-12)
        np.testing.assert_allclose(ahead.mean[k], tracker.forecast(3).mean, rtol=1e-12)


def test_names_tables_and_what_cannot_be() -> None:
    pd = pytest.importorskip("pandas")
    x = autoregressive(300)
    tracker = KGMRF(mean="linear")
    result = tracker.filter(pd.DataFrame(x, columns=["a", "b"]))
    assert list(result.table("mean").columns) == ["a", "b"]
    assert list(tracker.forecast(1).table("mean").index) == ["a", "b"]
    with pytest.raises(ValueError, match="mean is zero"):
        tracker.forecast(1).density.project([1.0, 0.0])
    with pytest.raises(ObservationError, match="single rows"):
        KGMRF(mean="linear").filter(x.reshape(-1, 10, 2), samples=True)
    with pytest.raises(ObservationError, match="rank=None"):
        KGMRF(mean="linear").filter(np.ones((5, 64)))
    with pytest.raises(ValueError, match="lags must be a whole number"):
        KGMRF(mean="linear", lags=0)
    assert KGMRF(mean="linear").location.shape == (0,)
    np.testing.assert_array_equal(tracker.location, tracker.forecast(1).mean)


def test_samples_of_the_density_have_its_mean() -> None:
    tracker = KGMRF(mean="linear")
    x = autoregressive(500)
    x[-1] = [3.0, 2.0]
    tracker.filter(x)
    ahead = tracker.forecast(1)
    drawn = ahead.density.sample(20000, rng=0)
    np.testing.assert_allclose(drawn.mean(axis=0), ahead.mean, atol=0.05)
    assert np.abs(ahead.mean).max() > 1.0


def test_watch_takes_it() -> None:
    x = autoregressive(2000)
    x[1500:1540, 1] += 5.0
    found = watch(x, Alarm(1e-4), tracker=KGMRF(mean="linear"), adapt="no")
    assert any(1495 <= event.begin <= 1545 for event in found.events)


def test_damaged_state_is_refused(tmp_path: Path) -> None:
    tracker = KGMRF(mean="linear")
    tracker.filter(autoregressive(100))
    for place, value in ((0, -1.0), (3, -1.0), (5, np.nan)):
        broken = tracker.copy()
        broken._sums[0, place] = value
        broken.save(tmp_path / "state.npz")
        with pytest.raises(ValueError, match="linear mean"):
            load(tmp_path / "state.npz")


def test_on_the_command_line_and_in_a_stream(tmp_path: Path) -> None:
    from kgmrf.cli import main
    from kgmrf.stream.pool import Pool
    from kgmrf.stream.settings import Settings

    x = autoregressive(400)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", header="a,b", comments="")
    out = tmp_path / "out.npz"
    assert main(["track", str(tmp_path / "x.csv"), "--mean", "linear", "-o", str(out)]) == 0
    expected = KGMRF(mean="linear").filter(x)
    with np.load(out) as found:
        np.testing.assert_allclose(found["covariance"], expected.covariance, rtol=1e-6)
        np.testing.assert_allclose(found["log_likelihood"][1:], expected.log_likelihood[1:])
    pool = Pool("samples", 2, Settings(mean="linear"))
    tracks = pool.numbers(["one", "two"] * 400)
    both = np.repeat(x, 2, axis=0)
    left = pool.centred(tracks, both)
    np.testing.assert_allclose(left[::2], x - expected.mean, rtol=1e-12)
    np.testing.assert_allclose(left[1::2], left[::2], rtol=1e-12)
