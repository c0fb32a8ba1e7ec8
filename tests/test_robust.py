"""Garbage is weighed down or refused; a change that persists is followed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF, ObservationError, RobustTracker, RotationTracker, metrics, simulate
from kgmrf.geometry import orbit, so


def _ellipse(n_samples: int = 8, rng: int = 0) -> simulate.CovarianceScene:
    return simulate.ellipse(0.03, n_frames=200, n_samples=n_samples, rng=rng)


def _robust(n_samples: int = 8) -> RobustTracker:
    return RobustTracker(KGMRF(gains="information", n_samples=n_samples))


def test_clean_data_are_hardly_touched() -> None:
    errors = {"plain": [], "robust": []}
    for seed in range(8):
        scene = _ellipse(rng=seed)
        plain = KGMRF(gains="information", n_samples=8).filter(scene.observations)
        robust = _robust().filter(scene.observations)
        assert float(robust.score.max()) < 0.9
        for name, result in (("plain", plain), ("robust", robust)):
            error = metrics.angular_error(result.covariance, scene.covariance, degrees=True)
            errors[name].append(error[50:].mean())
    assert np.mean(errors["robust"]) < 1.15 * np.mean(errors["plain"])


@pytest.mark.parametrize("garbage", [1e4 * np.eye(2), np.diag([0.01, 300.0])])
def test_one_frame_of_garbage_does_not_move_the_track(garbage: np.ndarray) -> None:
    scene = _ellipse()
    broken = scene.observations.copy()
    broken[100] = garbage
    missing = scene.observations.copy()
    missing[100] = np.nan
    hit, spared = _robust().filter(broken), _robust().filter(missing)
    np.testing.assert_allclose(hit.covariance, spared.covariance, atol=1e-12)
    assert float(hit.score[100]) > float(hit.score[99])
    plain = KGMRF(gains="information", n_samples=8).filter(broken)
    worse = metrics.affine_invariant_error(plain.covariance, scene.covariance)[100:140].mean()
    ours = metrics.affine_invariant_error(hit.covariance, scene.covariance)[100:140].mean()
    assert worse > 2 * ours  # the law itself counts garbage for 20 times the usual at most


def test_a_persistent_change_is_followed_within_a_few_frames() -> None:
    rng = np.random.default_rng(3)
    lam = np.array([8.0, 0.2])
    before, after = np.diag(lam), orbit.compose(so.exp(so.hat(np.array([1.3]))), 30 * lam)
    truth = np.stack([before] * 100 + [after] * 30)
    seen = kgmrf.wishart.sample(truth, 20, rng)
    result = _robust(20).filter(seen)
    error = metrics.affine_invariant_error(result.covariance, truth)
    assert error[99] < 0.7
    assert error[101] > 3.0  # two frames could still be outliers
    assert error[106:].mean() < 1.0
    assert result.score[101] > 0.4
    assert result.score[-1] < 0.1


def test_rotations_are_protected_alike() -> None:
    scene = simulate.steady_camera(seed=2)
    broken = scene.observations.copy()
    broken[80] = broken[80] @ so.exp(so.hat(np.array([1.5, 0.0, 1.0])))
    missing = scene.observations.copy()
    missing[80] = np.nan
    build = lambda: RobustTracker(RotationTracker(noise_std=0.05, gains="information"))  # noqa: E731
    hit, spared = build().filter(broken), build().filter(missing)
    np.testing.assert_allclose(hit.rotation, spared.rotation, atol=1e-12)
    jump = scene.observations.copy()
    jump[120:] = jump[120:] @ so.exp(so.hat(np.array([0.0, 2.0, 0.0])))
    result = build().filter(jump)
    error = metrics.geodesic_error(result.rotation[130:], jump[130:], degrees=True)
    assert error.mean() < 8.0


def test_influence_is_bounded_by_the_gate() -> None:
    """However large the observation, the frame turns by no more than some fixed angle."""
    steps = []
    tracker = _robust()
    tracker.filter(_ellipse().observations[:100])
    start = tracker.forecast(1).frame
    for angle in np.linspace(0.0, np.pi / 2, 10):
        for size in (0.1, 1.0, 3.0, 10.0, 1e3):
            twin = tracker.copy()
            C = size * orbit.compose(
                start @ so.exp(so.hat(np.array([angle]))), np.array([2.1, 0.6])
            )
            steps.append(float(orbit.distance(twin.update(C).frame, start)))
    assert max(steps) < np.radians(12.0)


def test_it_keeps_the_contract(tmp_path: Path) -> None:
    sequence = _ellipse().observations.copy()
    sequence[60] = 1e5 * np.eye(2)
    sequence[90:] = np.diag([500.0, 3000.0])
    whole = _robust().filter(sequence)
    tracker, pieces = _robust(), []
    for low, high in ((0, 1), (1, 61), (61, 91), (91, 200)):
        pieces.append(tracker.filter(sequence[low:high]))
        tracker.save(tmp_path / "state.npz")
        tracker = kgmrf.load(tmp_path / "state.npz")
    joined = kgmrf.results.join(pieces)
    for field in whole.fields():
        np.testing.assert_allclose(getattr(joined, field), getattr(whole, field), atol=1e-11)
    with pytest.raises(ObservationError, match="one track"):
        _robust().filter(np.stack([sequence] * 2, axis=1))
    with pytest.raises(ObservationError, match="not symmetric"):
        tracker.update([[1.0, 2.0], [0.0, 1.0]])


def test_samples_are_protected_too() -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3)) * [3.0, 1.0, 0.3]
    dirty = X.copy()
    dirty[200] = 1e3
    build = lambda: RobustTracker(KGMRF(gains="information"))  # noqa: E731
    hit, spared = (
        build().filter(dirty),
        build().filter(np.where(np.arange(400)[:, None] == 200, np.nan, X)),
    )
    np.testing.assert_allclose(hit.covariance[-1], spared.covariance[-1], atol=1e-9)


def test_settings_that_make_no_sense() -> None:
    started = KGMRF(gains="information", n_samples=3)
    started.update(np.eye(2))
    for build in (
        lambda: RobustTracker(started),
        lambda: RobustTracker("kgmrf"),  # type: ignore[arg-type]
        lambda: RobustTracker(KGMRF(), patience=0),
        lambda: RobustTracker(KGMRF(), gate=0.5),
        lambda: RobustTracker(KGMRF(), dof=0.0),
    ):
        with pytest.raises(ValueError, match="must"):
            build()
