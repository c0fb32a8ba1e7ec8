"""Fitting finds what the data were made with, and helps on data it has not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, AlphaBeta, EuclideanEMA, RotationTracker, gains, learn, simulate
from kgmrf.trackers.gaussian import KineticGaussian
from kgmrf.trackers.product import ProductTracker
from kgmrf.trackers.vector import VectorTracker


def _point(n_frames: int = 400, q: float = 0.01, noise: float = 2.0, rng: int = 0) -> np.ndarray:
    generator = np.random.default_rng(rng)
    v = np.cumsum(np.sqrt(q) * generator.standard_normal((n_frames, 2)), axis=0)
    return np.cumsum(v, axis=0) + noise * generator.standard_normal((n_frames, 2))


def _turning(q: float, m: int = 8, n_frames: int = 600, rng: int = 0) -> np.ndarray:
    return simulate.rotating_covariance(
        3,
        acceleration_std=np.sqrt(q),
        n_samples=m,
        n_frames=n_frames,
        noise_floor=0.0,
        rng=rng,
    ).observations


@pytest.mark.parametrize("q", [1e-6, 1e-5])
def test_the_acceleration_of_a_covariance_is_recovered(q: float) -> None:
    """The plug-in likelihood feels the acceleration through the gains alone, and that suffices."""
    found = [
        learn.fit(
            KGMRF(n_samples=8, gains=gains.information(1e-8)),
            _turning(q, rng=seed),
            parameters=["acceleration"],
        ).end["acceleration"]
        for seed in range(4)
    ]
    assert 1 / 3 < np.exp(np.mean(np.log(found))) / q < 3


def test_the_settings_of_rotations_and_vectors_are_recovered() -> None:
    scene = simulate.rotating_frame(
        acceleration_std=np.sqrt(1e-5), noise_std=0.03, n_frames=400, rng=3
    )
    found = learn.fit(RotationTracker(noise_std=0.2, gains="information"), scene.observations)
    assert set(found.end) == {"acceleration", "noise_std"}
    assert 0.4 < found.end["acceleration"] / 1e-5 < 2.5
    assert 0.9 < found.end["noise_std"] / 0.03 < 1.1
    found = learn.fit(VectorTracker(noise_std=20.0), _point(250))
    assert 0.4 < found.end["acceleration"] / 0.01 < 2.5
    assert 0.9 < found.end["noise_std"] / 2.0 < 1.1
    assert found.gain > 100


def test_a_decaying_velocity_is_recovered() -> None:
    rng = np.random.default_rng(5)
    v = np.zeros((300, 2))
    for k in range(1, 300):
        v[k] = 0.8 * v[k - 1] + 0.5 * rng.standard_normal(2)
    x = np.cumsum(v, axis=0) + 0.5 * rng.standard_normal((300, 2))
    found = learn.fit(
        VectorTracker(noise_std=0.5),
        x,
        parameters=["acceleration", "retention"],
        max_evaluations=60,
    )
    assert 0.65 < found.end["retention"] < 0.92


def test_what_is_fitted_on_the_first_half_helps_on_the_second() -> None:
    observations = _turning(1e-5, n_frames=500)
    train, test = observations[:300], observations[300:]
    start = KGMRF(n_samples=8, gains=gains.information(1e-9), spectrum_rate=1e-1)
    found = learn.fit(start, train)
    assert set(found.end) == {"acceleration", "spectrum_rate"}
    assert learn.score(found.tracker, test) > learn.score(start, test) + 50
    ema = EuclideanEMA(gain=0.9, n_samples=8)
    assert learn.score(learn.fit(ema, train).tracker, test) > learn.score(ema, test)


def test_a_fit_never_loses_and_changes_nothing_but_its_settings() -> None:
    observations = _turning(1e-6, n_frames=150)
    tracker = KGMRF(gains="information", n_samples=8, scale_rate=1e-3)
    tracker.filter(observations[:20])
    before = tracker.forecast(1).covariance
    found = learn.fit(tracker, observations, max_evaluations=12)
    np.testing.assert_array_equal(tracker.forecast(1).covariance, before)
    assert found.log_likelihood >= found.log_likelihood_start
    assert found.gain >= 0
    assert 12 <= found.evaluations <= 20
    assert set(found.end) == {"acceleration", "spectrum_rate", "scale_rate"}
    assert found.tracker.batch_shape is None
    np.testing.assert_allclose(learn.score(found.tracker, observations), found.log_likelihood)
    kept = {k: v for k, v in found.tracker.settings().items() if k not in found.end}
    kept.pop("gains")
    assert all(tracker.settings()[k] == v for k, v in kept.items())
    assert "acceleration" in str(found)


def test_a_product_says_that_its_parts_are_fitted_one_by_one() -> None:
    pair = ProductTracker({"place": VectorTracker(noise_std=9.0)})
    with pytest.raises(ValueError, match=r"components\[name\].*'place'"):
        learn.fit(pair, {"place": _point(100)})


def test_the_drift_of_a_mean_is_fitted() -> None:
    rng = np.random.default_rng(0)
    jumps = np.cumsum(0.3 * rng.standard_normal((60, 2)), axis=0)
    X = jumps[:, None] + rng.standard_normal((60, 4, 2)) * [2.0, 0.5]
    start = KineticGaussian(covariance=KGMRF(gains="information"))
    found = learn.fit(
        start, X, parameters=["mean_acceleration", "mean_rate_prior"], max_evaluations=25
    )
    assert found.end["mean_acceleration"] > 1e-5
    assert found.gain > 5


def test_arrays_keep_their_proportions() -> None:
    x = _point(150)
    found = learn.fit(
        VectorTracker(noise_std=[8.0, 4.0]), x, parameters=["noise_std"], max_evaluations=25
    )
    a, b = found.end["noise_std"]
    assert a / b == pytest.approx(2.0)
    assert 1.0 < b < 3.0


def test_missing_frames_times_and_masks_reach_the_filter() -> None:
    x = _point(200)
    times = np.cumsum(np.random.default_rng(1).uniform(0.5, 1.5, 200))
    mask = np.random.default_rng(2).random(200) > 0.2
    found = learn.fit(
        VectorTracker(noise_std=5.0),
        x,
        parameters=["noise_std"],
        times=times,
        mask=mask,
        max_evaluations=10,
    )
    assert found.frames == mask.sum() - 1


def test_impossible_wishes_are_explained() -> None:
    x = _point(50)
    wishes: tuple[tuple[Any, Any, dict[str, Any], str], ...] = (
        (VectorTracker(noise_std=1.0), x, {"parameters": ["mass"]}, "there are"),
        (VectorTracker(noise_std=1.0), x, {"parameters": []}, "must name"),
        (VectorTracker(noise_std=1.0), x, {"parameters": ["retention"] * 2}, "must name"),
        (
            KGMRF(gains="information"),
            np.ones((9, 1, 1)),
            {"parameters": ["n_samples"]},
            "no likelihood to fit.*diagnose",
        ),
        (
            EuclideanEMA(n_samples=2.0),
            np.tile(np.eye(3), (20, 1, 1)),
            {"parameters": ["n_samples"]},
            "no likelihood to fit.*diagnose",
        ),
        (
            AlphaBeta(kind="rotation"),
            np.tile(np.eye(3), (20, 1, 1)),
            {},
            "has no likelihood",
        ),
    )
    for tracker, sequence, options, words in wishes:
        with pytest.raises(ValueError, match=words):
            learn.fit(tracker, sequence, **options)
