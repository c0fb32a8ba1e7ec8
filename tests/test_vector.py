"""Laws of the vector tracker: it is the exact Gaussian filter, and keeps the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kgmrf
from kgmrf import ObservationError
from kgmrf.model.gains import InformationGains, transition
from kgmrf.trackers.vector import VectorTracker

SEEDS = st.integers(0, 2**32 - 1)


def _walk(rng: np.random.Generator, n_frames: int = 40, d: int = 2) -> np.ndarray:
    """A moving point seen with noise, some frames and some components missing."""
    x = np.cumsum(np.cumsum(0.1 * rng.standard_normal((n_frames, d)), axis=0), axis=0)
    y = x + rng.standard_normal((n_frames, d))
    y[rng.random(n_frames) < 0.15] = np.nan
    y[rng.random((n_frames, d)) < 0.1] = np.nan
    return y


def _spread(rng: np.random.Generator, d: int) -> np.ndarray:
    A = rng.standard_normal((d, d + 2))
    return A @ A.T / d


def _same(a: Any, b: Any, tolerance: float = 1e-10) -> None:
    assert a.fields() == b.fields()
    for name in a.fields():
        np.testing.assert_allclose(
            getattr(a, name), getattr(b, name), atol=tolerance, rtol=tolerance, err_msg=name
        )


def _joint(
    y: np.ndarray, times: np.ndarray, R: np.ndarray, q: Any, walk: float, rho: float, rate: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """Without any filter: the whole path is a linear map of a flat start and white sources.

    Returns the log density of all observations (flat in the start), and mean and covariance of the
    last position.
    """
    d = y.shape[1]
    eye, none = np.eye(d), np.zeros((d, d))
    state = np.block([[eye, none], [none, np.sqrt(rate) * eye]])
    maps = [state]
    for dt in np.diff(times):
        over = transition(InformationGains(acceleration=1.0, retention=rho), np.asarray(dt))
        F = np.block([[eye, over.turn * eye], [none, over.keep * eye]])
        Q = np.block([[over.angle * q, over.cross * q], [over.cross * q, over.rate * q]])
        Q[:d, :d] += walk * dt * eye
        values, vectors = np.linalg.eigh(Q)
        state = np.hstack([F @ state, vectors * np.sqrt(np.maximum(values, 0.0))])
        maps.append(state)
    size = state.shape[1]
    positions = [np.pad(m[:d], ((0, 0), (0, size - m.shape[1]))) for m in maps]
    prior = np.eye(size)
    prior[:d, :d] = 0.0  # the start may be anywhere
    precision, pull, loss = prior, np.zeros(size), 0.0
    for H, seen in zip(positions, y, strict=True):
        there = ~np.isnan(seen)
        if there.any():
            r = np.linalg.inv(R[np.ix_(there, there)])
            precision = precision + H[there].T @ r @ H[there]
            pull = pull + H[there].T @ r @ seen[there]
            loss += there.sum() * np.log(2 * np.pi) - np.linalg.slogdet(r)[1]
            loss += seen[there] @ r @ seen[there]
    best = np.linalg.solve(precision, pull)
    loss += np.linalg.slogdet(precision)[1] - d * np.log(2 * np.pi) - pull @ best
    last = positions[-1]
    return -0.5 * loss, last @ best, last @ np.linalg.solve(precision, last.T)


@given(seed=SEEDS, rho=st.sampled_from([1.0, 0.9]))
def test_it_is_the_exact_conditional_gaussian(seed: int, rho: float) -> None:
    """Filtered one by one = conditioned in one go: estimate, uncertainty and likelihood."""
    rng = np.random.default_rng(seed)
    d, T = 2, 12
    y = _walk(rng, T, d)
    y[0] = rng.standard_normal(d)
    times = np.cumsum(rng.uniform(0.2, 2.0, T))
    R, q = _spread(rng, d), 0.1 * _spread(rng, d)
    tracker = VectorTracker(
        d,
        noise_covariance=R,
        acceleration=q,
        position_noise=0.05,
        retention=rho,
        rate_prior=0.3,
        time_unit=1.0,
    )
    result = tracker.filter(y, times=times)
    likelihood, last, spread = _joint(y, times, R, q, 0.05, rho, 0.3)
    np.testing.assert_allclose(np.nansum(result.log_likelihood), likelihood, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(result.position[-1], last, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(result.position_covariance[-1], spread, rtol=1e-8, atol=1e-8)


@given(seed=SEEDS)
def test_a_component_seen_late_starts_from_an_endlessly_wide_prior(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = _walk(rng, 8, 3)
    y[0] = [1.0, np.nan, np.nan]
    y[1:3, 2] = np.nan
    y[4] = rng.standard_normal(3)
    R = _spread(rng, 3) + 0.2 * np.eye(3)
    times = np.arange(8.0)
    # The velocity of an unseen component waits in the tracker and wanders in the oracle: only
    # without acceleration they are the same.
    tracker = VectorTracker(3, noise_covariance=R, acceleration=0.0, rate_prior=0.5)
    result = tracker.filter(y, times=times)
    likelihood, last, spread = _joint(y, times, R, np.zeros((3, 3)), 0.0, 1.0, 0.5)
    np.testing.assert_allclose(np.nansum(result.log_likelihood), likelihood, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(result.position[-1], last, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(result.position_covariance[-1], spread, rtol=1e-8, atol=1e-8)
    assert np.isnan(result.position[0, 1:]).all()
    assert np.isnan(result.std[0, 1:]).all()


@given(seed=SEEDS)
def test_turning_the_data_turns_the_estimate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((30, 3))
    R = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    a = VectorTracker(noise_std=0.7, acceleration=0.1).filter(y)
    b = VectorTracker(noise_std=0.7, acceleration=0.1).filter(y @ R.T)
    np.testing.assert_allclose(b.position, a.position @ R.T, atol=1e-11)
    np.testing.assert_allclose(b.velocity, a.velocity @ R.T, atol=1e-11)
    np.testing.assert_allclose(b.log_likelihood, a.log_likelihood, atol=1e-11)


def test_the_normalised_innovation_is_calibrated() -> None:
    rng = np.random.default_rng(0)
    v = np.cumsum(0.1 * rng.standard_normal((4000, 2)), axis=0)
    x = np.cumsum(v, axis=0) + 2.0 * rng.standard_normal(v.shape)
    result = VectorTracker(noise_std=2.0, acceleration=0.01).filter(x)
    # chi-squared with 2 degrees of freedom: mean 2, variance 4
    assert abs(np.nanmean(result.nis) - 2.0) < 5 * np.sqrt(4 / 4000)


def test_many_samples_are_one_with_less_noise() -> None:
    y = np.random.default_rng(1).standard_normal((20, 2))
    a = VectorTracker(noise_std=2.0, acceleration=0.1, rate_prior=1.0).filter(y, n_samples=16)
    b = VectorTracker(noise_std=0.5, acceleration=0.1, rate_prior=1.0).filter(y)
    _same(a, b)
    c = VectorTracker(noise_covariance=4.0 * np.eye(2), acceleration=0.1, rate_prior=1.0)
    for k in range(20):
        estimate = c.update(y[k], n_samples=16)
    _same(estimate, b[19])


# ------------------------------------------------------------------ the contract


def test_chunked_is_whole_through_files(tmp_path: Path) -> None:
    y, times = _walk(np.random.default_rng(2)), np.cumsum(np.linspace(0.5, 1.5, 40))
    whole = VectorTracker(noise_std=1.0, retention=0.9).filter(y, times=times)
    tracker: Any = VectorTracker(noise_std=1.0, retention=0.9)
    for low, high in ((0, 1), (1, 3), (3, 20), (20, 40)):
        piece = tracker.filter(y[low:high], times=times[low:high])
        _same(piece, whole[low:high])
        tracker.save(tmp_path / "state.npz")
        tracker = kgmrf.load(tmp_path / "state.npz")
    assert isinstance(tracker, VectorTracker)


def test_update_is_filter_and_a_batch_is_its_items() -> None:
    rng = np.random.default_rng(3)
    y = np.stack([_walk(rng) for _ in range(3)], axis=1)
    y[:4, 1] = np.nan
    batch = VectorTracker(noise_std=1.0).filter(y)
    tracker = VectorTracker(noise_std=1.0)
    for k in range(40):
        estimate = tracker.update(y[k])
        _same(estimate, batch[k])
    for item in range(3):
        alone = VectorTracker(noise_std=1.0).filter(y[:, item])
        for name in alone.fields():
            np.testing.assert_allclose(
                getattr(batch, name)[:, item], getattr(alone, name), atol=1e-10, err_msg=name
            )
    assert list(batch.to_frame().columns[:4]) == ["frame_number", "item_0", "time", "age"]


def test_coasting_is_forecasting_and_a_forecast_changes_nothing() -> None:
    tracker = VectorTracker(noise_std=1.0, retention=0.8)
    tracker.filter(_walk(np.random.default_rng(4)))
    twin = tracker.copy()
    ahead = tracker.forecast(3)
    for _ in range(3):
        coasted = twin.update(None)
    np.testing.assert_allclose(coasted.position, ahead.position, atol=1e-12)
    np.testing.assert_allclose(coasted.std, ahead.std, atol=1e-12)
    assert float(coasted.age - ahead.age) == 0.0
    _same(tracker.forecast(3), ahead)


def test_settings_rebuild_the_tracker() -> None:
    tracker = VectorTracker(
        2, noise_covariance=[[2.0, 0.5], [0.5, 1.0]], acceleration=[0.1, 0.2], rate_prior=0.5
    )
    twin = VectorTracker(**tracker.settings())
    assert repr(twin) == repr(tracker)
    y = _walk(np.random.default_rng(5))
    _same(twin.filter(y), tracker.filter(y))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.ones(3), "d = 3"),
        (np.ones((4, 2)), "batch"),
        ([1.0, np.inf], "infinity"),
        (np.ones(2, dtype=complex), "complex"),
        (3.0, "vectors"),
    ],
)
def test_bad_observations_are_refused_and_change_nothing(bad: Any, words: str) -> None:
    tracker = VectorTracker(noise_std=1.0)
    tracker.filter(_walk(np.random.default_rng(6)))
    before = tracker.forecast(1)
    with pytest.raises(ObservationError, match=words):
        tracker.update(bad)
    _same(tracker.forecast(1), before)


def test_missing_and_invalid_frames() -> None:
    y = _walk(np.random.default_rng(7))
    broken = y.copy()
    broken[5] = np.inf
    missing = y.copy()
    missing[5] = np.nan
    skip = VectorTracker(noise_std=1.0, on_invalid="skip")
    _same(skip.filter(broken), VectorTracker(noise_std=1.0).filter(missing))
    mask = np.ones(40, dtype=bool)
    mask[5] = False
    _same(
        VectorTracker(noise_std=1.0).filter(broken, mask=mask),
        VectorTracker(noise_std=1.0).filter(missing),
    )
    listed = [None if np.isnan(frame).all() else frame for frame in missing]
    _same(VectorTracker(noise_std=1.0).filter(listed), VectorTracker(noise_std=1.0).filter(missing))
    assert np.isnan(VectorTracker(d=2, noise_std=1.0).update(None).position).all()
    for call in (
        lambda: VectorTracker(noise_std=1.0).update(None),
        lambda: VectorTracker(noise_std=1.0).forecast(),
        lambda: VectorTracker(noise_std=1.0).filter([1.0, 2.0]),
    ):
        with pytest.raises(ObservationError):
            call()


def test_settings_are_checked() -> None:
    for arguments in (
        {},
        {"acceleration": 1.0, "rate_prior": 1.0},
        {"noise_std": 0.0},
        {"noise_std": -1.0},
        {"noise_std": 1.0, "noise_covariance": np.eye(2)},
        {"noise_covariance": np.ones(2)},
        {"noise_covariance": [[1.0, 2.0], [2.0, 1.0]]},
        {"noise_std": 1.0, "acceleration": -1.0},
        {"noise_std": [1.0, 2.0], "d": 3},
        {"noise_std": 1.0, "retention": 1.5},
        {"noise_std": 1.0, "rate_prior": 0.0},
    ):
        with pytest.raises(ValueError, match=r"must|give|is for"):
            VectorTracker(**arguments)  # type: ignore[arg-type]


def test_words_and_pictures(tmp_path: Path) -> None:
    result = VectorTracker(noise_std=1.0).filter(_walk(np.random.default_rng(8)))
    assert "position" in repr(result[0])
    assert "Result(40 steps" in repr(result)
    pytest.importorskip("matplotlib")
    result.plot(tmp_path / "vector.png")
    assert (tmp_path / "vector.png").stat().st_size > 1000
