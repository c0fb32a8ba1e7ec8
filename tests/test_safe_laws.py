"""Single laws survive what data do: outliers, changes of units, jumps of scale, bursts, gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF

LAWS = ["information", "zero_lag", "printed"]
DEVIATIONS = np.array([2.0, 1.0, 0.5])


def _samples(seed: int, n: int) -> Any:
    return np.random.default_rng(seed).standard_normal((n, 3)) * DEVIATIONS


def _defect(frames: Any) -> float:
    return float(np.abs(np.swapaxes(frames, -1, -2) @ frames - np.eye(frames.shape[-1])).max())


def _sound(run: Any) -> None:
    assert np.isfinite(run.covariance).all()
    assert (run.spectrum > 0).all()
    assert np.isfinite(run.velocity).all()
    assert _defect(run.frame) < 1e-12


def _recovered(run: Any, truth: Any) -> None:
    trace = np.trace(run.covariance[-200:], axis1=-2, axis2=-1).mean()
    assert 0.6 < trace / (truth**2).sum() < 1.7


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("size", [1e8, 1e15, 1e70])
def test_one_outlier_is_forgotten(law: str, size: float) -> None:
    x = _samples(0, 1500)
    x[500] *= size
    run = KGMRF(gains=law).filter(x)
    _sound(run)
    _recovered(run, DEVIATIONS)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("size", [1e9, 1e-9, 1e6, 1e-6])
def test_a_change_of_units_is_followed(law: str, size: float) -> None:
    x = _samples(1, 9000)
    x[1000:] *= size
    run = KGMRF(gains=law).filter(x)
    _sound(run)
    _recovered(run, size * DEVIATIONS)


@pytest.mark.parametrize("law", LAWS)
def test_bursts_jumps_zeros_and_gaps_leave_a_track_that_works(law: str) -> None:
    rng = np.random.default_rng(2)
    x = _samples(3, 20_000)
    times = np.cumsum(rng.choice([1.0, 1.0, 1.0, 50.0], len(x)))
    for start in range(0, len(x) - 3000, 400):
        what = rng.integers(5)
        part = slice(start, start + int(rng.integers(1, 300)))
        x[part] *= (50.0, 1e6, 1e-6, 0.0, np.nan)[what]
    run = KGMRF(gains=law).filter(x, times=times)
    _sound(run)
    _recovered(run, DEVIATIONS)


def test_data_that_do_not_turn_do_not_spin_the_frame_up() -> None:
    """Heavy tails and a changing size, but no rotation: velocities stay small.

    How far one run strays is decided by rounding, so there are eight of each of three streams.
    """
    fastest = []
    for seed in (4, 5, 6):
        rng = np.random.default_rng(seed)
        x = rng.standard_t(4, (3000, 6)) * np.geomspace(3.0, 0.5, 6)
        x *= np.exp(np.cumsum(0.05 * rng.standard_normal((3000, 1)), axis=0))
        for k in range(8):
            run = KGMRF(gains="information").filter((1.0 + k * 1e-13) * x)
            _sound(run)
            fastest.append(np.abs(run.velocity[500:]).max(axis=(-2, -1)).mean())
    assert np.mean(fastest) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_million_hard_steps(law: str) -> None:
    tracker = KGMRF(gains=law)
    rng = np.random.default_rng(5)
    for _ in range(100):
        x = rng.standard_normal((10_000, 3)) * DEVIATIONS
        size = np.repeat(rng.choice([1.0, 1.0, 1.0, 50.0, 1e6, 1e-6, np.nan], 100), 100)
        run = tracker.filter(x * size[:, None])
        _sound(run)
    run = tracker.filter(_samples(6, 9000))
    _recovered(run, DEVIATIONS)
