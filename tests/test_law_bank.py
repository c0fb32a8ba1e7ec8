"""Tracks of a bank side by side move as each would alone, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import TrackerBank
from kgmrf.engines import INVALID, Lines
from kgmrf.engines.law import SingleLaw

N = 19


def engine(d: int, **law: Any) -> SingleLaw:
    bank = TrackerBank(2, d, time_unit=1.0, **{"gains": "information", "n_samples": 8, **law})
    assert isinstance(bank._engine, SingleLaw)
    return bank._engine


def matrices(rng: np.random.Generator, d: int, m: int = 6) -> np.ndarray:
    x = rng.standard_normal((N, m, d)) * np.geomspace(1, 30, d)
    return np.swapaxes(x, 1, 2) @ x / m


def walk(
    law: SingleLaw, frames: list[dict[str, Any]], together: bool, tolerance: float = 1e-9
) -> Any:
    """Rows, statuses and records after lines of all tracks, all at once or one at a time."""
    rows, status, records = law.init(N), [], []
    for frame in frames:
        every = np.arange(N)
        parts = [every] if together else [every[k : k + 1] for k in every]
        for part in parts:
            lines = Lines(
                part, frame["C"][part], frame["m"][part], frame["dt"][part], True, tolerance
            )
            found, record = law.advance(rows, lines)
            status.append(found)
            records.append(record)
    return rows, np.concatenate(status), np.concatenate(records)


def assert_same(one: Any, other: Any) -> None:
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


LAWS: list[dict[str, Any]] = [
    {},
    {"noise_floor": 0.3},
    {"spectrum_rate": 0.0},
    {"scale_rate": 1e-2},
    {"gains": "zero_lag"},
]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("d", [3, 4, 5, 6, 7, 8, 9])
def test_together_as_one_by_one(d: int, law: dict[str, Any]) -> None:
    rng = np.random.default_rng(d)
    mine = engine(d, **law, **({"initial": np.diag(np.arange(1.0, d + 1))} if d % 2 else {}))
    frames = []
    for k in range(40):
        C, m = matrices(rng, d), rng.integers(3, 9, N).astype(float)
        if k % 5 == 1:
            C[rng.random(N) < 0.1] = np.nan
            m[rng.random(N) < 0.1] = 0.0
        if k % 7 == 2:
            C[rng.integers(N)] *= 1e15
            C[rng.integers(N), 0, 0] = -1.0
        dt = rng.choice([0.0, 0.5, 1.0, 40.0], N) if k % 3 == 0 else np.full(N, 1.0)
        frames.append({"C": C, "m": m, "dt": dt})
    assert_same(walk(mine, frames, True), walk(mine, frames, False))


@pytest.mark.parametrize("d", [4, 7])
def test_frames_that_turn_fast_are_polished_alike(d: int) -> None:
    """Angles beyond several halvings, in some of the tracks."""
    rng, mine = np.random.default_rng(1), engine(d, pool_steps=1)
    turn = np.linalg.qr(rng.standard_normal((N, d, d)))[0]
    C, frames = matrices(rng, d, 40), []
    for k in range(40):
        C = turn @ C @ np.swapaxes(turn, 1, 2) if k % 4 else C
        dt = np.where(np.arange(N) % 3, 1.0, 300.0) if k > 20 else np.ones(N)
        frames.append({"C": C, "m": np.full(N, 4000.0), "dt": dt})
    together = walk(mine, frames, True)
    assert_same(together, walk(mine, frames, False))
    frame = mine.state(together[0])[0].frame
    assert np.abs(np.swapaxes(frame, 1, 2) @ frame - np.eye(d)).max() < 1e-12


@settings(max_examples=60)
@given(st.integers(4, 8), st.integers(0, 2**32 - 1), st.sampled_from([1e-9, 1e-4]))
def test_matrices_are_judged_alike(d: int, seed: int, tolerance: float) -> None:
    """Not symmetric, not positive, too large, not finite: together as alone."""
    rng = np.random.default_rng(seed)
    C = matrices(rng, d, int(rng.integers(1, 9)))
    for k in np.flatnonzero(rng.random(N) < 0.15):
        i, j = rng.integers(d, size=2)
        C[k, i, j] += rng.choice([tolerance, 3 * tolerance, 1.0, -40.0, np.nan, np.inf, 1e300])
    mine, first = engine(d, initial=np.eye(d)), matrices(rng, d)
    good = {"m": np.full(N, 6.0), "dt": np.ones(N)}
    frames = [{"C": first, **good}, {"C": C, **good}, {"C": first, **good}]
    together = walk(mine, frames, True, tolerance)
    assert_same(together, walk(mine, frames, False, tolerance))
    whole = np.isfinite(C).all(axis=(1, 2)) & (np.abs(C) < 1e200).all(axis=(1, 2))
    assert (together[1][N : 2 * N][~whole] == INVALID).all()
