"""The Gauss-Markov random field is the smoother, block by block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from kgmrf import RotationTracker, gains
from kgmrf.geometry import so
from kgmrf.smoothing import gmrf


def some_chain(seed=0, n=60, planes=(), acceleration=1e-4, gaps=0.3, retention=1.0, dt=1.0):
    rng = np.random.default_rng(seed)
    law = gains.information(acceleration, retention=retention)
    r = np.where(rng.random((n, *planes)) < gaps, np.inf, rng.uniform(0.01, 0.05, (n, *planes)))
    r[0] = 0.02
    y = np.where(np.isinf(r), np.nan, np.cumsum(0.05 * rng.standard_normal(r.shape), axis=0))
    return gmrf.chain(law, r, dt=dt), y


def kalman(model, y):
    """The textbook filter and smoother, forwards and backwards, for one plane."""
    n = len(y)
    mean, cov = np.zeros(2), model.prior
    filtered, predicted, evidence = [], [], 0.0
    for t in range(n):
        if t:
            f = model.transition[t - 1]
            mean, cov = f @ mean, f @ cov @ f.T + model.noise[t - 1]
        predicted.append((mean, cov))
        if not np.isnan(y[t]):
            s = cov[0, 0] + model.variance[t]
            gain = cov[:, 0] / s
            miss = y[t] - mean[0]
            evidence += -0.5 * (np.log(2 * np.pi * s) + miss**2 / s)
            mean, cov = mean + gain * miss, cov - np.outer(gain, cov[0])
        filtered.append((mean, cov))
    smoothed = [filtered[-1]]
    for t in range(n - 2, -1, -1):
        gain = filtered[t][1] @ model.transition[t].T @ np.linalg.inv(predicted[t + 1][1])
        mean = filtered[t][0] + gain @ (smoothed[0][0] - predicted[t + 1][0])
        cov = filtered[t][1] + gain @ (smoothed[0][1] - predicted[t + 1][1]) @ gain.T
        smoothed.insert(0, (mean, cov))
    return filtered, smoothed, evidence


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.floats(1e-7, 1e-1),
    st.floats(0.5, 1.0),
    st.floats(0.2, 3.0),
)
def test_the_field_is_the_smoother(seed, n, acceleration, retention, dt):
    model, y = some_chain(seed, n, acceleration=acceleration, retention=retention, dt=dt)
    _, smoothed, evidence = kalman(model, y)
    x, cov = gmrf.solve(model, y), gmrf.marginals(model)
    assert np.allclose(x, [s[0] for s in smoothed], rtol=1e-7, atol=1e-8)
    assert np.allclose(cov, [s[1] for s in smoothed], rtol=1e-6, atol=1e-8)
    assert gmrf.log_evidence(model, y) == pytest.approx(evidence, rel=1e-7, abs=1e-7)


def test_it_is_the_smoother_of_the_package():
    rng = np.random.default_rng(1)
    n, noise = 80, 0.05
    law = gains.information(1e-5)
    angle = 0.03 * np.arange(n) + noise * rng.standard_normal(n)
    angle[30:40] = np.nan
    seen = so.exp(so.hat(np.where(np.isnan(angle), 0.0, angle)[:, None]))
    seen[np.isnan(angle)] = np.nan
    found = RotationTracker(2, gains=law, noise_std=noise).smooth(seen)
    variance = np.where(np.isnan(angle), np.inf, noise**2)
    # The tracker begins at the first observation, with that observation's uncertainty.
    start = so.vee(so.log(found.rotation))[:, 0]
    model = gmrf.chain(law, variance)
    first = np.diag([noise**2, law.rate_prior])
    model = model._replace(prior=first, variance=np.concatenate([[np.inf], variance[1:]]))
    y = np.concatenate([[np.nan], angle[1:]])
    x = gmrf.solve(model, y, start=np.array([angle[0], 0.0]))
    assert np.allclose(x[:, 0], np.unwrap(start), atol=1e-8)
    assert np.allclose(x[:, 1], found.velocity[:, 1, 0], atol=1e-8)
    std = np.sqrt(gmrf.marginals(model)[:, 0, 0])
    assert np.allclose(std, found.angle_std[:, 0, 1], rtol=1e-7)


def test_prefixes_are_the_filter():
    model, y = some_chain(2, 12)
    filtered, _, _ = kalman(model, y)
    for n in (1, 5, 12):
        part = model._replace(
            transition=model.transition[: n - 1],
            noise=model.noise[: n - 1],
            variance=model.variance[:n],
        )
        assert np.allclose(gmrf.solve(part, y[:n])[-1], filtered[n - 1][0], atol=1e-10)
        assert np.allclose(gmrf.marginals(part)[-1], filtered[n - 1][1], atol=1e-12)


def test_many_planes_equal_one_by_one():
    model, y = some_chain(3, 30, planes=(2, 3))
    x, cov, evidence = gmrf.solve(model, y), gmrf.marginals(model), gmrf.log_evidence(model, y)
    for k in np.ndindex(2, 3):
        one = gmrf.Chain(
            model.transition[(slice(None), *k)], model.noise[(slice(None), *k)],
            model.variance[(slice(None), *k)], model.prior[k],
        )  # fmt: skip
        assert np.allclose(gmrf.solve(one, y[(slice(None), *k)]), x[(slice(None), *k)])
        assert np.allclose(gmrf.marginals(one), cov[(slice(None), *k)])
        assert gmrf.log_evidence(one, y[(slice(None), *k)]) == pytest.approx(evidence[k])


def test_the_precision_is_block_tridiagonal_and_inverts_to_the_marginals():
    model, y = some_chain(4, 15)
    J = gmrf.precision(model).dense()
    i, j = np.indices(J.shape)
    assert (J[np.abs(i // 2 - j // 2) > 1] == 0).all()
    assert (np.abs(i - j)[J != 0] <= 3).all()  # a band of width 3
    inverse = np.linalg.inv(J)
    blocks = [inverse[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] for t in range(15)]
    assert np.allclose(gmrf.marginals(model), blocks)
    prior = np.linalg.inv(gmrf.precision(model, observed=False).dense())[::2, ::2]
    there = ~np.isnan(y)
    s = prior[np.ix_(there, there)] + np.diag(model.variance[there])
    _, log_det = np.linalg.slogdet(2 * np.pi * s)
    direct = -0.5 * (log_det + y[there] @ np.linalg.solve(s, y[there]))
    assert gmrf.log_evidence(model, y) == pytest.approx(direct, rel=1e-9)


def nullity(quadratic):
    values = np.linalg.eigvalsh(quadratic)
    return int((values < 1e-9 * values[-1]).sum())


def test_only_the_corrected_prior_is_free_for_constant_velocity():
    """Erratum 14: |xi_t - w_t|^2 is free for one path, |xi_{t+1} - xi_t - w_t|^2 for all lines."""
    law = gains.information(1.0)
    free = gmrf.chain(law, np.full(10, np.inf), proper=False)
    J = gmrf.precision(free, observed=False).dense()
    assert nullity(J) == 2
    line = np.stack([0.3 + 0.7 * np.arange(10), np.full(10, 0.7)], -1).ravel()
    assert abs(line @ J @ line) < 1e-9 * np.abs(J).max()
    rows = []
    for t in range(10):  # the printed prior, term by term
        row = np.zeros(20)
        row[2 * t], row[2 * t + 1] = 1.0, -1.0
        rows.append(row)
        if t < 9:
            row = np.zeros(20)
            row[2 * t + 1], row[2 * t + 3] = 1.0, -1.0
            rows.append(row)
    printed = np.array(rows).T @ np.array(rows)
    assert nullity(printed) == 1
    assert line @ printed @ line > 1.0
    # It is block tridiagonal too; it is only not a prior of constant velocity.
    i, j = np.indices(printed.shape)
    assert (printed[np.abs(i // 2 - j // 2) > 1] == 0).all()


def test_the_middle_of_a_long_run_is_better_known_than_its_end():
    law = gains.information(1e-4)
    cov = gmrf.marginals(gmrf.chain(law, np.full(300, 0.05)))
    over = gains.transition(law, np.asarray(1.0))
    noise = np.array([[over.angle, over.cross], [over.cross, over.rate]])
    steady = linalg.solve_discrete_are(
        np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[1.0], [0.0]]), noise, np.array([[0.05]])
    )[0, 0]
    assert cov[-1, 0, 0] == pytest.approx(steady * 0.05 / (steady + 0.05), rel=1e-6)
    assert cov[150, 0, 0] < 0.5 * cov[-1, 0, 0]


def test_impossible_fields_are_refused():
    law = gains.information(1e-4)
    with pytest.raises(ValueError, match="singular"):
        gmrf.chain(gains.information(0.0), np.ones(3))
    with pytest.raises(ValueError, match="positive"):
        gmrf.chain(law, [-1.0, 1.0])
    with pytest.raises(ValueError, match="improper"):
        gmrf.marginals(gmrf.chain(law, np.full(3, np.inf), proper=False))
    with pytest.raises(ValueError, match="shape"):
        gmrf.solve(gmrf.chain(law, np.ones(3)), np.zeros(4))
    with pytest.raises(ValueError, match="make it inf"):
        gmrf.solve(gmrf.chain(law, np.ones(3)), [0.0, np.nan, 0.0])
    free = gmrf.chain(law, np.ones(3), proper=False)
    with pytest.raises(ValueError, match="no start"):
        gmrf.solve(free, np.zeros(3), start=[0.0, 0.0])
    with pytest.raises(ValueError, match="proper prior"):
        gmrf.log_evidence(free, np.zeros(3))
