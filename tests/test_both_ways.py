"""Laws of looking back with the self-tuned tracker: better than ahead, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import KGMRF, metrics, simulate, wishart
from kgmrf.geometry import orbit, spd
from kgmrf.simulate import motion

SCENES = {
    "turning": lambda seed: simulate.ellipse(0.08, n_frames=200, n_samples=8, rng=seed),
    "gaps": lambda seed: simulate.ellipse(
        0.08,
        n_frames=200,
        n_samples=8,
        observed=simulate.occlusions(200, starts=(60, 130), length=25),
        rng=seed,
    ),
    "still": lambda seed: simulate.rotating_covariance(
        4, rate=0.0, n_frames=200, n_samples=4, rng=seed
    ),
    "reversing": lambda seed: _reversing(seed),
}


def _reversing(seed: int) -> simulate.CovarianceScene:
    """A hundred steps to, a hundred fro."""
    rng = np.random.default_rng(seed)
    velocity = motion.velocities(motion.direction(3, rng), 0.05, 200, rng)
    velocity[100:] *= -1
    truth = orbit.compose(motion.frames(velocity), np.array([4.0, 2.0, 1.0]))
    seen = wishart.sample(truth, 8, rng, noise_floor=0.1)
    return SCENES["still"](0)._replace(covariance=truth, observations=seen, n_samples=8)


@pytest.mark.parametrize("name", SCENES)
def test_looking_back_is_better_than_looking_ahead(name: str) -> None:
    late, early = [], []
    for seed in range(3):
        scene = SCENES[name](seed)
        tracker = KGMRF(n_samples=scene.n_samples)
        for errors, result in (
            (late, tracker.copy().filter(scene.observations)),
            (early, tracker.smooth(scene.observations)),
        ):
            errors.append(np.mean(spd.distance(result.covariance[10:], scene.covariance[10:])))
    # Inside a gap both directions only coast, so there is less to win.
    assert np.mean(early) < (0.97 if name == "gaps" else 0.9) * np.mean(late)


def test_the_direction_of_turning_is_kept() -> None:
    scene = simulate.ellipse(0.08, n_frames=200, n_samples=8, rng=5)
    result = KGMRF(n_samples=8).smooth(scene.observations)
    np.testing.assert_allclose(result.velocity[20:180, 1, 0], 0.08, atol=0.02)
    error = metrics.angular_error(result.covariance, scene.covariance)
    assert error[20:180].mean() < 0.1


def test_the_doubt_is_no_larger_and_the_tracker_unchanged() -> None:
    scene = SCENES["gaps"](1)
    tracker = KGMRF(n_samples=8)
    tracker.filter(scene.observations[:50])
    before = tracker.forecast(3).covariance
    smoothed = tracker.smooth(scene.observations)
    np.testing.assert_array_equal(tracker.forecast(3).covariance, before)
    filtered = KGMRF(n_samples=8).filter(scene.observations)
    assert (smoothed.angle_std <= filtered.angle_std * (1 + 1e-12)).all()
    # In a gap both sides help: where the future is as sure, as two of them, or better.
    assert smoothed.angle_std[70, 0, 1] <= np.sqrt(0.5) * filtered.angle_std[70, 0, 1] * (1 + 1e-12)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(2, 40), st.integers(0, 10_000))
def test_every_track_is_smoothed_by_itself(d: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2, 5, d))
    x[rng.random((n, 2)) < 0.3] = np.nan
    together = KGMRF().smooth(x, samples=True)
    for k in range(2):
        alone = KGMRF().smooth(x[:, k], samples=True)
        for field in ("covariance", "angle_std", "age"):
            np.testing.assert_array_equal(getattr(together, field)[:, k], getattr(alone, field))
    seen = np.isfinite(together.covariance).all(axis=(-2, -1))
    assert (np.linalg.eigvalsh(together.covariance[seen]) > -1e-12).all()


def test_samples_and_their_matrices_agree() -> None:
    x = np.random.default_rng(3).standard_normal((60, 6, 3))
    matrices = np.swapaxes(x, -1, -2) @ x / 6
    one = KGMRF().smooth(x, samples=True).covariance
    two = KGMRF(n_samples=6).smooth(matrices).covariance
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def test_time_runs_backward_as_fast_as_forward() -> None:
    scene = SCENES["turning"](2)
    stamps = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 200))
    result = KGMRF(n_samples=8).smooth(scene.observations, times=stamps)
    np.testing.assert_array_equal(result.time, stamps)
    masked = KGMRF(n_samples=8).smooth(scene.observations, mask=np.arange(200) % 3 > 0)
    assert masked.age[3] == 1.0
    assert np.isfinite(masked.covariance).all()


def test_a_fixed_lag_is_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r'lag=3.*gains="information"'):
        KGMRF().smooth(np.ones((9, 2)), lag=3)
