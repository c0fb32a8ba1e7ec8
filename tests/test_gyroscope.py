"""Rotations with measured rates beside them: a gyroscope whose bias and noise are learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kgmrf import ObservationError, RotationTracker, TrackerBank, load, metrics

HZ = 200.0
BIAS = np.array([0.03, -0.02, 0.05])


def motion(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stamps, rotations and body rates of a swinging motion."""
    g = np.random.default_rng(seed)
    t = np.arange(n) / HZ
    a, f, p = g.uniform(1.0, 3.0, 3), g.uniform(0.3, 1.0, 3), g.uniform(0.0, 6.0, 3)
    rate = a * np.sin(2 * np.pi * f * t[:, None] + p)
    turn, truth = Rotation.identity(), []
    for k in range(n):
        truth.append(turn.as_matrix())
        middle = a * np.sin(2 * np.pi * f * (t[k] + 0.5 / HZ) + p)
        turn = turn * Rotation.from_rotvec(middle / HZ)
    return t, np.array(truth), rate


def seen_of(truth: np.ndarray, noise: float, every: int, seed: int = 1) -> np.ndarray:
    """Poses at every seventh step or so; half of the recording's middle third is a gap."""
    g = np.random.default_rng(seed)
    noisy = truth @ Rotation.from_rotvec(noise * g.normal(size=(len(truth), 3))).as_matrix()
    there = np.arange(len(truth)) % every == 0
    there[len(truth) // 3 : len(truth) // 2] = False
    return np.where(there[:, None, None], noisy, np.nan)


def error(found: Any, truth: np.ndarray) -> np.ndarray:
    return metrics.geodesic_error(found.rotation, truth)


@pytest.mark.parametrize("noise_std", [None, 0.01])
def test_it_bridges_gaps_and_learns_the_bias(noise_std: float | None) -> None:
    t, truth, rate = motion(2000)
    z = seen_of(truth, 0.01, 7)
    with_rate = RotationTracker(noise_std=noise_std).filter(z, times=t, rates=rate + BIAS)
    without = RotationTracker(noise_std=noise_std).filter(z, times=t)
    gap = slice(len(t) // 3, len(t) // 2)
    assert error(with_rate, truth)[gap].max() < 0.05  # 1.7 s long
    assert error(without, truth)[gap].max() > 0.5
    assert error(with_rate, truth)[100:].mean() < 0.006
    # The velocity is the rate less the bias.
    off = with_rate.angular_velocity[1500:] - rate[1500:]
    np.testing.assert_allclose(off.mean(axis=0), 0.0, atol=0.02)
    assert with_rate.angular_velocity[gap].std() > 1.0
    wrong = Rotation.from_matrix(np.swapaxes(with_rate.rotation, 1, 2) @ truth).as_rotvec()
    inside = np.linalg.solve(with_rate.covariance, wrong[..., None])[..., 0] * wrong
    assert (inside.sum(axis=1)[100:] < 7.815).mean() > 0.8


def test_steps_with_a_rate_alone_are_steps() -> None:
    t, truth, rate = motion(400)
    z = seen_of(truth, 0.01, 7)
    whole = RotationTracker().filter(z, times=t, rates=rate)
    tracker = RotationTracker(gyroscope=True)
    for k, (pose, omega) in enumerate(zip(z, rate, strict=True)):
        there = None if np.isnan(pose[0, 0]) else pose
        dt = 1.0 if k == 0 else t[k] - t[k - 1]
        found = tracker.update(there, dt=dt, rate=omega)
        np.testing.assert_allclose(found.rotation, whole.rotation[k], atol=1e-9)
        np.testing.assert_allclose(found.covariance, whole.covariance[k], rtol=1e-6, atol=1e-12)
    assert np.isfinite(found.angular_velocity).all()


def test_the_last_rate_is_held_and_the_doubt_grows() -> None:
    t, truth, rate = motion(600)
    tracker = RotationTracker(noise_std=0.001)
    tracker.filter(seen_of(truth, 0.001, 7), times=t, rates=rate)
    ahead = [tracker.forecast(h) for h in (0.0, 0.01, 0.05, 0.2)]
    turn = Rotation.from_matrix(ahead[0].rotation.T @ ahead[1].rotation).as_rotvec() / 0.01
    np.testing.assert_allclose(turn, ahead[0].angular_velocity, atol=0.02)
    spread = [f.angle_std[0, 1] for f in ahead]
    assert spread == sorted(spread)
    assert spread[-1] > 10 * spread[0]
    held = tracker.update(None, dt=0.05)
    np.testing.assert_allclose(held.rotation, ahead[2].rotation, atol=1e-9)
    np.testing.assert_allclose(held.covariance, ahead[2].covariance, rtol=1e-6)


def test_smoothing_with_rates_beats_filtering() -> None:
    errors = []
    for seed in range(4):
        t, truth, rate = motion(600, seed)
        z = seen_of(truth, 0.02, 7, seed + 5)
        given = {"times": t, "rates": rate + BIAS}
        runs = (
            RotationTracker().filter(z, **given),
            RotationTracker().smooth(z, lag=35, **given),
            RotationTracker().smooth(z, **given),
        )
        errors.append([error(run, truth)[50:].mean() for run in runs])
    late, lagged, early = np.mean(errors, axis=0)
    assert early < 0.7 * late
    assert early < lagged < late


def test_a_lag_with_rates_in_chunks_is_the_lag_of_the_whole(tmp_path: Path) -> None:
    t, truth, rate = motion(120)
    z = seen_of(truth, 0.02, 7)
    tracker = RotationTracker(lag=9)
    first = tracker.filter(z[:50], times=t[:50], rates=rate[:50])
    tracker.save(tmp_path / "a.npz")
    tracker = load(tmp_path / "a.npz")
    second = tracker.filter(z[50:], times=t[50:], rates=rate[50:])
    found = np.concatenate([first.rotation, second.rotation])
    whole = RotationTracker().smooth(z, times=t, lag=9, rates=rate)
    np.testing.assert_allclose(found[9:], whole.rotation[:-9], atol=1e-9)


def test_tracks_of_a_batch_have_rates_of_their_own() -> None:
    runs = [motion(200, seed) for seed in (0, 1)]
    z = np.stack([seen_of(truth, 0.01, 7) for _, truth, _ in runs], axis=1)
    rates = np.stack([rate for *_, rate in runs], axis=1)
    together = RotationTracker(noise_std=0.01).filter(z, times=runs[0][0], rates=rates)
    for k, (t, _, rate) in enumerate(runs):
        alone = RotationTracker(noise_std=0.01).filter(z[:, k], times=t, rates=rate)
        np.testing.assert_allclose(together.rotation[:, k], alone.rotation, atol=1e-12)


def test_any_unit_of_time() -> None:
    t, truth, rate = motion(300)
    z = seen_of(truth, 0.01, 7)
    seconds = RotationTracker().filter(z, times=t, rates=rate)
    other = RotationTracker().filter(z, times=1000.0 * t, rates=rate / 1000.0, rate_std=1e-6)
    np.testing.assert_allclose(other.rotation, seconds.rotation, atol=1e-4)


def test_a_known_noise_of_the_rate_widens_gaps() -> None:
    t, truth, rate = motion(300)
    z = seen_of(truth, 0.01, 7)
    runs = [
        RotationTracker(noise_std=0.01).filter(z, times=t, rates=rate, rate_std=std)
        for std in (0.0, 1.0)
    ]
    narrow, wide = (run.angle_std[149, 0, 1] for run in runs)
    assert wide > 1.5 * narrow


def test_bad_rates_are_refused_and_change_nothing() -> None:
    t, truth, rate = motion(50)
    fresh = RotationTracker()
    for bad, words in (
        (rate[:20], "three numbers for each of the 50 steps"),
        (rate[:, :2], "three numbers"),
        (np.where(np.arange(3) == 1, np.nan, rate), "some axes only"),
        (np.full_like(rate, np.inf), "finite"),
    ):
        with pytest.raises(ObservationError, match=words):
            fresh.filter(truth, times=t, rates=bad)
    begun = RotationTracker()
    begun.update(truth[0])
    with pytest.raises(ObservationError, match="gyroscope=True"):
        begun.update(truth[1], rate=rate[1])
    with pytest.raises(ObservationError, match="gains='auto'"):
        RotationTracker(noise_std=0.1, gains="information").update(truth[0], rate=rate[0])
    with pytest.raises(ValueError, match="gyroscope need gains='auto'"):
        RotationTracker(noise_std=0.1, gains="information", gyroscope=True)
    with pytest.raises(ValueError, match="rate_std"):
        RotationTracker().update(truth[0], rate=rate[0], rate_std=-1.0)
    begun.update(truth[1])


def test_a_doubt_lasts_through_steps_with_a_rate_alone() -> None:
    """An observation is left open; the rates until the next turn both ways."""
    t, truth, rate = motion(700)
    z = seen_of(truth, 0.01, 7)
    k = 7 * 80
    z[k] = truth[k] @ Rotation.from_rotvec([0.0, 0.0, 0.07]).as_matrix()
    result = RotationTracker(noise_std=0.01).filter(z, times=t, rates=rate)
    assert 0.01 < result.outlier_probability[k] < 0.99
    assert error(result, truth)[k + 1 : k + 7].max() < 0.15
    assert error(result, truth)[k + 7 : k + 14].max() < 0.03


def test_a_bank_with_rates_is_its_trackers(tmp_path: Path) -> None:
    runs = [motion(60, seed) for seed in range(3)]
    z = np.stack([seen_of(truth, 0.01, 7) for _, truth, _ in runs], axis=1)
    z[14, 1, 0, 0] = 3.0  # no rotation: a gap, whose rate counts
    rates = np.stack([rate for *_, rate in runs], axis=1)
    rates[20:30, 2] = np.nan
    bank = TrackerBank(3, 3, kind="rotation")
    trackers = [RotationTracker(gyroscope=True, on_invalid="skip") for _ in runs]
    for k, (poses, omega) in enumerate(zip(z, rates, strict=True)):
        if k == 30:
            bank.save(tmp_path / "bank.npz")
            bank = TrackerBank.load(tmp_path / "bank.npz")
        alone = [
            t.update(pose, dt=1 / HZ, rate=one)
            for t, pose, one in zip(trackers, poses, omega, strict=True)
        ]
        nothing = np.isnan(poses).all()
        bank.update(None if nothing else poses, dt=1 / HZ, rate=omega)
        for name in ("rotation", "covariance", "velocity", "status"):
            expected = np.stack([getattr(one, name) for one in alone])
            found = getattr(bank.estimate(), name)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_lines_with_rates_are_the_steps_of_their_tracks() -> None:
    runs = [motion(60, seed) for seed in range(2)]
    z = np.stack([seen_of(truth, 0.01, 7) for _, truth, _ in runs])
    rates = np.stack([rate for *_, rate in runs])
    order = np.argsort(np.random.default_rng(3).random(120) + 0.01 * np.tile(np.arange(60), 2))
    which = np.repeat([0, 1], 60)[order]
    place = np.zeros(120, dtype=int)
    for track in (0, 1):
        place[which == track] = np.arange(60)
    bank = TrackerBank(2, 3, kind="rotation")
    lines = {"dt": np.where(place, 1 / HZ, 0.0), "rates": rates[which, place]}
    found = bank.feed(which, z[which, place], fields="rotation", **lines)["rotation"]
    for track, (t, _, rate) in enumerate(runs):
        alone = RotationTracker().filter(z[track], times=t, rates=rate)
        np.testing.assert_allclose(found[which == track], alone.rotation, atol=1e-12)


def test_a_bank_refuses_bad_rates_and_does_not_change() -> None:
    bank, eye = TrackerBank(2, 3, kind="rotation"), np.tile(np.eye(3), (2, 1, 1))
    with pytest.raises(ObservationError, match=r"got shape \(3, 3\)"):
        bank.update(eye, rate=np.zeros((3, 3)))
    bank.update(eye)
    before = bank.state_dict()
    with pytest.raises(ObservationError, match="began without rates"):
        bank.update(eye, rate=np.zeros((2, 3)))
    with pytest.raises(ObservationError, match="rotations in three dimensions"):
        TrackerBank(2, 3).update(np.ones((2, 3)), rate=np.zeros((2, 3)))
    for name, array in before.items():
        np.testing.assert_array_equal(array, bank.state_dict()[name])
