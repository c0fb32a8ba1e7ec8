"""Laws of the smoother of vectors: it is the filter at its last step, and sharper before it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf.trackers.vector import VectorTracker

SEEDS = st.integers(0, 2**32 - 1)


def _seen(seed: int, n: int = 40, d: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y = np.cumsum(np.cumsum(0.1 * rng.standard_normal((n, d)), axis=0), axis=0)
    y += rng.standard_normal((n, d))
    y[rng.random(n) < 0.2] = np.nan
    y[rng.random((n, d)) < 0.1] = np.nan
    return y


@settings(max_examples=8, deadline=None)
@given(SEEDS, st.sampled_from([1.0, 0.9]))
def test_lag_0_is_the_filter(seed: int, retention: float) -> None:
    # With a given unit of time: smoothing knows the unit beforehand, the filter learns it.
    law = {"noise_std": [1.0, 2.0], "acceleration": [0.01, 0.1], "retention": retention}
    tracker = VectorTracker(2, **law, time_unit=1.0)
    y, times = _seen(seed), np.cumsum(np.random.default_rng(seed).uniform(0.5, 2.0, 40))
    counts = np.random.default_rng(seed + 1).uniform(0.5, 4.0, 40)
    lagged = tracker.smooth(y, times=times, n_samples=counts, lag=0)
    filtered = tracker.filter(y, times=times, n_samples=counts)
    for name in ("position", "velocity", "std", "time", "age"):
        a, b = getattr(lagged, name), getattr(filtered, name)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)


@settings(max_examples=8, deadline=None)
@given(SEEDS, st.integers(0, 12))
def test_a_lag_is_what_a_shorter_recording_tells(seed: int, lag: int) -> None:
    y = _seen(seed)
    y[0] = 0.0
    tracker = VectorTracker(2, noise_std=1.0, acceleration=0.01)
    lagged = tracker.smooth(y, lag=lag)
    for t in (0, 7, 20, 39):
        whole = tracker.smooth(y[: t + lag + 1])
        np.testing.assert_allclose(lagged.position[t], whole.position[t], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(lagged.std[t], whole.std[t], rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_what_came_later_helps(seed: int) -> None:
    y = _seen(seed)
    y[0] = 0.0
    tracker = VectorTracker(2, noise_std=1.0, acceleration=0.01)
    filtered, smoothed = tracker.copy().filter(y), tracker.smooth(y)
    assert (smoothed.std <= filtered.std * (1 + 1e-6)).all()
    np.testing.assert_allclose(smoothed.position[-1], filtered.position[-1], rtol=1e-5, atol=1e-6)


def test_a_batch_is_its_items_and_a_far_place_changes_nothing() -> None:
    y = np.stack([_seen(k) for k in range(3)], axis=1)
    tracker = VectorTracker(noise_std=1.0, acceleration=0.01)
    together = tracker.smooth(y)
    for k in range(3):
        alone = tracker.smooth(y[:, k] + 1e6)
        np.testing.assert_allclose(together.position[:, k] + 1e6, alone.position, rtol=0, atol=1e-6)
    few = tracker.smooth(y, fields=("position", "time"))
    assert set(few.fields()) == {"position", "time"}
    np.testing.assert_array_equal(few.position, together.position)


def test_components_may_be_coupled_and_a_wrong_lag_is_refused() -> None:
    tracker = VectorTracker(noise_covariance=[[1.0, 0.5], [0.5, 1.0]], acceleration=0.01)
    y = _seen(3)
    assert (tracker.smooth(y).std <= tracker.copy().filter(y).std * (1 + 1e-6)).all()
    with pytest.raises(ValueError, match="lag must be"):
        VectorTracker(noise_std=1.0).smooth(np.zeros((5, 2)), lag=-1)
