"""Signals: how far ahead rows predict each other, and a covariance that is judged so far ahead."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, ObservationError, TrackerBank, load
from kgmrf.constants import STRUCTS
from kgmrf.engines import Lines, core
from kgmrf.engines.time_scale import TimeScale
from kgmrf.model.integrated_time import integrated_time
from kgmrf.readable import time_scale as readable


def noise(n: int = 3000, d: int = 3, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, d)) * np.arange(d, 0, -1)


def signal(n: int = 3000, d: int = 3, length: int = 30, seed: int = 0) -> Any:
    """Rows that are sums of the last ``length`` rows of noise: tau is about 2/3 of that."""
    rows = noise(n + length - 1, d, seed)
    sums = np.cumsum(np.vstack([np.zeros((1, d)), rows]), axis=0)
    return (sums[length:] - sums[:-length]) / np.sqrt(length)


# ---------------------------------------------------------------------- the integrated time


@pytest.mark.parametrize("length", [1, 4, 12, 40])
def test_integrated_time_is_that_of_a_moving_sum(length: int) -> None:
    # rho_l = 1 - l / L: tau = 1 + 2 sum (1 - l/L)^2.
    lags = np.arange(1, length)
    truth = 1.0 + 2.0 * ((1.0 - lags / length) ** 2).sum()
    found = np.mean([integrated_time(signal(2048, 4, length, seed)) for seed in range(6)])
    # The sum ends early, and rows are scaled to one length: both take a little away.
    assert 0.8 * truth < found < 1.05 * truth


def test_a_covariance_that_moves_is_no_signal() -> None:
    rows = noise(2048)
    angle = np.arange(2048) / 50.0
    turned = rows.copy()
    turned[:, 0] = np.cos(angle) * rows[:, 0] - np.sin(angle) * rows[:, 1]
    turned[:, 1] = np.sin(angle) * rows[:, 0] + np.cos(angle) * rows[:, 1]
    loud = np.exp(2.0 * np.sin(np.arange(2048) / 60.0))[:, None]
    assert integrated_time(turned * loud) < 2.0


def test_integrated_time_does_not_depend_on_units_mixing_or_a_mean() -> None:
    rows = signal(1500)
    mixed = rows @ np.random.default_rng(3).normal(size=(3, 3)) * [1e6, 1.0, 1e-6] + [1e7, 5.0, 0.0]
    assert integrated_time(mixed) == pytest.approx(integrated_time(rows), rel=0.05)


def test_integrated_time_of_rows_with_holes() -> None:
    rows = signal(2048)
    holes = rows.copy()
    holes[np.random.default_rng(1).random(2048) < 0.2] = np.nan
    assert integrated_time(holes) == pytest.approx(integrated_time(rows), rel=0.15)
    assert np.isnan(integrated_time(rows[:100]))
    assert integrated_time(np.zeros((300, 2))) == 1.0


# ---------------------------------------------------------------------- core and readable


def blank(d: int, horizon: float) -> Any:
    row = np.zeros(len(STRUCTS["TimeScaleHead"]) + 5 * (d * (d + 1) // 2))
    row[readable.HORIZON], row[readable.WEIGHT] = horizon, 0.2
    return row


@pytest.mark.skipif(core.compiled() is None, reason="the core is not built")
@pytest.mark.parametrize("d", [1, 2, 5])
def test_core_and_readable_agree_one_step_from_the_same_row(d: int) -> None:
    rows = signal(400, d, 10)
    rng = np.random.default_rng(d)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    rows[150] *= 1e3
    rows[:90, 0] = np.nan  # comes late
    rows[200:210] = np.nan
    row, dt = blank(d, 25.0), rng.uniform(0.5, 3.0, size=400)
    for x, interval in zip(rows, dt, strict=True):
        other = row.copy()
        ours, theirs = np.empty((2, 1, 1 + d * d))
        readable.follow_time_scale(other, x[None], np.array([interval]), theirs)
        core.functions("time_scale").follow_time_scale(row, x[None], np.array([interval]), ours)
        np.testing.assert_allclose(row, other, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_short_average_wins_where_the_covariance_moves_and_the_long_one_where_it_stays() -> (
    None
):
    still = signal(12000, 3, 20)
    # The mixing changes within some hundred rows, again and again.
    angle = np.cumsum(np.random.default_rng(2).normal(size=12000) * 0.02)
    moving = still.copy()
    moving[:, 0] = np.cos(angle) * still[:, 0] - np.sin(angle) * still[:, 1]
    moving[:, 1] = np.sin(angle) * still[:, 0] + np.cos(angle) * still[:, 1]
    moving *= np.exp(1.5 * np.sin(np.arange(12000) / 150.0))[:, None]
    weights = []
    for rows in (still, moving):
        row = blank(3, 30.0)
        core.functions("time_scale").follow_time_scale(row, rows, np.ones(12000), np.empty((0, 0)))
        weights.append(row[readable.WEIGHT])
    assert weights[0] < 0.15  # it begins at .2
    assert weights[1] > 2.0 * weights[0]
    assert weights[1] > 0.2


def test_effective_samples_are_those_of_white_noise() -> None:
    row = blank(4, 64.0)
    rows = noise(20000, 4)
    core.functions("time_scale").follow_time_scale(row, rows, np.ones(20000), np.empty((0, 0)))
    assert row[readable.SAMPLES] > 45.0


# ---------------------------------------------------------------------- the tracker


def test_forecasts_stay_and_the_covariance_is_that_of_the_signal() -> None:
    rows, truth = signal(6000), np.diag([9.0, 4.0, 1.0])
    plain, scaled = KGMRF(time_scale=1), KGMRF(time_scale="auto")
    one, other = plain.filter(rows), scaled.filter(rows)
    assert np.array_equal(one.log_likelihood, other.log_likelihood, equal_nan=True)
    assert np.array_equal(one.nis, other.nis, equal_nan=True)
    now, later = plain.forecast(3), scaled.forecast(3)
    assert np.array_equal(now.covariance, later.covariance)
    assert np.array_equal(now.log_density(rows[0]), later.log_density(rows[0]))

    def error(result: Any) -> float:
        units = np.sqrt(np.diag(truth))
        apart = result.covariance[3000:] / np.outer(units, units) - np.eye(3)
        return float(np.sqrt((apart**2).sum(axis=(1, 2)).mean()))

    assert error(other) < 0.5 * error(one)
    assert other.time_scale[-1] == pytest.approx(2.0 * other.integrated_time)
    assert other.time_scale[50] == 1.0
    assert 1.0 < other.effective_samples[-1] < other.time_scale[-1]
    assert np.isnan(other.velocity[-1]).all()
    assert np.array_equal(one.velocity[:100], other[:100].velocity, equal_nan=True)


def test_rows_that_do_not_predict_each_other_change_nothing() -> None:
    rows = noise(2500, 4)
    plain, scaled = KGMRF(), KGMRF(time_scale="auto")
    one, other = plain.filter(rows), scaled.filter(rows)
    for name in one.fields():
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name
    assert (other.time_scale == 1.0).all()
    assert (other.effective_samples == 1.0).all()
    now, then = plain.estimate(), scaled.estimate()
    for name in now.fields():
        assert np.array_equal(getattr(now, name), getattr(then, name), equal_nan=True), name


@pytest.mark.parametrize("scale", ["auto", 40])
def test_in_chunks_row_by_row_and_from_a_file_as_in_one_go(scale: Any, tmp_path: Path) -> None:
    rows = signal(2300)
    rows[np.random.default_rng(4).random(rows.shape) < 0.05] = np.nan
    rows[300:320] = np.nan
    whole = KGMRF(time_scale=scale).filter(rows)
    tracker, found = KGMRF(time_scale=scale), []
    for part in np.split(rows, [60, 128, 129, 700, 2047, 2100]):
        found.append(tracker.filter(part).covariance)
        tracker.save(tmp_path / "state.npz")
        tracker = load(tmp_path / "state.npz")
    assert np.array_equal(np.concatenate(found), whole.covariance, equal_nan=True)
    single = KGMRF(time_scale=scale)
    for k, row in enumerate(rows[:600]):
        estimate = single.update(row)
        assert np.array_equal(estimate.covariance, whole.covariance[k], equal_nan=True), k
        assert estimate.time_scale == whole.time_scale[k]
    assert np.array_equal(single.estimate().covariance, estimate.covariance)


def test_a_gap_makes_the_next_rows_count_more() -> None:
    rows = signal(3000)
    late = signal(400, seed=1) * 3.0
    times = np.concatenate([np.arange(3000.0), 3000.0 + 500.0 + np.arange(400.0)])
    spread = KGMRF(time_scale=60).filter(np.vstack([rows, late]), times=times)
    tight = KGMRF(time_scale=60).filter(np.vstack([rows, late]))
    sizes = [np.trace(r.covariance[3020]) for r in (spread, tight)]
    assert sizes[0] > sizes[1]


def test_an_artefact_does_not_stay() -> None:
    rows = signal(4000)
    clean = KGMRF(time_scale=40).filter(rows).covariance[3500]
    rows[3000] = 1e8
    hit = KGMRF(time_scale=40).filter(rows).covariance
    assert np.trace(hit[3001]) < 4.0 * np.trace(clean)
    assert np.abs(hit[3500] - clean).max() < 0.5 * np.trace(clean)


def test_rows_that_predict_each_other_are_named_with_the_remedy() -> None:
    rows = signal(1000)
    with pytest.warns(UserWarning, match=r'integrated time is \d+ rows.*time_scale="auto"'):
        found = KGMRF().filter(rows)
    assert found.integrated_time == pytest.approx(integrated_time(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KGMRF(time_scale=1).filter(rows)
        KGMRF(time_scale="auto").filter(rows)
        assert KGMRF().filter(noise(1000)).integrated_time < 2.0
        assert np.isnan(KGMRF().filter(rows[:100]).integrated_time)


def test_what_has_no_time_scale_is_refused_or_left() -> None:
    rows = signal(600)
    for wrong in (0.5, "long", True, np.nan):
        with pytest.raises(ValueError, match="time_scale"):
            KGMRF(time_scale=wrong)
    with pytest.raises(ValueError, match="leave out time_scale"):
        KGMRF(time_scale=40, gains="information")
    with pytest.raises(ObservationError, match="single rows"):
        KGMRF(time_scale=40).filter(rows.reshape(-1, 10, 3), samples=True)
    with pytest.raises(ObservationError, match="single rows"):
        KGMRF(time_scale=40).filter(np.stack([rows, rows], axis=1)[:, :, None], samples=True)
    with pytest.raises(ObservationError, match="rank=None"):
        KGMRF(time_scale=40).filter(np.zeros((10, 64)) + 1.0)
    blocks = KGMRF(time_scale="auto").filter(rows.reshape(-1, 10, 3), samples=True)
    assert "time_scale" not in blocks.fields()
    tracker = KGMRF(time_scale="auto")
    tracker.filter(rows)
    with pytest.raises(ValueError, match="single rows"):
        tracker.update(np.eye(3), n_samples=5)
    assert np.isfinite(tracker.estimate().covariance).all()


def test_banks_have_no_time_scale() -> None:
    with pytest.raises(ValueError, match="one row ahead"):
        TrackerBank(2, 3, time_scale="auto")


def test_a_raw_of_mne_is_a_signal_and_an_array_is_not() -> None:
    mne = pytest.importorskip("mne", reason="mne is not installed: no recordings")
    rows = 1e-5 * signal(1500)
    info = mne.create_info(3, 256.0, "eeg")
    raw = mne.io.RawArray(rows.T, info, verbose=False)
    found = KGMRF().filter(raw)
    assert found.time_scale[-1] > 8.0
    assert np.array_equal(
        found.covariance, KGMRF(time_scale="auto").filter(rows).covariance, equal_nan=True
    )
    epochs = mne.make_fixed_length_epochs(raw, 1.0, preload=True, verbose=False)
    assert "time_scale" not in KGMRF().filter(epochs).fields()


def test_the_estimator_takes_the_time_scale_of_the_signal() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: no estimators")
    from kgmrf.sklearn.estimator import KineticCovariance

    rows = signal(1500)
    fitted = KineticCovariance(assume_centered=True).fit(rows)
    expected = KGMRF(3, time_scale="auto").filter(rows).covariance[-1]
    assert np.array_equal(fitted.covariance_, expected)
    one = KineticCovariance(assume_centered=True, time_scale=1).fit(rows).covariance_
    assert not np.allclose(one, expected)


def test_damaged_rows_are_refused() -> None:
    engine = TimeScale(2)
    rows, x = engine.init(1), signal(300, 2)
    engine.advance(rows, Lines(np.zeros(300, int), x[:, None], np.ones(300), np.ones(300), False))
    engine.check(rows)
    for place, value in ((0, -1.0), (6, 1.5), (0, np.nan), (10, -1e9)):
        broken = rows.copy()
        broken[0, engine.begin + place] = value
        with pytest.raises(ValueError, match=r"time scale|positive semidefinite"):
            engine.check(broken)
    broken = rows.copy()
    broken[0, engine.stored] = 1e6
    with pytest.raises(ValueError, match="impossible number of rows"):
        engine.check(broken)


def test_diagnose_and_compare_say_that_rows_predict_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kgmrf import diagnose
    from kgmrf.cli import main

    def verdict(tracker: Any, rows: Any) -> dict[str, Any]:
        found = diagnose(tracker.filter(rows), rows).findings
        return {each.name: each for each in found}

    name, rows = "rows predict each other", signal(600)
    plain = verdict(KGMRF(time_scale=1), rows)
    assert plain[name].verdict == "fault"
    assert "time_scale" in plain[name].remedy
    assert not any("raise acceleration" in each.remedy for each in plain.values())
    for better in (KGMRF(time_scale="auto"), KGMRF(mean="linear")):
        found = verdict(better, rows)
        assert found[name].verdict == "ok"
        assert found["persistent lag"].verdict != "fault"
    assert verdict(KGMRF(), noise(600))[name].verdict == "ok"
    np.savetxt(tmp_path / "x.csv", rows[:300], delimiter=",", header="a,b,c", comments="")
    assert main(["compare", str(tmp_path / "x.csv")]) == 0
    said = capsys.readouterr().out
    assert "rows predict each other" in said
    assert said.index("mean=linear") < said.index("gains=auto")
