"""Laws of the engine for many channels: chunks, gaps, faults, files."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf.engines import INVALID, Lines
from kgmrf.engines.layout import COUNT
from kgmrf.engines.low_rank import LowRank
from kgmrf.engines.low_rank_layout import BUFFERED, Factors, track
from kgmrf.model.density import TAILS, Density, components
from kgmrf.model.factors import compose
from kgmrf.readable import low_rank as readable
from kgmrf.readable.low_rank_start import spike
from kgmrf.results import Estimate, Result


def factor_rows(d, n, seed=0, factors=3):
    g = np.random.default_rng(seed)
    loadings = g.normal(size=(d, factors))
    return g.normal(size=(n, factors)) @ loadings.T + g.normal(size=(n, d)), loadings


def advance(engine, rows, x, dt=1.0, record_width=None):
    n = len(x)
    blocks = x[:, None] if x.ndim == 2 else x
    line, counts = np.zeros(n, dtype=np.int64), np.ones(n)
    steps = np.array(np.broadcast_to(dt, n), dtype=float)
    return engine.advance(
        rows, Lines(line, np.array(blocks, order="C"), counts, steps, matrix=False), record_width
    )


def run(x, dt=1.0, engine=None):
    engine = engine or LowRank(x.shape[-1])
    rows = engine.init(1)
    records = advance(engine, rows, x, dt)[1]
    engine.check(rows)
    return engine, rows, records


def log_likelihood(x, dt=1.0):
    engine, _, records = run(x, dt)
    return engine.read(records).log_likelihood


def covariance(engine, records):
    return compose(*engine.factors(records))


def trace(engine, records):
    loadings, noise = engine.factors(records)
    return (loadings**2).sum(axis=(-2, -1)) + noise.sum(axis=-1)


def rough(d=45, n=150, seed=1):
    """Missing cells, late channels, an empty row, an outlier, irregular time."""
    x, _ = factor_rows(d, n, seed)
    g = np.random.default_rng(seed)
    x[g.random(x.shape) < 0.1] = np.nan
    x[:30, 3], x[:40, 4], x[10] = 0.0, np.nan, np.nan
    x[n // 2] *= 1e4
    return x, g.uniform(0.5, 3.0, n)


def test_chunks_single_samples_and_many_rows_give_the_same():
    x, dt = rough()
    engine, rows, records = run(x, dt)
    for pieces in ([0, 7, 20, 90, 150], range(151)):
        other = engine.init(1)
        edges = list(pieces)
        parts = [advance(engine, other, x[a:b], dt[a:b])[1] for a, b in pairwise(edges)]
        np.testing.assert_array_equal(np.concatenate(parts), records)
        np.testing.assert_array_equal(other, rows)
    both = engine.init(2)
    which = np.tile([0, 1], len(x))
    seen = np.repeat(x, 2, axis=0)[:, None].copy()
    seen[1::2] *= 3.0
    engine.advance(both, Lines(which, seen, np.ones(2 * len(x)), np.repeat(dt, 2), matrix=False), 0)
    np.testing.assert_array_equal(both[:1], rows)


def test_a_block_is_its_samples_at_one_time():
    x, _ = factor_rows(20, 60)
    engine = LowRank(20)
    blocks, singly = engine.init(1), engine.init(1)
    at_once = advance(engine, blocks, x.reshape(15, 4, 20))[1]
    each = advance(engine, singly, x, np.tile([1.0, 0.0, 0.0, 0.0], 15))[1]
    scores = engine.read(each).log_likelihood.reshape(15, 4)
    np.testing.assert_allclose(engine.read(at_once).log_likelihood[1:], scores.sum(axis=1)[1:])
    np.testing.assert_allclose(covariance(engine, at_once[-1]), covariance(engine, each[-1]))


def test_coasting_is_the_forecast_and_time_adds_up():
    x, _ = factor_rows(20, 80)
    engine, rows, _ = run(x)
    gap = np.full((1, 20), np.nan)
    later = rows.copy()
    advance(engine, later, gap, 7.0)
    ahead, coasted = engine.ahead(rows, 7.0)[1], engine.records_of(later)
    np.testing.assert_array_equal(covariance(engine, ahead), covariance(engine, coasted))
    twice = rows.copy()
    advance(engine, twice, np.repeat(gap, 2, axis=0), [3.0, 4.0])
    np.testing.assert_allclose(
        covariance(engine, engine.records_of(twice)), covariance(engine, ahead), rtol=1e-12
    )


def test_log_likelihood_is_the_density_of_the_forecast():
    x, dt = rough(20, 90)
    engine = LowRank(20)
    rows = engine.init(1)
    for row, step in zip(x, dt, strict=True):
        record = engine.ahead(rows, step)[1]
        seen = rows[0, COUNT] > 0.0
        found = engine.read(advance(engine, rows, row[None], step)[1]).log_likelihood[0]
        if seen and not math.isnan(found):
            parts = engine.read(record)
            scale = np.exp(parts.kappa)[:, None, None] * covariance(engine, record)
            dense = Density(scale[0], *components(parts.tails[0], parts.size_std[0]))
            assert found == pytest.approx(float(dense.log_density(row)), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.floats(-60.0, 60.0), st.randoms(use_true_random=False))
def test_scale_and_order_of_channels_do_not_matter(exponent, random):
    x, _ = factor_rows(12, 60)
    factor = 2.0**exponent
    order = list(range(12))
    random.shuffle(order)
    engine, _, records = run(x)
    _, _, other = run(factor * x[:, order])
    expected = factor**2 * covariance(engine, records[-1])[np.ix_(order, order)]
    np.testing.assert_allclose(covariance(engine, other[-1]), expected, rtol=1e-6)
    moved = engine.read(other).log_likelihood + 12 * math.log(factor)
    np.testing.assert_allclose(moved[1:], engine.read(records).log_likelihood[1:], atol=1e-6)


def test_units_that_differ_by_a_million_cost_next_to_nothing():
    x, _ = factor_rows(80, 400)
    units = 10.0 ** np.random.default_rng(0).integers(-6, 7, size=80)
    cost = log_likelihood(x) - log_likelihood(units * x) - np.log(units).sum()
    assert abs(cost[100:].mean()) < 0.5


def test_zero_rows_before_the_start_change_nothing():
    x, _ = factor_rows(30, 60)
    late = log_likelihood(np.vstack([np.zeros((25, 30)), x]))
    assert np.isnan(late[:26]).all()
    np.testing.assert_array_equal(late[25:], log_likelihood(x))


@pytest.mark.parametrize("at", [0, 3, 300])
def test_one_row_times_1e8_is_forgotten(at):
    x, _ = factor_rows(60, 500)
    wild = x.copy()
    wild[at] *= 1e8
    engine, _, records = run(wild)
    usual = trace(engine, run(x)[2])
    assert 0.5 < (trace(engine, records) / usual)[at + 120] < 2.0
    scores, expected = engine.read(records).log_likelihood, log_likelihood(x)
    assert np.abs((scores - expected)[at + 120 :]).mean() < 2.0


@pytest.mark.parametrize(("n", "after"), [(20, 5), (5000, 200)])
def test_stuck_rows_neither_kill_nor_cost_for_long(n, after):
    x, _ = factor_rows(60, 800)
    stuck = np.vstack([x[:300], np.zeros((n, 60)), x[300:]])
    found = log_likelihood(stuck)
    assert np.isfinite(found[1:]).all()
    assert (log_likelihood(x)[300:] - found[300 + n :])[after:].mean() < 5.0


def test_a_late_channel_and_missing_cells_are_learnt():
    x, _ = factor_rows(60, 700)
    late = x.copy()
    late[:200, :20] = np.nan
    assert abs((log_likelihood(x) - log_likelihood(late))[500:].mean()) < 2.0
    hidden = np.random.default_rng(0).random(x.shape) < 0.3
    found = log_likelihood(np.where(hidden, np.nan, x)) / (~hidden).sum(axis=1)
    assert found[300:].mean() == pytest.approx((log_likelihood(x) / 60)[300:].mean(), abs=0.05)


def test_after_a_long_gap_more_is_known_than_at_the_start():
    x, _ = factor_rows(60, 400)
    dt = np.ones(400)
    dt[300] = 1e6
    assert log_likelihood(x, dt)[301:].mean() > log_likelihood(x[300:])[1:].mean() + 1.0


def test_factors_are_found_from_few_rows():
    d, n = 100, 60
    x, loadings = factor_rows(d, n + 40)
    truth = loadings @ loadings.T + np.eye(d)
    log_det = np.linalg.slogdet(truth)[1]
    best = -0.5 * (np.einsum("ti,ij,tj->t", x, np.linalg.inv(truth), x) + log_det)
    best -= 0.5 * d * math.log(2.0 * math.pi)
    assert (best - log_likelihood(x))[n:].mean() < 0.05 * d
    gap = np.linalg.eigh(x[:n].T @ x[:n] / n)[0]
    assert gap[0] < 1e-9  # the sample covariance has no density at all here


def test_axes_stay_orthonormal():
    x, _ = factor_rows(40, 3000)
    engine, rows, _ = run(x)
    for part in track(rows[0], engine.plan).parts:
        eye = np.eye(len(part.axes))
        np.testing.assert_allclose(part.axes @ part.axes.T, eye, atol=1e-12)


def turning_rows(d, n, speed, strength=20.0):
    """One axis that turns steadily in one plane."""
    g = np.random.default_rng(0)
    plane = np.linalg.qr(g.normal(size=(d, 2)))[0]
    angle = speed * np.arange(n)
    axes = np.cos(angle)[:, None] * plane[:, 0] + np.sin(angle)[:, None] * plane[:, 1]
    return strength * g.normal(size=(n, 1)) * axes + g.normal(size=(n, d)), axes


def test_velocity_leads_where_a_direction_lasts():
    x, axes = turning_rows(20, 400, 0.05)
    still = Factors(1, 0.03, 400.0, 100.0, 0.1)
    found = {}
    for law in (still, still._replace(acceleration=0.003)):
        engine, rows, records = run(x, 1.0, LowRank(20, members=[law]))
        found[law.acceleration] = engine.read(records).log_likelihood[100:].mean()
    assert found[0.003] > found[0.0] + 0.5
    part = track(rows[0], engine.plan).parts[0]
    axis, velocity = part.states
    assert abs(axis @ velocity) < 1e-9
    assert math.sqrt(velocity @ velocity) == pytest.approx(0.05, rel=0.3)
    # Without observations the axis goes on: eight rows later it is nearer to where the truth is.
    metric = np.sqrt(part.metric)
    later = track(engine.ahead(rows, 8.0)[0][0], engine.plan).parts[0].states[0]
    way = (math.cos(0.05) * axes[-1] - axes[-2]) / math.sin(0.05)
    next_axis = math.cos(0.4) * axes[-1] + math.sin(0.4) * way
    near = [abs((metric * u / np.linalg.norm(metric * u)) @ next_axis) for u in (axis, later)]
    assert near[1] > near[0]


def test_with_velocity_chunks_and_gaps_change_nothing():
    x, dt = rough(20, 90)
    engine = LowRank(20, 3, rotating_axes=True)
    _, rows, records = run(x, dt, engine)
    other = engine.init(1)
    parts = [advance(engine, other, x[a:b], dt[a:b])[1] for a, b in pairwise([0, 9, 40, 41, 90])]
    np.testing.assert_array_equal(np.concatenate(parts), records)
    gap = np.full((1, 20), np.nan)
    once, twice = rows.copy(), rows.copy()
    advance(engine, once, gap, 7.0)
    advance(engine, twice, np.repeat(gap, 2, axis=0), [3.0, 4.0])
    np.testing.assert_allclose(
        covariance(engine, engine.records_of(twice)),
        covariance(engine, engine.records_of(once)),
        rtol=1e-9,
    )
    engine.check(twice)


def test_fewer_distinct_rows_than_axes():
    x = np.repeat(np.random.default_rng(0).normal(size=(2, 30)), 100, axis=0)
    engine, rows, _ = run(x)
    parts = track(rows[0], engine.plan).parts
    assert all(np.isfinite(part.axes).all() for part in parts)


def test_rows_of_zeros_are_observations_like_others():
    """Finding 140: an IndexError as soon as most of the first rows were zero."""
    g = np.random.default_rng(0)
    x = np.concatenate([g.normal(size=(3, 64)), np.zeros((10, 64)), g.normal(size=(50, 64))])
    _, _, records = run(x)
    assert np.isfinite(records[1:]).all()
    for zeros in (slice(3, None), slice(1, None), slice(0, 40)):
        x = g.normal(size=(60, 12))
        x[zeros] = 0.0
        run(x)


@pytest.mark.parametrize("dt", [1e15, 1e19, 1e300])
@pytest.mark.parametrize("velocity", [False, True])
def test_gaps_of_any_length_leave_numbers(dt, velocity):
    """Finding 145: NaN for good."""
    x, _ = factor_rows(20, 80)
    steps = np.ones(80)
    steps[40] = dt
    engine, _, records = run(x, steps, LowRank(20, 3, rotating_axes=velocity))
    assert np.isfinite(records[1:]).all()
    long = np.ones(80)
    long[40] = 1e12
    expected = run(x, long, LowRank(20, 3, rotating_axes=velocity))[2]
    found, truth = (covariance(engine, these[-1]) for these in (records, expected))
    np.testing.assert_allclose(found, truth, rtol=1e-9)


@pytest.mark.parametrize("sizes", [(1e-70, 1e74), (1e74, 1e-70), (1e-74, 1e-74), (9e74, 9e74)])
@pytest.mark.parametrize("velocity", [False, True])
def test_values_from_the_smallest_to_the_largest_leave_numbers(sizes, velocity):
    x, _ = factor_rows(12, 120)
    x = x / np.abs(x).max()
    x[:60] *= sizes[0]
    x[60:] *= sizes[1]
    x[90] *= sizes[0] / sizes[1]
    engine, rows, records = run(x, 1.0, LowRank(12, 3, rotating_axes=velocity))
    assert np.isfinite(records[1:]).all()
    at_once = advance(engine, rows.copy(), np.repeat(0.0 * x[:1], 3000, axis=0), 0.0)[1]
    assert np.isfinite(at_once).all()


def test_values_too_large_to_square_are_invalid_and_change_nothing():
    x, _ = factor_rows(10, 20)
    engine, rows, _ = run(x)
    before = rows.copy()
    status, _ = advance(engine, rows, np.full((1, 10), 1e200))
    assert status[0] == INVALID
    np.testing.assert_array_equal(rows, before)


def test_matrices_are_refused_with_the_remedy():
    engine = LowRank(3)
    line = np.zeros(1, dtype=np.int64), np.eye(3)[None], np.ones(1), np.ones(1)
    with pytest.raises(ValueError, match="rank=None"):
        engine.advance(engine.init(1), Lines(*line))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_changed_rows_are_refused_or_usable(data):
    x, _ = factor_rows(6, 40)
    engine, rows, _ = run(x)
    place = data.draw(st.integers(0, engine.size - 1))
    rows[0, place] = data.draw(
        st.sampled_from([np.nan, np.inf, -1.0, 0.0, 1e9, 0.5, float(rows[0, place]) * 2.0])
    )
    try:
        engine.check(rows)
    except ValueError:
        return
    found = engine.read(advance(engine, rows, x)[1]).log_likelihood
    assert np.isfinite(found).all()


def test_a_row_that_counts_beyond_its_buffer_is_refused():
    engine, rows, _ = run(factor_rows(6, 40)[0])
    for wrong in (engine.plan.rows + 1.0, 3.5):
        rows[0, BUFFERED] = wrong
        with pytest.raises(ValueError, match="first rows"):
            engine.check(rows)


def test_small_algebra():
    g = np.random.default_rng(0)
    root, x = np.tril(g.normal(size=(4, 4))), g.normal(size=(4, 9))
    gram, b = x @ x.T, g.normal(size=4)
    inverse, scores = readable.weigh_factors(root, gram, b)
    truth = np.linalg.inv(np.linalg.inv(root @ root.T) + gram)
    np.testing.assert_allclose(inverse, truth)
    np.testing.assert_allclose(scores, truth @ b)


@given(st.floats(1.5, 100.0), st.floats(0.05, 1.0))
def test_spike_undoes_what_few_rows_do_to_a_factor(variance, ratio):
    seen = (1.0 + variance) * (1.0 + ratio / variance)
    assert float(spike(np.array(seen), ratio)) == pytest.approx(variance, rel=1e-6)


def test_before_its_first_stage_a_member_is_a_diagonal():
    x, _ = factor_rows(40, 10)
    engine, rows, _ = run(x)
    parts = track(rows[0], engine.plan)
    live = [law.stages[0] <= len(x) for law in engine.members]
    assert live == [False, False, False, True, False, False]
    assert np.isfinite(readable.blend(parts, engine.plan, np.ones(6) / 6)[1]).all()


def test_rank_must_fit():
    with pytest.raises(ValueError, match="rank must be between 1 and d = 3"):
        LowRank(3, rank=4)


def test_factors_say_what_the_matrix_says():
    x, dt = rough(20, 90)
    engine, rows, records = run(x, dt)
    last = Estimate(engine.view(records[-1, : engine.small], rows[0]))
    whole = last.covariance
    np.testing.assert_allclose(whole, last.loadings @ last.loadings.T + np.diag(last.noise))
    y = np.random.default_rng(0).normal(size=(3, 20))
    np.testing.assert_allclose(whole @ last.solve(y[0]), y[0])
    dense = Density(last.scale, last.tails, np.array(TAILS))
    y[1, 4:9] = np.nan
    np.testing.assert_allclose(last.log_density(y), dense.log_density(y))
    np.testing.assert_allclose(last.mahalanobis(y), dense.mahalanobis(y))
    assert last.region(0.9) == pytest.approx(float(dense.region(0.9)))
    np.testing.assert_allclose(last.spectrum, np.linalg.eigvalsh(whole)[::-1])
    assert "covariance" not in last.fields()
    assert "loadings (20, " in repr(last)


def test_a_step_of_a_result_is_worked_out_alone():
    x, dt = rough(20, 90)
    engine, _, records = run(x, dt)
    asked = []

    def again(take):
        asked.append(1)
        rows = engine.init(1)
        for t in range(len(x)):
            advance(engine, rows, x[t : t + 1], dt[t : t + 1], record_width=0)
            take(slice(t, t + 1), rows.copy())

    result = Result(engine.view(records[:, : engine.small], again))
    assert not asked
    whole = Result(engine.view(records))
    for frame in (-1, 40, slice(70, 75)):
        part = result[frame]
        np.testing.assert_allclose(part.noise, whole.noise[frame])
        np.testing.assert_allclose(part.covariance, whole.covariance[frame])
    np.testing.assert_allclose(result.loadings[-1], result[-1].loadings)
    assert len(asked) == 4  # once for each part; what is made stays
