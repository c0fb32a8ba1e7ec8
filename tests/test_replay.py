"""Late observations of rotations: what is replayed is what comes in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgmrf import ObservationError, RotationTracker, TrackerBank, load
from test_gyroscope import BIAS, HZ, motion, seen_of

NAMES = ("rotation", "velocity", "covariance", "noise_std", "weights")


def late_order(n: int, most: int, seed: int) -> np.ndarray:
    """An order in which no step comes more than ``most`` steps late."""
    g = np.random.default_rng(seed)
    return np.argsort(np.arange(n) + most * g.random(n) * (g.random(n) < 0.3), kind="stable")


@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_replayed_is_sorted(rated: bool, seed: int) -> None:
    t, truth, rate = motion(160, seed)
    z = seen_of(truth, 0.01, 7 if rated else 1, seed)
    z[0] = truth[0]
    order = late_order(len(t), 10, seed)
    assert (np.diff(order) < 0).any()
    rates = {"rates": rate + BIAS} if rated else {}
    late = RotationTracker(late="replay", late_steps=12)
    mixed = {name: array[order] for name, array in rates.items()}
    replayed = late.filter(z[order], times=t[order], **mixed)
    whole = RotationTracker()
    inorder = whole.filter(z, times=t, **rates)
    for name in NAMES:
        expected = getattr(whole.estimate(), name)
        np.testing.assert_array_equal(getattr(late.estimate(), name), expected)
        # Also at every step by which all before it have come.
        for k in np.flatnonzero(np.maximum.accumulate(order) == np.arange(len(order))):
            np.testing.assert_array_equal(getattr(replayed, name)[k], getattr(inorder, name)[k])
    np.testing.assert_array_equal(replayed.time, np.maximum.accumulate(t[order]))


def test_steps_with_a_negative_interval_and_a_file_between(tmp_path: Path) -> None:
    t, truth, rate = motion(120)
    z = seen_of(truth, 0.01, 1)
    order, newest = late_order(len(t), 6, 1), -np.inf
    late = RotationTracker(late="replay", late_steps=8, gyroscope=True)
    for k, place in enumerate(order):
        if k == 70:
            late.save(tmp_path / "a.npz")
            late = load(tmp_path / "a.npz")
        dt = 0.0 if k == 0 else t[place] - newest
        there = None if np.isnan(z[place, 0, 0]) else z[place]
        late.update(there, dt=dt, rate=rate[place])
        newest = max(newest, t[place])
    whole = RotationTracker()
    whole.filter(z, times=t, rates=rate)
    for name in NAMES[:3]:
        expected = getattr(whole.estimate(), name)
        np.testing.assert_allclose(getattr(late.estimate(), name), expected, rtol=1e-5, atol=1e-8)


def test_chunks_and_batches_make_no_difference() -> None:
    runs = [motion(90, seed) for seed in (0, 1)]
    t = runs[0][0]
    z = np.stack([seen_of(truth, 0.02, 1, k) for k, (_, truth, _) in enumerate(runs)], axis=1)
    order = late_order(len(t), 9, 2)
    both = RotationTracker(late="replay", late_steps=10)
    both.filter(z[order[:31]], times=t[order[:31]])
    both.filter(z[order[31:]], times=t[order[31:]])
    for k in range(2):
        one = RotationTracker()
        one.filter(z[:, k], times=t)
        np.testing.assert_array_equal(both.estimate().rotation[k], one.estimate().rotation)


def test_memory_is_bounded_and_what_is_too_late_changes_nothing() -> None:
    _, truth, _ = motion(300)
    late, sizes = RotationTracker(late="replay", late_steps=10), []
    for k, pose in enumerate(truth):
        late.update(pose, dt=0.0 if k == 0 else 1 / HZ)
        sizes.append(sum(array.nbytes for array in late.state_dict().values()))
    assert max(sizes[20:]) == max(sizes[20:40])
    assert len(late._last) <= 20
    before = late.estimate().rotation
    late.copy().update(truth[-10], dt=-9.5 / HZ)  # ten steps late
    with pytest.raises(ObservationError, match="late_steps = 10"):
        late.update(truth[-11], dt=-10.5 / HZ)
    np.testing.assert_array_equal(late.estimate().rotation, before)
    late.update(None, dt=1 / HZ)


def test_a_late_observation_fills_a_gap() -> None:
    t, truth, _ = motion(200)
    late = RotationTracker(noise_std=0.001, late="replay")
    late.filter(truth[:150], times=t[:150])
    late.update(None, dt=20 / HZ)
    blind = np.abs(late.estimate().rotation - truth[169]).max()
    found = late.update(truth[168], dt=-1 / HZ)
    assert found.time == pytest.approx(t[169])
    assert np.abs(found.rotation - truth[169]).max() < 0.2 * blind


def test_what_cannot_be_replayed_is_refused() -> None:
    for settings in ({"lag": 3}, {"gains": "information", "noise_std": 0.1}):
        with pytest.raises(ValueError, match="late='replay' needs"):
            RotationTracker(late="replay", **settings)
    with pytest.raises(ValueError, match="late"):
        RotationTracker(late="drop")
    with pytest.raises(ValueError, match="a bank keeps no steps"):
        TrackerBank(2, 3, kind="rotation", late="replay")
    tracker = RotationTracker(late="replay")
    for bad in (np.nan, [1.0, 2.0]):
        with pytest.raises(ObservationError, match="one finite number"):
            tracker.update(np.eye(3), dt=bad)
    with pytest.raises(ObservationError, match="5 finite stamps"):
        tracker.filter(np.tile(np.eye(3), (5, 1, 1)), times=[0, 1, np.nan, 2, 3])
    with pytest.raises(ObservationError, match="run backwards"):
        RotationTracker().filter(np.tile(np.eye(3), (2, 1, 1)), times=[1.0, 0.0])
