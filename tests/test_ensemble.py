"""Laws of the ensemble: compiled equals readable, whatever comes; members are what they hold."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import readable_ensemble as readable
from kgmrf.engines import Lines
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble import Ensemble
from kgmrf.engines.ensemble_view import held
from kgmrf.engines.members import Average, Diagonal, Turning, default_members

STEPS = 20 if numba.config.DISABLE_JIT else 160
MANY = (*default_members(3), *(Average(8.0 + k, size_gain=0.1) for k in range(9)))  # over 8 clocks


def rough(d: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Samples ``(n, m, d)``: missing cells and rows, late and silent channels, an outlier, gaps."""
    g = np.random.default_rng(seed)
    x = g.normal(size=(STEPS, m, d)) @ (g.normal(size=(d, d)) + np.eye(d))
    x[g.random(x.shape) < 0.05] = np.nan
    x[3], x[4, 0] = np.nan, np.nan
    x[STEPS // 2] *= 50.0
    if d > 1:
        x[: STEPS // 3, :, -1] = 0.0
        x[:, :, 0] *= 1e-3
    return x, np.append(0.0, g.uniform(0.0, 3.0, STEPS - 1))


def compare(engine: Ensemble, seen: np.ndarray, counts: np.ndarray, dt: np.ndarray) -> None:
    matrix = seen.shape[1] == seen.shape[2] and counts.max() > 1
    rows, other = engine.init(1), engine.init(1)
    lines = Lines(np.zeros(len(seen), dtype=int), seen, counts, dt, matrix=matrix)
    records = engine.advance(rows, lines)[1]
    expected = readable.run(engine, other, seen, counts, dt, matrix=matrix)
    np.testing.assert_array_equal(np.isnan(records), np.isnan(expected))
    scale = np.nanmax(np.abs(expected[:, engine.small :]), axis=1, keepdims=True, initial=1e-300)
    small = engine.small
    np.testing.assert_allclose(records[:, :small], expected[:, :small], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        records[:, small:] / scale, expected[:, small:] / scale, rtol=1e-7, atol=1e-9
    )
    # What single members hold is where the readable file has it too.
    whole = np.nan_to_num(held(engine, rows[0]))
    track = at.track(other[0], engine.plan)
    np.testing.assert_allclose(whole, readable.growth(track) * readable.hold(track, engine.plan))


@pytest.mark.parametrize("d", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("m", [1, 3])
def test_compiled_equals_readable(d: int, m: int) -> None:
    x, dt = rough(d, m)
    compare(Ensemble(d), x, np.ones(len(x)), dt)


@pytest.mark.parametrize("d", [1, 2, 4, 10])
def test_compiled_equals_readable_on_matrices(d: int) -> None:
    x, dt = rough(d, 6)
    x = np.nan_to_num(x)
    seen = np.swapaxes(x, 1, 2) @ x / 6.0
    counts = np.where(np.arange(len(x)) % 7 == 5, 0.0, 6.0)
    counts[3] = 0.0  # all zero
    compare(Ensemble(d), seen, counts, dt)


@pytest.mark.parametrize(
    "members",
    [(Turning(1e-6),), (Diagonal(8.0), Diagonal(64.0)), (Average(4.0, 0.3, 16.0, True),), MANY],
    ids=["turning", "diagonal", "average", "many"],
)
def test_compiled_equals_readable_for_other_members(members: tuple) -> None:
    x, dt = rough(3, 1)
    compare(Ensemble(3, members), x, np.ones(len(x)), dt)
