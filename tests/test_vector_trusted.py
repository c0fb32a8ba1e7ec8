"""Vectors that are taken in unchecked give what checked ones give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf.trackers.vector import VectorTracker


def _pair(rng: np.random.Generator, d: int) -> tuple[VectorTracker, VectorTracker]:
    factor = rng.standard_normal((2, d, d + 2))
    noise, walk = factor @ np.swapaxes(factor, -1, -2)
    both = [
        VectorTracker(
            d,
            noise_covariance=noise,
            acceleration=walk,
            position_noise=0.3,
            retention=0.8,
            n_samples=3,
            time_unit=1.0,
        )
        for _ in range(2)
    ]
    return both[0], both[1]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_unchecked_updates_are_checked_ones(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    fast, plain = _pair(rng, d)
    for frame in range(12):
        seen = None if frame in (5, 6) else rng.standard_normal(d)
        if seen is not None and frame == 8:
            seen[0] = np.nan
        dt = float(rng.choice([0.5, 1.0, 2.0]))
        a = fast.update(seen, dt=dt, assume_valid=frame > 0)
        b = plain.update(seen, dt=dt)
        for name in b.fields():
            np.testing.assert_allclose(
                getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-9, err_msg=name
            )
        ahead, coasted = fast.forecast(0.7), plain.copy().update(None, dt=0.7)
        np.testing.assert_allclose(ahead.position_covariance, coasted.position_covariance)
        np.testing.assert_allclose(ahead.position, coasted.position, rtol=1e-9, atol=1e-9)


def test_estimates_stay_as_they_were_and_times_may_all_differ() -> None:
    tracker = VectorTracker(2, noise_std=1.0, time_unit=1.0)
    first = tracker.update(np.zeros(2))
    second = tracker.update(np.ones(2), assume_valid=True)
    for k in range(30):
        tracker.update(np.full(2, 9.0), dt=1 + k / 100, assume_valid=True)
    assert float(second.time) == 1.0
    assert (second.position < 1.01).all()
    assert (first.position == 0).all()
    tracker.retention = 0.5  # takes effect at once
    assert float(tracker.forecast(1.0).velocity[0]) == pytest.approx(
        0.5 * float(tracker.forecast(0.0).velocity[0])
    )


def test_what_it_cannot_take_goes_the_way_of_the_contract() -> None:
    tracker = VectorTracker(2, noise_std=1.0)
    tracker.update(np.zeros(2))
    wide = np.arange(4.0)[::2]  # not contiguous
    np.testing.assert_allclose(
        tracker.copy().update(wide, assume_valid=True).position,
        tracker.copy().update(wide.copy()).position,
    )
    with pytest.raises(ValueError, match="dt"):
        tracker.update(np.zeros(2), dt=-1.0, assume_valid=True)
    with pytest.raises(ValueError, match="dt"):
        tracker.forecast(-1.0)
