"""Beyond one step: the same density however time is cut up, calibrated, learned from exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import KGMRF, KineticGaussian, TrackerBank
from kgmrf.constants import BLEND_RATE, BLEND_SHARE, STEADY_SHARE, TOP_RIDGE
from kgmrf.engines import Lines, horizon
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble import Ensemble
from kgmrf.engines.low_rank import LowRank
from kgmrf.model.density import Density
from kgmrf.model.factors import FactorDensity
from kgmrf.trackers.gaussian import _wider

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


@pytest.mark.parametrize(("d", "rows"), [(2, 200), (70, 400)])
def test_the_covariance_is_the_second_moment_of_the_density(d: int, rows: int) -> None:
    """Of a track that is not young: the density of those is wider than their covariance."""
    ahead = trained(wandering(rows, d, 4)).forecast(30)
    density = ahead.density
    heavy = (density.tails * density.factors * density.dofs / (density.dofs - 2.0)).sum()
    np.testing.assert_allclose(ahead.dof / (ahead.dof - 2.0), heavy)
    rest = ahead.covariance - (1.0 if d >= 64 else 1.0 - STEADY_SHARE) * heavy * ahead.scale
    if d >= 64:
        np.testing.assert_allclose(rest, 0.0, atol=1e-9)
        return
    # A hundredth is the average of the longest half-life, which changes with its shrinkage alone.
    steady = rest / (STEADY_SHARE * heavy)
    late = trained(wandering(200, d, 4)).forecast(30.5)
    heavy *= (late.dof / (late.dof - 2.0)) / heavy
    rest = late.covariance - (1.0 - STEADY_SHARE) * heavy * late.scale
    np.testing.assert_allclose(rest / (STEADY_SHARE * heavy), steady, rtol=1e-3)
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
        if d < 64:  # the weights learn as if S had been the forecast, and not S'
            at.track(out, engine.plan).top[:, d:] = 1.0, 0.0, 0.0
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


# ------------------------------------------------------------------------- the top direction


def market(n: int, d: int, seed: int, swing: float) -> Numbers:
    """Samples of one factor whose log variance wanders, and of noise that is as it is."""
    g = np.random.default_rng(seed)
    log = np.zeros(n)
    for t in range(1, n):
        log[t] = 0.95 * log[t - 1] + swing * g.normal()
    return np.exp(0.5 * log)[:, None] * g.normal(size=(n, 1)) + 0.7 * g.normal(size=(n, d))


def beta(rows: Numbers, engine: Ensemble) -> Numbers:
    m, g, b = at.track(rows, engine.plan).top[:, engine.d :].T
    return np.clip(b / (g + TOP_RIDGE), 0.0, 1.0) * (m - 1.0)


@pytest.mark.parametrize("swing", [0.0, 0.4])
def test_the_clock_of_the_top_direction_works_only_where_it_earns(swing: float) -> None:
    d, gains, open_gate = 12, [], []
    engine = Ensemble(d)
    for seed in range(3):
        rows = engine.init(2)
        for t, row in enumerate(market(2500, d, seed, swing)):
            at.track(rows, engine.plan).top[1, d:] = 1.0, 0.0, 0.0  # the second has none
            scores = step(engine, rows, np.stack([row, row]))[:, at.LIKELIHOOD]
            if t > 500:
                gains.append(scores[0] - scores[1])
                open_gate.append(abs(beta(rows, engine)[0]))
    if swing:
        assert np.mean(gains) > 0.01
    else:
        assert abs(np.mean(gains)) < 0.002
        assert np.mean(open_gate) < 0.05


def test_the_scale_in_the_top_direction_is_what_the_clock_says() -> None:
    d = 5
    engine = Ensemble(d)
    rows = engine.init(1)
    for row in market(300, d, 0, 0.4):
        step(engine, rows, row[None])
    parts = at.track(rows, engine.plan)
    parts.top[:, d:] = 3.0, 10.0, 8.0
    later, records = engine.ahead(rows, 1.0)
    wide = engine.view(records, later)["scale"][0]
    parts.top[:, d:] = 1.0, 0.0, 0.0
    plain = engine.view(*engine.ahead(rows, 1.0)[::-1])["scale"][0]
    sd = np.sqrt(np.diag(plain))
    u = (plain / np.outer(sd, sd)) @ parts.top[0, :d]
    w = u / np.linalg.norm(u) / sd
    v = w @ plain @ w
    share = 8.0 / 20.0 * 0.98 * 2.0  # a (m - 1) after one unit
    np.testing.assert_allclose(wide, plain + share / v * np.outer(plain @ w, plain @ w), rtol=1e-9)


# ------------------------------------------------------------------------- sums


@pytest.mark.parametrize("d", [3, 70])
def test_the_total_of_one_step_is_the_forecast(d: int) -> None:
    x = wandering(150, d, 7)
    tracker = trained(x[:-1])
    total, ahead = tracker.forecast_total(1), tracker.forecast(1)
    np.testing.assert_allclose(total.covariance, ahead.covariance, rtol=1e-12)
    np.testing.assert_allclose(total.log_density(x[-1]), ahead.log_density(x[-1]), rtol=1e-9)


def test_the_density_of_a_total_has_the_second_moment_of_its_parts() -> None:
    tracker = trained(wandering(200, 3, 8))
    total = tracker.forecast_total(10)
    steps = [tracker.forecast(k) for k in range(1, 11)]
    np.testing.assert_allclose(total.covariance, sum(one.covariance for one in steps), rtol=1e-12)
    density, third = total.density, tracker.forecast(4)
    heavy = (density.tails * density.factors * density.dofs / (density.dofs - 2.0)).sum()
    np.testing.assert_allclose(heavy, third.dof / (third.dof - 2.0))
    assert density.project([1.0, 0.0, 0.0]).value_at_risk(0.99) > 0.0


@pytest.mark.parametrize("h", [5, 20])
def test_regions_of_a_total_are_calibrated(h: int) -> None:
    found = []
    for seed in range(3):
        x = wandering(2500, 4, seed)
        tracker = KGMRF(4, time_unit=1.0)
        for t in range(len(x) - h):
            tracker.partial_fit(x[t])
            if t >= 400 and t % 10 == 0:
                total = tracker.forecast_total(h)
                seen = x[t + 1 : t + 1 + h].sum(axis=0)
                found.append(bool(total.mahalanobis(seen) <= total.region(0.95)))
    assert 0.92 < np.mean(found) < 0.98


# ------------------------------------------------------------------------- a mean beside it


def test_the_density_about_a_mean_is_wider_by_what_is_not_known_of_it() -> None:
    """Without that .82 to .93 of the observations of drifting samples were within 95 % regions."""
    g = np.random.default_rng(0)
    d, n = 3, 1500
    x = np.cumsum(0.02 * g.normal(size=(n, d)), axis=0) + g.normal(size=(n, d))
    tracker, found = KineticGaussian(d, time_unit=1.0), {h: list[bool]() for h in (1, 5, 20)}
    for t in range(n - 20):
        tracker.update(x[t])
        if t >= 300 and t % 4 == 0:
            for h, hits in found.items():
                ahead = tracker.forecast(h)
                hits.append(bool(ahead.mahalanobis(x[t + h]) <= ahead.region(0.95)))
    for hits in found.values():
        assert 0.92 < np.mean(hits) < 0.985


def test_a_wider_density_of_factors_is_that_of_the_matrix() -> None:
    g = np.random.default_rng(0)
    f, noise, s = g.normal(size=(5, 2)), g.uniform(1.0, 2.0, 5), g.uniform(0.0, 1.0, 5)
    parts = (np.ones(1), np.array([5.0]))
    thin, full = FactorDensity(f, noise, *parts), Density(f @ f.T + np.diag(noise), *parts)
    x = g.normal(size=5)
    np.testing.assert_allclose(_wider(thin, s).log_density(x), _wider(full, s).log_density(x))
