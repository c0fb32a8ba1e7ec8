"""A channel that comes after the start: its size, its correlations, and the channels beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kgmrf
from kgmrf import KGMRF, TrackerBank

Numbers = np.ndarray
FIRST, ROWS = 300, 420


def market(seed: int, d: int = 6) -> Numbers:
    """Returns of one factor and of noise, Student-t, of sizes that differ by a factor of two."""
    g = np.random.default_rng(seed)
    loadings, sizes = 0.7 + 0.2 * g.normal(size=d), np.exp(0.3 * g.normal(size=d))
    x = g.normal(size=(ROWS, 1)) * loadings + 0.7 * g.normal(size=(ROWS, d))
    return x * sizes * np.sqrt(3.0 / g.chisquare(5, size=(ROWS, 1)))


def covariances(x: Numbers) -> Numbers:
    return KGMRF(x.shape[1], time_scale=1).filter(x, fields="covariance").covariance


@pytest.fixture(scope="module")
def runs() -> list[tuple[Numbers, Numbers, Numbers]]:
    """Covariances with the last channel from the start, late, and without it."""
    found = []
    for seed in range(60):
        x = market(seed)
        late = x.copy()
        late[:FIRST, -1] = np.nan
        found.append(tuple(covariances(part) for part in (x, late, x[:, :-1])))
    return found


def test_it_waits_for_five_values(runs: list[tuple[Numbers, Numbers, Numbers]]) -> None:
    _, late, _ = runs[0]
    assert np.isnan(late[: FIRST + 4, -1]).all()
    assert np.isfinite(late[FIRST + 4 :]).all()


@pytest.mark.parametrize(("rows", "low", "high"), [(5, 0.5, 1.8), (20, 0.7, 1.4), (100, 0.8, 1.25)])
def test_its_volatility_is_soon_that_with_a_full_history(
    runs: list[tuple[Numbers, Numbers, Numbers]], rows: int, low: float, high: float
) -> None:
    """Between .2 and 4 times after 5 rows, .5 and 4 after 20, when the first value set the size."""
    t = FIRST + rows - 1
    ratio = np.sqrt([late[t, -1, -1] / full[t, -1, -1] for full, late, _ in runs])
    assert ((ratio > low) & (ratio < high)).mean() >= 0.9
    assert 0.85 < np.median(ratio) < 1.15


def test_its_correlations_grow(runs: list[tuple[Numbers, Numbers, Numbers]]) -> None:
    """.18 and .31 of those with a full history, after 50 and 100 rows."""
    shares = []
    for full, late, _ in runs:
        row = [
            S[-1, :-1] / np.sqrt(S[-1, -1] * np.diag(S)[:-1])
            for S in (full[FIRST + 99], late[FIRST + 99])
        ]
        shares.append(row[0] @ row[1] / (row[0] @ row[0]))
    assert np.mean(shares) > 0.4


def test_others_are_left_alone(runs: list[tuple[Numbers, Numbers, Numbers]]) -> None:
    """One small first value raised all others several times."""
    moved = []
    for _, late, alone in runs:
        ratio = np.diagonal(late[FIRST : FIRST + 60, :-1, :-1], axis1=1, axis2=2)
        ratio = np.sqrt(ratio / np.diagonal(alone[FIRST : FIRST + 60], axis1=1, axis2=2))
        moved.append(max(ratio.max(), 1.0 / ratio.min()))
    assert np.quantile(moved, 0.95) < 1.5


@pytest.mark.parametrize("first", [1e-6, 0.02])
def test_a_first_value_far_too_small_does_no_harm(first: float) -> None:
    """The others came out 14 times too large, in the median."""
    moved = []
    for seed in range(60):
        x = np.random.default_rng(seed).normal(size=(130, 2))
        x[:100, 1], x[100, 1] = np.nan, first
        ratio = covariances(x)[100:, 0, 0] / covariances(x[:, :1])[100:, 0, 0]
        moved.append(np.sqrt(ratio.max()))
    assert np.quantile(moved, 0.95) < 1.5


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_other_units_are_no_evidence(scale: float) -> None:
    x = market(0)
    late = x.copy()
    late[:FIRST, -1] = np.nan
    late[:, -1] *= scale
    after = covariances(late)[FIRST + 19, -1, -1] / scale**2
    assert 0.4 < np.sqrt(after / covariances(x)[FIRST + 19, -1, -1]) < 2.5


def test_matrices_of_many_samples_bring_a_channel_at_once() -> None:
    g = np.random.default_rng(0)
    x = g.normal(size=(60, 20, 3)) * [1.0, 2.0, 3.0]
    C = np.swapaxes(x, 1, 2) @ x / 20
    C[:30, 2], C[:30, :, 2] = 0.0, 0.0
    found = KGMRF(3, n_samples=20).filter(C).covariance
    assert np.isnan(found[29, 2, 2])
    assert 2.0 < np.sqrt(found[30, 2, 2]) < 4.5


@pytest.mark.parametrize("kind", ["bank", "tracker"])
def test_a_state_can_be_read_while_a_channel_waits(kind: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 2))
    x[:6, 1] = 0.0
    follower = KGMRF(2) if kind == "tracker" else TrackerBank(3, 2)
    for row in x:
        follower.update(row if kind == "tracker" else np.tile(row, (3, 1)))
        follower.save(tmp_path / "state.npz")
        again = (kgmrf.load if kind == "tracker" else TrackerBank.load)(tmp_path / "state.npz")
        np.testing.assert_array_equal(again.forecast(1).covariance, follower.forecast(1).covariance)
