"""The state of a rotation at any time: between steps, and after the last one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kgmrf import ObservationError, RotationTracker, simulate
from kgmrf.geometry.between import between, right_jacobian
from test_gyroscope import BIAS, HZ, motion, seen_of


def errors(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return Rotation.from_matrix(np.swapaxes(found, 1, 2) @ truth).as_rotvec()


def test_the_jacobian_is_a_derivative() -> None:
    for v in ([0.3, -2.0, 1.0], [0.009, 0.0, 0.004], [0.0, 0.0, 0.0]):
        base, columns = Rotation.from_rotvec(v), []
        for axis in np.eye(3):
            ends = [Rotation.from_rotvec(np.array(v) + e * axis) for e in (1e-5, -1e-5)]
            up, down = ((base.inv() * end).as_rotvec() for end in ends)
            columns.append((up - down) / 2e-5)
        np.testing.assert_allclose(right_jacobian(np.array(v)), np.transpose(columns), atol=1e-8)


def test_a_motion_between_its_steps() -> None:
    """Third order in the interval for the velocity, fourth for the rotation."""
    t, truth, rate = motion(801)
    wrong = []
    for every in (40, 20):
        where = slice(None, None, every)
        steps = t[where], truth[where], rate[where], np.zeros((len(t[where]), 3, 3))
        found = between(*steps, t)
        off = np.abs(errors(found["rotation"], truth)).max()
        wrong.append([off, np.abs(found["velocity"] - rate).max()])
        np.testing.assert_allclose(found["rotation"][where], truth[where], atol=1e-12)
        np.testing.assert_allclose(found["velocity"][where], rate[where], atol=1e-9)
    ratio = np.array(wrong[0]) / wrong[1]
    assert ratio[0] > 10.0
    assert ratio[1] > 5.0


@pytest.mark.parametrize("noise", [1e-3, 0.02])
def test_between_the_steps_it_is_as_good_as_at_the_steps(noise: float) -> None:
    t, truth, _ = motion(2001)
    every, inside, size = 6, [], []
    for seed in range(4):
        g = np.random.default_rng(seed)
        z = truth @ Rotation.from_rotvec(noise * g.normal(size=(len(t), 3))).as_matrix()
        smoothed = RotationTracker().smooth(z[::every], times=t[::every])
        places = slice(every // 2, -every, every)
        found = smoothed.state_at(t[places])
        for result, where in ((found, places), (smoothed, slice(None, None, every))):
            off = errors(result.rotation, truth[where])
            distance = (np.linalg.solve(result.covariance, off[..., None])[..., 0] * off).sum(
                axis=1
            )
            inside.append((distance < 7.815).mean())
            size.append(np.linalg.norm(off, axis=1).mean())
    between_steps, at_steps = np.reshape(size, (-1, 2)).mean(axis=0)
    assert between_steps < 1.15 * at_steps
    between_steps, at_steps = np.reshape(inside, (-1, 2)).mean(axis=0)
    assert between_steps > at_steps - 0.03


def test_between_exact_steps_the_region_holds_what_moves() -> None:
    """White acceleration and no noise: what is not known between two steps is not nothing."""
    inside, most, h = [], [], 10
    for seed in range(4):
        g, fine = np.random.default_rng(seed), 0.01
        rate = np.cumsum(0.2 * np.sqrt(fine) * g.normal(size=(2001, 3)), axis=0)
        turns, truth = Rotation.from_rotvec(fine * rate), [Rotation.identity()]
        for turn in turns[:-1]:
            truth.append(truth[-1] * turn)
        path, t = Rotation.concatenate(truth).as_matrix(), fine * np.arange(2001)
        steps = t[::h], path[::h], rate[::h], np.zeros((201, 3, 3))
        between_steps = slice(h // 2, None, h)
        found = between(*steps, t[between_steps])
        off = errors(found["rotation"], path[between_steps])
        square = (np.linalg.solve(found["covariance"], off[..., None])[..., 0] * off).sum(axis=1)
        inside.append((square < 7.815).mean())
        most.append(square.mean() / 3.0)
    assert 0.87 < np.mean(inside) < 0.98
    assert 0.6 < np.mean(most) < 1.6


def test_the_step_itself_and_what_is_unknown() -> None:
    t, truth, rate = motion(60)
    z = seen_of(truth, 0.01, 7)
    z[:7] = np.nan
    result = RotationTracker().filter(z, times=t, rates=rate + BIAS)
    found = result.state_at(t)
    for name in ("rotation", "velocity", "covariance", "angle_std"):
        known = getattr(result, name)[7:]
        np.testing.assert_allclose(getattr(found, name)[7:], known, atol=1e-9)
    assert np.isnan(found.rotation[:6]).all()
    one = result.state_at(t[20] + 0.3 / HZ)
    np.testing.assert_array_equal(one.rotation, result.state_at([t[20] + 0.3 / HZ]).rotation[0])


def test_after_the_last_step_it_is_a_forecast() -> None:
    scene = simulate.steady_camera(1, 0.1)
    z = scene.observations[:40]
    stamps = np.datetime64("2026-01-01T00:00:00") + np.arange(40) * np.timedelta64(33, "ms")
    for tracker in (RotationTracker(), RotationTracker(noise_std=0.1, gains="information")):
        result = tracker.filter(z, times=stamps)
        later = tracker.state_at(stamps[-1] + np.timedelta64(50, "ms"))
        expected = tracker.forecast(0.05)
        np.testing.assert_allclose(later.rotation, expected.rotation, atol=1e-6)
        np.testing.assert_allclose(later.angle_std, expected.angle_std, rtol=1e-4)
        with pytest.raises(ObservationError, match="lies before the last step"):
            tracker.state_at(stamps[3])
        with pytest.raises(ValueError, match=r"later ones are forecasts|gains='auto'"):
            result.state_at(stamps[-1] + np.timedelta64(50, "ms"))
    with pytest.raises(ObservationError, match="one finite stamp"):
        tracker.state_at(np.nan)
    with pytest.raises(ObservationError, match="nothing to show yet"):
        RotationTracker().state_at(0.0)
    with pytest.raises(ValueError, match="state_at needs a result of one RotationTracker"):
        RotationTracker().filter(z, fields="rotation").state_at(1.0)
