"""Forecasts of rotations several steps ahead: as good, and as sure, as they turned out to be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from kgmrf import RotationTracker
from kgmrf import constants as c
from kgmrf.engines import Lines
from kgmrf.engines import rotation_row as at
from kgmrf.engines.rotation_row import field, part
from kgmrf.engines.rotations import Rotations
from kgmrf.readable import Rotations as Readable
from kgmrf.readable.isotropic import Track, log
from kgmrf.readable.rotation_ahead import EARNED

NOISE = 1e-3


def swinging(n: int, seed: int) -> Rotation:
    """A rotation that wanders about its centre and comes back within some ten steps."""
    g, x, v = np.random.default_rng(seed), np.zeros((n, 3)), np.zeros(3)
    for t in range(1, n):
        v = 0.7 * v - 0.06 * x[t - 1] + 0.03 * g.normal(size=3)
        x[t] = x[t - 1] + v
    return Rotation.from_rotvec(x)


def stopping(n: int, seed: int) -> Rotation:
    """Fast and slow in turns, for some forty steps each."""
    g, v, out = np.random.default_rng(seed), np.zeros(3), [Rotation.identity()]
    fast = 1.0
    for _ in range(1, n):
        if g.random() < 0.025:
            fast = 0.2 if fast == 1.0 else 1.0
        v = 0.9 * v + 0.02 * fast * g.normal(size=3)
        out.append(out[-1] * Rotation.from_rotvec(v))
    return Rotation.concatenate(out)


def forecasts(
    truth: Rotation, seed: int, h: int, **settings: object
) -> tuple[Rotation, np.ndarray]:
    """Of every step, made h before: rotations and covariances, from step h on."""
    g, n = np.random.default_rng([seed, 1]), len(truth)
    z = (truth * Rotation.from_rotvec(NOISE * g.normal(size=(n, 3)))).as_matrix()
    engine = Rotations(**settings)
    rows, one, kept = engine.init(1), np.ones(1), np.empty((n, engine.size))
    for t in range(n):
        engine.advance(rows, Lines(np.zeros(1, np.int64), z[t : t + 1], one, one))
        kept[t] = rows[0]
    view = engine.view(engine.ahead(kept[:-h], float(h))[1])
    return Rotation.from_matrix(view["rotation"]), view["covariance"]


def test_what_swings_back_is_forecast_to_come_back() -> None:
    """Beyond its time the velocity says nothing, and the usual rotation does."""
    for seed in range(2):
        truth = swinging(800, seed)
        found = forecasts(truth, seed, 10)[0][300:]
        wrong = (found.inv() * truth[310:]).magnitude().mean()
        held = (truth[300:-10].inv() * truth[310:]).magnitude().mean()
        at_rest = truth[310:].magnitude().mean()  # the best that can be said
        assert wrong < 0.95 * held
        assert wrong < 1.2 * at_rest


@pytest.mark.parametrize("h", [3, 10])
def test_regions_of_forecasts_hold_what_comes(h: int) -> None:
    """The region of 95 % of forecasts h steps ahead, over seeds, noise given and learned."""
    inside = []
    for seed in range(3):
        truth = stopping(600, seed)
        for settings in ({}, {"noise_std": NOISE}):
            found, covariance = forecasts(truth, seed, h, **settings)
            wrong = (found.inv() * truth[h:]).as_rotvec()[100:, :, None]
            square = (wrong * np.linalg.solve(covariance[100:], wrong)).sum(axis=(1, 2))
            inside.append((square < chi2(3).ppf(0.95)).mean())
    assert np.mean(inside) > 0.93
    assert min(inside) > 0.88


def test_the_members_say_what_coasting_shows() -> None:
    """The mean that is compared later is that of the record, but for products of turns."""
    engine = Rotations(noise_std=0.01, time_unit=1.0)
    twin = Readable(*engine._laws, engine._places)
    v = np.array([0.02, -0.01, 0.03])
    g = np.random.default_rng(0)
    z = Rotation.from_rotvec(np.outer(np.arange(40), v) + 0.01 * g.normal(size=(40, 3)))
    rows, one = engine.init(1), np.ones(40)
    engine.advance(rows, Lines(np.zeros(40, np.int64), z.as_matrix(), one, one))
    part(rows, "earned")[:] = 0.0
    t = Track(rows[0], True)
    for h in c.FORECAST_LAGS:
        mean, variance = twin.ahead.members(t, h, True)
        record = engine.ahead(rows, h)[1][0]
        shown = log(t.frame, field(record, "quaternion"))
        np.testing.assert_allclose(mean, shown, atol=0.05 * np.linalg.norm(shown))
        assert 0.7 < 3 * variance / field(record, "angle").sum() < 1.4


def test_what_was_learned_is_told_of_forecasts_alone() -> None:
    """A step that is observed shows the same, whatever forecasts earned; later ones do not."""
    engine = Rotations()
    rows, one = engine.init(1), np.ones(60)
    z = swinging(61, 3).as_matrix()
    engine.advance(rows, Lines(np.zeros(60, np.int64), z[:60], one, one))
    other = rows.copy()
    part(other, "earned")[..., EARNED.index("log_spread")] = 1.0
    part(other, "earned")[..., EARNED.index("third")] = 0.5
    part(other, "earned")[..., EARNED.index("agreed")] = 100.0
    line = Lines(np.zeros(1, np.int64), z[60:], np.ones(1), np.ones(1))
    one_step = [engine.advance(r.copy(), line)[1] for r in (rows, other)]
    np.testing.assert_array_equal(*one_step)
    first, second = (engine.ahead(r, 10.0)[1][0] for r in (rows, other))
    spread = np.exp(1.0 - part(rows, "earned")[0, 1, EARNED.index("log_spread")])
    np.testing.assert_allclose(field(second, "angle"), spread * field(first, "angle"))
    assert (field(first, "quaternion") != field(second, "quaternion")).any()


def test_a_new_start_ends_what_waits() -> None:
    """After a gap so long that nothing is known, nothing is compared across it."""
    tracker = RotationTracker(noise_std=0.01)
    g = np.random.default_rng(0)
    for z in Rotation.from_rotvec(0.01 * g.normal(size=(20, 3))).as_matrix():
        tracker.update(z)
    assert part(tracker._rows[0], "followed") == 20
    tracker.update(Rotation.from_rotvec([0.0, 2.0, 0.0]).as_matrix(), dt=1e8)
    assert part(tracker._rows[0], "followed") == 1
    assert not part(tracker._rows[0], "pending").any()


def test_no_forecast_waits_where_rates_are_measured() -> None:
    tracker = RotationTracker(gyroscope=True)
    for _ in range(30):
        tracker.update(np.eye(3), rate=np.zeros(3))
    assert not part(tracker._rows[0], "pending").any()
    assert not part(tracker._rows[0], "earned")[..., : len(EARNED) - 1].any()
    assert tracker._records.shape[1] == at.RECORD_SIZE
