"""Many channels through what users call: tracker, bank, files, memory."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF, KineticGaussian, TrackerBank
from kgmrf._check import ObservationError
from kgmrf.engines.low_rank import CROSSOVER, LowRank


def rows(d, n, seed=0):
    g = np.random.default_rng(seed)
    return g.normal(size=(n, 3)) @ g.normal(size=(3, d)) + g.normal(size=(n, d))


def test_samples_of_many_channels_are_followed_by_factors():
    x = rows(CROSSOVER, 40)
    for tracker in (KGMRF(), KGMRF(rank=4), KGMRF(CROSSOVER, rank=4)):
        result = tracker.filter(x)
        assert isinstance(tracker._engine, LowRank)
        assert "covariance" not in result.fields()
        assert result.loadings.shape[:2] == (40, CROSSOVER)
        whole = result[-1].loadings @ result[-1].loadings.T + np.diag(result[-1].noise)
        np.testing.assert_allclose(result[-1].covariance, whole)
    for tracker in (KGMRF(rank=None), KGMRF(noise_floor=0.1)):
        tracker.filter(x, fields="log_likelihood")
        assert not isinstance(tracker._engine, LowRank)
    small = KGMRF()
    small.filter(x[:, :10])
    assert not isinstance(small._engine, LowRank)


def test_matrices_take_the_small_engine_unless_a_rank_is_given():
    matrices = np.tile(np.eye(CROSSOVER), (3, 1, 1))
    assert KGMRF(n_samples=8).filter(matrices).covariance.shape == matrices.shape
    with pytest.raises(ValueError, match="rank=None"):
        KGMRF(rank=3, n_samples=8).filter(matrices)
    tracker = KGMRF()
    tracker.filter(rows(CROSSOVER, 20), fields="log_likelihood")
    with pytest.raises(ValueError, match="rank=None"):
        tracker.update(matrices[0], n_samples=8)


def test_whole_chunked_one_by_one_and_banks_are_the_same():
    x = rows(20, 60)
    x[5, 3] = np.nan
    whole, chunked, single = (KGMRF(rank=4) for _ in range(3))
    result = whole.filter(x)
    parts = [chunked.filter(x[:25]), chunked.filter(x[25:])]
    scores = np.concatenate([part.log_likelihood for part in parts])
    np.testing.assert_array_equal(scores, result.log_likelihood)
    np.testing.assert_array_equal(parts[1].loadings, result.loadings[25:])
    for row in x:
        last = single.partial_fit(row)
    np.testing.assert_array_equal(last.covariance, result[-1].covariance)
    np.testing.assert_array_equal(whole.estimate().covariance, result[-1].covariance)
    bank = TrackerBank(2, 20, rank=4)
    for row in x:
        bank.update(np.stack([row, 2.0 * row]))
    np.testing.assert_array_equal(bank.estimate().covariance[0], result[-1].covariance)
    np.testing.assert_allclose(bank.log_likelihood[0], result.log_likelihood[-1])


def test_a_batch_is_its_items():
    x = np.stack([rows(12, 40), rows(12, 40, 1)], axis=1)
    result = KGMRF(rank=3).filter(x[:, :, None], samples=True)
    for item in range(2):
        alone = KGMRF(rank=3).filter(x[:, item])
        np.testing.assert_array_equal(result.log_likelihood[:, item], alone.log_likelihood)
        np.testing.assert_array_equal(result.noise[:, item], alone.noise)


def test_the_forecast_has_the_density_of_the_next_row():
    x = rows(CROSSOVER, 60)
    tracker = KGMRF()
    tracker.filter(x[:-1], fields="log_likelihood")
    ahead = tracker.forecast(1)
    expected = float(ahead.log_density(x[-1]))
    assert tracker.partial_fit(x[-1]).log_likelihood == pytest.approx(expected)


def test_files_copies_and_pickles(tmp_path):
    x = rows(CROSSOVER, 50)
    tracker = KGMRF()
    result = tracker.filter(x[:40])
    tracker.save(tmp_path / "state")
    others = [KGMRF.load(tmp_path / "state"), copy.deepcopy(tracker)]
    others.append(pickle.loads(pickle.dumps(tracker)))
    expected = tracker.filter(x[40:]).log_likelihood
    for other in others:
        np.testing.assert_array_equal(other.filter(x[40:]).log_likelihood, expected)
    kept = pickle.loads(pickle.dumps(result[-1]))
    np.testing.assert_allclose(kept.covariance, result[-1].covariance)
    bank = TrackerBank(1, CROSSOVER)
    bank.update(x[:1])
    bank.save(tmp_path / "bank")
    again = TrackerBank.load(tmp_path / "bank")
    for each in (bank, again):
        each.update(x[1:2])
    np.testing.assert_array_equal(bank.covariance, again.covariance)


def test_a_bank_takes_matrices_too():
    bank = TrackerBank(2, CROSSOVER)
    taken = bank.update(np.tile(np.eye(CROSSOVER), (2, 1, 1)), n_samples=5)
    assert taken.observed.all()


@pytest.mark.parametrize(
    "settings",
    [{"rank": 0}, {"rank": 1.5}, {"rank": "ten"}, {"rank": 3, "gains": "information"}],
)
def test_a_rank_that_cannot_be_says_so(settings):
    with pytest.raises(ValueError, match="rank"):
        KGMRF(**settings)


def test_a_rank_has_no_smoother_and_says_so():
    with pytest.raises(ValueError, match="leave out rank"):
        KGMRF(rank=3).smooth(rows(10, 20))


def test_2000_rows_of_500_channels_fit_into_200_megabytes():
    x = rows(500, 2000)
    tracemalloc.start()
    try:
        tracker = KGMRF()
        result = tracker.filter(x)
        assert tracker.estimate().covariance.shape == (500, 500)
        assert np.isfinite(result.log_likelihood[1:]).all()
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()


def test_wrong_numbers_of_channels():
    tracker = KGMRF()
    tracker.filter(rows(CROSSOVER, 5), fields="log_likelihood")
    with pytest.raises(ObservationError, match="channels"):
        tracker.partial_fit(np.zeros(3))


def test_irregular_time_gaps_and_late_channels_row_by_row():
    x = rows(70, 40)
    x[:15, :5], x[20], x[5, 9:12] = np.nan, np.nan, np.nan
    times = np.cumsum(np.random.default_rng(1).uniform(0.5, 4.0, size=40))
    result = KGMRF(time_unit=2.0).filter(x, times=times)
    assert np.isnan(result[10].noise[:5]).all()
    assert np.isfinite(result[-1].covariance).all()
    assert np.isnan(result.log_likelihood[20])
    single = KGMRF(70, time_unit=2.0)
    for row, dt in zip(x, np.diff(times, prepend=times[0]), strict=True):
        last = single.partial_fit(row, dt=dt)
    np.testing.assert_allclose(last.covariance, result[-1].covariance, rtol=1e-9)


def test_velocity_is_a_setting_of_factors(tmp_path):
    x = rows(20, 60)
    tracker = KGMRF(rank=3, rotating_axes=True)
    tracker.filter(x[:50], fields="log_likelihood")
    assert len(tracker.estimate().weights) == 8
    tracker.save(tmp_path / "state")
    again = KGMRF.load(tmp_path / "state").filter(x[50:])
    np.testing.assert_array_equal(again.log_likelihood, tracker.filter(x[50:]).log_likelihood)
    with pytest.raises(ValueError, match="rotating_axes=True needs a number of factors"):
        KGMRF(rotating_axes=True)


# ---------------------------------------------------------------------- faces

CHANNELS = 66


@pytest.fixture(scope="module")
def wide():
    """Samples, and what a tracker finds in them."""
    x = rows(CHANNELS, 30)
    x[7, 3] = np.nan
    return x, KGMRF().filter(x)


def test_streams_of_many_channels(wide):
    from kgmrf.stream import Settings, Stream

    x, result = wide
    values = [[None if np.isnan(v) else v for v in row] for row in x.tolist()]
    lines = [
        json.dumps({"key": key, "time": t, "x": row}).encode()
        for t, row in enumerate(values)
        for key in "ab"
    ]
    told = Settings(fields=("log_likelihood", "covariance"), digits=17, time_unit=1.0)
    whole = Stream(told).take(lines)
    stream = Stream(told)
    assert stream.take(lines[:13]) + stream.take(lines[13:]) == whole
    found = [json.loads(line) for line in whole.splitlines()]
    for key in "ab":
        own = [line for line in found if line["key"] == key]
        scores = np.array([line["log_likelihood"] for line in own[1:]], dtype=float)
        np.testing.assert_allclose(scores, result.log_likelihood[1:])
        np.testing.assert_allclose(own[-1]["covariance"], result[-1].covariance)


def test_tables_of_many_channels(wide):
    pandas = pytest.importorskip("pandas")
    from kgmrf import track_table

    x, result = wide
    names = [f"c{k}" for k in range(CHANNELS)]
    found = track_table(pandas.DataFrame(x, columns=names))
    assert list(found.columns) == names
    np.testing.assert_allclose(found.loc[29].to_numpy(), result[-1].covariance)


def test_dask_with_many_channels(wide):
    da = pytest.importorskip("dask.array")
    from kgmrf.dask import filter_array

    x, result = wide
    samples = np.stack([x, 2.0 * x], axis=1)[:, :, None]
    lazy = da.from_array(samples, chunks=(12, 1, 1, CHANNELS))
    found = filter_array(TrackerBank(0, CHANNELS), lazy, samples=True)["covariance"]
    last = found[-1].compute(scheduler="synchronous")
    np.testing.assert_allclose(last[0], result[-1].covariance)
    np.testing.assert_allclose(last[1], 4.0 * result[-1].covariance)


def test_the_command_line_with_many_channels(wide, tmp_path):
    x, result = wide
    np.save(tmp_path / "x.npy", x)
    call = [sys.executable, "-m", "kgmrf", "track", "x.npy", "-o", "out.npz", "-q"]
    call += ["--fields", "log_likelihood,covariance"]
    path = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    done = subprocess.run(call, capture_output=True, text=True, env=path, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_allclose(found["log_likelihood"], result.log_likelihood)
        np.testing.assert_allclose(found["covariance"][-1], result[-1].covariance)


def test_scikit_learn_with_many_channels(wide):
    from kgmrf import KineticCovariance

    x, result = wide
    found = KineticCovariance(assume_centered=True).fit(x)
    np.testing.assert_allclose(found.covariance_, result[-1].covariance)
    assert found.frame_.shape == (CHANNELS, CHANNELS)
    assert np.isnan(found.velocity_).all()  # factors do not know
    assert np.isfinite(KineticCovariance().fit(x).score(np.nan_to_num(x)))


def test_a_tracker_that_hands_on_matrices_takes_many_channels_and_loads_again(tmp_path):
    x = rows(CROSSOVER, 12)
    tracker = KineticGaussian()
    tracker.filter(x[:10])
    tracker.save(tmp_path / "state.npz")
    loaded = kgmrf.load(tmp_path / "state.npz")
    for row in x[10:]:
        here, there = tracker.partial_fit(row), loaded.partial_fit(row)
        np.testing.assert_array_equal(here.covariance, there.covariance)
