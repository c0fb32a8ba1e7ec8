"""Beyond one step: the same density however time is cut up, calibrated, learned from exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import KGMRF, TrackerBank
from kgmrf.constants import BLEND_RATE, BLEND_SHARE
from kgmrf.engines import Lines, horizon
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble import Ensemble
from kgmrf.engines.low_rank import LowRank

Numbers = np.ndarray


def wandering(n: int, d: int, seed: int, rho: float = 0.97, swing: float = 0.25) -> Numbers:
    """Samples whose common log variance is an AR(1)."""
    g = np.random.default_rng(seed)
    log = np.zeros(n)
    for t in range(1, n):
        log[t] = rho * log[t - 1] + swing * g.normal()
    mix = np.eye(d) + 0.3 * g.normal(size=(d, d))
    return np.exp(0.5 * log)[:, None] * (g.normal(size=(n, d)) @ mix)


def trained(x: Numbers) -> KGMRF:
    tracker = KGMRF(time_unit=1.0)
    tracker.filter(x, layout="channels_last", fields="log_likelihood")
    return tracker


def same(one: Any, other: Any, x: Numbers) -> None:
    """Two estimates that stand for one density."""
    for name in ("covariance", "scale", "tails", "weights", "size_std", "dof", "half_life"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)
    np.testing.assert_allclose(one.log_density(x), other.log_density(x), rtol=1e-9)


# ------------------------------------------------------------------------- time however cut


@pytest.mark.parametrize("d", [1, 3, 70])
def test_a_forecast_after_a_gap_is_the_forecast_over_both(d: int) -> None:
    x = wandering(120, d, 0)
    tracker, nothing = trained(x[:-1]), np.full(d, np.nan)
    whole = tracker.forecast(12)
    late = tracker.copy()
    for _ in range(5):
        late.partial_fit(nothing)
    same(late.forecast(7), whole, x[-1])
    longer = tracker.copy()
    longer.partial_fit(nothing, dt=5.0)
    same(longer.forecast(7), whole, x[-1])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5]), st.integers(2, 40))
def test_a_gap_in_rows_is_a_gap_in_time(seed: int, d: int, gap: int) -> None:
    x = wandering(80, d, seed)
    rows, jump = trained(x[:60]), trained(x[:60])
    rows.filter(np.full((gap - 1, d), np.nan), layout="channels_last")
    told = rows.partial_fit(x[60]), jump.partial_fit(x[60], dt=float(gap))
    np.testing.assert_allclose(told[0].log_likelihood, told[1].log_likelihood, rtol=1e-9)
    end = rows._engine.plan.places["turning"]  # planes at their limits depend on how often
    np.testing.assert_allclose(rows._rows[:, :end], jump._rows[:, :end], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("d", [1, 4, 70])
@pytest.mark.parametrize("gap", [1, 2, 30])
@pytest.mark.parametrize("missing", [0, 1])
def test_an_observation_is_scored_by_the_forecast_of_its_time(
    d: int, gap: int, missing: int
) -> None:
    if missing >= d:
        pytest.skip("nothing would be left")
    x = wandering(150, d, 1)
    x[-1, :missing] = np.nan
    tracker = trained(x[:-1])
    ahead = tracker.forecast(gap)
    found = tracker.partial_fit(x[-1], dt=float(gap))
    np.testing.assert_allclose(found.log_likelihood, ahead.log_density(x[-1]), rtol=1e-9)
    np.testing.assert_allclose(found.p_value, ahead.density.p_value(x[-1]), rtol=1e-9)
    assert (ahead.size_std > 0.0) == (gap > 1)


def test_a_bank_forecasts_as_its_trackers_do() -> None:
    x = wandering(100, 3, 2).reshape(100, 1, 3) * [[[1.0]], [[4.0]]][0]
    x = np.concatenate([x, 2.0 * x[::-1]], axis=1)
    bank = TrackerBank(2, 3, time_unit=1.0)
    for row in x:
        bank.update(row)
    ahead = bank.forecast(20)
    for k in range(2):
        same(trained(x[:, k]).forecast(20), Part(ahead, k), x[-1, k])


class Part:
    """One track of a bank's estimate."""

    def __init__(self, whole: Any, k: int) -> None:
        self.whole, self.k = whole, k

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)[self.k]

    def log_density(self, x: Numbers) -> Any:
        return self.whole.log_density(x)[self.k]


@pytest.mark.parametrize("d", [3, 70])
def test_what_a_track_knows_of_its_size_says_nothing_of_the_next_step(d: int) -> None:
    x = wandering(150, d, 3)
    engine = Ensemble(d) if d < 64 else LowRank(d)
    rows = engine.init(2)
    for row in x[:-1]:
        step(engine, rows, np.stack([row, row]))
    engine.read(rows).wander[1] *= 3.0
    records = step(engine, rows, np.stack([x[-1], x[-1]]))
    np.testing.assert_array_equal(records[0, at.LIKELIHOOD], records[1, at.LIKELIHOOD])


# ------------------------------------------------------------------------- the density


@pytest.mark.parametrize("d", [2, 70])
def test_the_covariance_is_the_second_moment_of_the_density(d: int) -> None:
    ahead = trained(wandering(200, d, 4)).forecast(30)
    density = ahead.density
    heavy = (density.tails * density.factors * density.dofs / (density.dofs - 2.0)).sum()
    np.testing.assert_allclose(ahead.covariance, heavy * ahead.scale, rtol=1e-9)
    np.testing.assert_allclose(ahead.scale * ahead.dof / (ahead.dof - 2.0), ahead.covariance)
    np.testing.assert_allclose(density.cdf(density.region(0.9)), 0.9, atol=1e-9)


def test_weights_are_shares_at_every_age_and_end_with_the_longest_average() -> None:
    tracker = trained(wandering(300, 4, 5))
    for h in (1.0, 1.5, 4.0, 20.0, 1e3, 1e6):
        weights = tracker.forecast(h).weights
        assert (weights >= 0.0).all()
        np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)
    last = int(np.flatnonzero(tracker._engine.plan.table[:, at.HEIR] == horizon.LAST)[0])
    turning = tracker._engine.plan.table[:, at.KIND] == at.TURNING
    assert weights[last] > 0.99 * (1.0 - weights[turning].sum())


def covered(x: Numbers, h: int) -> float:
    """Share of observations within the 95 % region of the forecast h ahead."""
    d = x.shape[1]
    tracker, found = KGMRF(d, time_unit=1.0), []
    for t in range(len(x) - h):
        tracker.partial_fit(x[t])
        if t >= 400 and t % 4 == 0:
            ahead = tracker.forecast(h)
            found.append(bool(ahead.mahalanobis(x[t + h]) <= ahead.region(0.95)))
    return float(np.mean(found))


@pytest.mark.parametrize("h", [20, 60])
def test_regions_of_a_wandering_size_are_calibrated(h: int) -> None:
    """They covered .77 and .64."""
    found = np.mean([covered(wandering(3000, 4, seed), h) for seed in range(3)])
    assert 0.92 < found < 0.98


def test_nothing_is_lost_where_nothing_wanders() -> None:
    x = np.random.default_rng(0).normal(size=(2500, 18))
    assert 0.93 < covered(x, 60) < 0.97  # was .90


# ------------------------------------------------------------------------- learning


def step(engine: Any, rows: Numbers, x: Numbers, dt: float = 1.0, m: float = 0.0) -> Numbers:
    """Take in one line of every track; samples, or with m matrices. Their records."""
    n = len(rows)
    seen = x if x.ndim == 3 else x[:, None, :]
    counts = np.full(n, m if m else 1.0)
    lines = Lines(np.arange(n), np.ascontiguousarray(seen), counts, np.full(n, dt), m > 0.0)
    return engine.advance(rows, lines)[1]


@pytest.mark.parametrize("gap", [1.0, 6.0, 50.0])
@pytest.mark.parametrize("kind", ["sample", "cells", "samples", "matrix", "low rank"])
def test_weights_learn_from_the_exact_gradient(kind: str, gap: float) -> None:
    """Derivatives of the log-density by the weights after one observation, by finite differences.

    The weights before the map w -> w(g) learn, through it.
    """
    d = 70 if kind == "low rank" else 3
    engine: Any = LowRank(d) if kind == "low rank" else Ensemble(d)
    x = wandering(400, d, 6)
    rows = engine.init(1)
    for row in x[:300]:
        step(engine, rows, row[None])
    m = {"samples": 5, "matrix": 12}.get(kind, 1)
    seen = 0.6 * np.random.default_rng(1).normal(size=(1, m, d)) * x.std(axis=0)
    if kind == "cells":
        seen[..., 0] = np.nan
    if kind == "matrix":
        seen = np.swapaxes(seen, 1, 2) @ seen / m
    known = {"cells": d - 1, "low rank": np.sqrt(d)}.get(kind, d)

    def after(weights: Numbers) -> Numbers:
        out = rows.copy()
        engine.read(out).roots[:] = np.sqrt(weights) / np.sqrt(weights).sum()
        step(engine, out, seen, gap, float(m) if kind == "matrix" else 0.0)
        return out

    weights = at.blend_weights(engine.read(rows).roots, False)[0]
    n, told = len(weights), after(weights)
    before = np.sqrt(weights) / np.sqrt(weights).sum()
    roots = (engine.read(told).roots[0] - BLEND_SHARE / n) / (1.0 - BLEND_SHARE)
    moved = np.log(roots / before) / BLEND_RATE * known
    gradient = np.empty(n)
    for k in range(n):
        way = 1e-5 * (np.eye(n)[k] - weights)  # keeps the sum
        scores = [after(weights + sign * way)[0, at.LIKELIHOOD] for sign in (1.0, -1.0)]
        gradient[k] = (scores[0] - scores[1]) / 2e-5
    inside = np.abs(gradient - gradient @ weights) < 0.99 * known  # steps are limited
    assert inside.sum() > 2
    apart = (moved - moved[inside][0]) - (gradient - gradient[inside][0])
    np.testing.assert_allclose(apart[inside], 0.0, atol=1e-5)
