"""Matrices whose size varies by itself are reported as large as they are in the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF
from kgmrf.constants import BIAS_LIMIT
from kgmrf.engines.layout import track


def sized(sizes: Any, m: int, d: int = 3, seed: int = 0) -> Any:
    """Matrices of m samples of N(0, size I)."""
    x = np.random.default_rng(seed).normal(size=(len(sizes), m, d))
    return np.swapaxes(x, 1, 2) @ x / m * np.asarray(sizes)[:, None, None]


def log_normal(spread: float, n: int = 2000, seed: int = 0) -> Any:
    """Sizes of mean one."""
    noise = np.random.default_rng([seed, 1]).normal(size=n)
    return np.exp(spread * noise - 0.5 * spread**2)


def bias_of(tracker: KGMRF) -> float:
    return float(track(tracker._rows, tracker._engine.plan).bias[0, 0])


@pytest.mark.parametrize("m", [8, 32, 256])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_the_mean_of_what_is_reported_is_that_of_the_matrices(m: int, spread: float) -> None:
    ratios = []
    for seed in range(2):
        sizes = log_normal(spread, seed=seed)
        found = KGMRF(n_samples=m).filter(sized(sizes, m, seed=seed)).covariance[500:]
        size = np.trace(found, axis1=1, axis2=2).mean() / 3.0
        ratios.append(size / sizes[500:].mean())
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.04 + 0.06 * spread)


def test_forecasts_and_blocks_of_samples_have_it_too() -> None:
    sizes = log_normal(1.0)
    x = np.random.default_rng(0).normal(size=(2000, 32, 3)) * np.sqrt(sizes)[:, None, None]
    tracker = KGMRF()
    tracker.filter(x[:500], samples=True)
    ahead = []
    for block in x[500:]:
        ahead.append(np.trace(tracker.forecast(1).covariance) / 3.0)
        tracker.partial_fit(block)
    assert np.mean(ahead) == pytest.approx(sizes[500:].mean(), rel=0.1)


def test_single_samples_say_nothing() -> None:
    rows = np.random.default_rng(0).standard_t(3, size=(500, 3))
    for tracker, seen in ((KGMRF(), rows), (KGMRF(n_samples=1), rows[:, :, None] * rows[:, None])):
        tracker.filter(seen)
        assert bias_of(tracker) == 0.0


def test_neither_an_outlier_nor_a_jump_decides() -> None:
    for sizes in (np.ones(600), np.where(np.arange(600) < 300, 1.0, 1e-3)):
        sizes = sizes.copy()
        sizes[300] = 1e8
        tracker = KGMRF(n_samples=16)
        found = tracker.filter(sized(sizes, 16)).covariance
        for k in (350, 400, 599):
            assert np.trace(found[k]) / 3.0 == pytest.approx(sizes[k], rel=0.3), k
    ever = KGMRF(n_samples=16)
    ever.filter(sized(10.0 ** np.arange(0.0, 60.0, 0.2), 16))
    assert abs(bias_of(ever)) <= BIAS_LIMIT


def test_the_density_is_what_it_was() -> None:
    """The likelihood is of the scale, and what is reported is not."""
    found = KGMRF(n_samples=32).filter(sized(log_normal(1.0), 32))
    heavy = found.tails @ [3.0, 1.5, 1.2, 1e5 / (1e5 - 2.0)]
    size = np.trace(found.covariance, axis1=1, axis2=2) / np.trace(found.scale, axis1=1, axis2=2)
    assert size[-1] < 0.8 * heavy[-1]
    ahead = KGMRF(n_samples=32)
    ahead.filter(sized(log_normal(1.0), 32))
    assert np.allclose(ahead.forecast(1).density.scale, ahead.forecast(1).scale)


def test_damaged_rows_are_refused() -> None:
    tracker = KGMRF(n_samples=16)
    tracker.filter(sized(np.ones(20), 16))
    memory = tracker.state_dict()
    rows = memory["rows"].copy()
    track(rows, tracker._engine.plan).bias[:] = 2.0
    with pytest.raises(ValueError, match="bias of its sizes"):
        tracker.copy().load_state_dict({**memory, "rows": rows})
