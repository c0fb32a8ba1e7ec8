"""How improbable an observation is, and which channel says so: laws of the density and fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kgmrf import KGMRF, RotationTracker, TrackerBank, VectorTracker, simulate
from kgmrf.model.density import GAUSSIAN, TAILS, Density
from kgmrf.model.factors import FactorDensity, compose

SEEDS = st.integers(0, 2**32 - 1)


def a_density(rng: np.random.Generator, d: int, sizes: bool) -> Density:
    a = rng.standard_normal((d, d + 2))
    tails, dofs = rng.dirichlet(np.ones(4)), np.array(TAILS)
    if not sizes:
        return Density(a @ a.T, tails, dofs)
    share = np.array([1 / 6, 2 / 3, 1 / 6])
    factors = np.exp(np.repeat([-0.9, 0.0, 0.9], 4))
    return Density(a @ a.T, np.outer(share, tails).ravel(), np.tile(dofs, 3), factors)


def uniform(p: Any) -> float:
    """p-value of the claim that these are uniform."""
    return float(stats.kstest(np.ravel(p), "uniform").pvalue)


@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_p_values_of_draws_from_the_density_are_uniform(d: int, sizes: bool) -> None:
    rng = np.random.default_rng(d)
    density = a_density(rng, d, sizes)
    x = density.sample(20_000, rng)
    if d > 1:
        x[::3, 0] = np.nan
    assert uniform(density.p_value(x)) > 1e-3
    each = density.channel_p_value(x)
    assert (np.isnan(each) == np.isnan(x)).all()
    assert all(uniform(column[~np.isnan(column)]) > 1e-3 for column in each.T)


@given(SEEDS, st.booleans(), st.integers(1, 6))
@settings(deadline=None, max_examples=30)
def test_contributions_sum_and_follow_permutations_and_units(
    seed: int, sizes: bool, d: int
) -> None:
    rng = np.random.default_rng(seed)
    density = a_density(rng, d, sizes)
    x = 3.0 * rng.standard_normal((7, d))
    x[1, : d // 2] = np.nan
    share, channel = density.contribution(x), density.channel_p_value(x)
    np.testing.assert_allclose(np.nansum(share, -1), density.mahalanobis(x), rtol=1e-8)
    np.testing.assert_allclose(np.nansum(density.pair_contribution(x), -1)[0], share[0], rtol=1e-6)
    order, units = rng.permutation(d), np.exp(rng.standard_normal(d))
    scale = (density.scale * units[:, None] * units)[np.ix_(order, order)]
    other = Density(scale, density.tails, density.dofs, density.factors)
    moved = (x * units)[:, order]
    size = density.mahalanobis(x).max()
    np.testing.assert_allclose(other.contribution(moved), share[:, order], atol=1e-9 * size)
    np.testing.assert_allclose(other.channel_p_value(moved), channel[:, order], rtol=1e-6)
    np.testing.assert_allclose(other.p_value(moved), density.p_value(x), rtol=1e-6)


def test_the_shapley_value_is_the_mean_over_all_orders_of_the_channels() -> None:
    from itertools import permutations

    rng = np.random.default_rng(0)
    density, x = a_density(rng, 4, False), rng.standard_normal(4)
    inverse, total, orders = np.linalg.inv(density.scale), np.zeros(4), list(permutations(range(4)))
    for order in orders:
        inside, last = np.zeros(4), 0.0
        for i in order:
            inside[i] = x[i]
            now = inside @ inverse @ inside
            total[i] += (now - last) / len(orders)
            last = now
    np.testing.assert_allclose(density.contribution(x), total)


@given(SEEDS)
@settings(deadline=None, max_examples=10)
def test_factors_tell_what_the_dense_density_tells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loadings, noise = rng.standard_normal((6, 2)), rng.uniform(0.2, 2.0, 6)
    tails, dofs = rng.dirichlet(np.ones(4)), np.array(TAILS)
    x = 2.0 * rng.standard_normal((5, 6))
    x[0, 2] = np.nan
    few = FactorDensity(loadings, noise, tails, dofs)
    full = Density(compose(loadings, noise), tails, dofs)
    for name in ("p_value", "channel_p_value", "contribution"):
        np.testing.assert_allclose(getattr(few, name)(x), getattr(full, name)(x), rtol=1e-7)


def test_the_channel_that_breaks_a_correlation_is_named() -> None:
    scale = np.array([[1.0, 0.95, 0.0], [0.95, 1.0, 0.0], [0.0, 0.0, 1.0]])
    density = Density(scale, np.ones(1), np.array([GAUSSIAN]))
    x = np.array([1.0, -1.0, 1.5])
    assert density.contribution(x).argmin() == 2
    assert density.channel_p_value(x)[:2].max() < 1e-3 < density.channel_p_value(x)[2]
    pairs = density.pair_contribution(x)
    assert (np.unravel_index(np.triu(pairs, 1).argmax(), (3, 3))) == (0, 1)


# ------------------------------------------------------------------------ of trackers


@pytest.mark.parametrize(("d", "hidden"), [(1, 0.0), (3, 0.0), (4, 0.2)])
def test_p_values_are_uniform_from_the_first_scored_row(d: int, hidden: float) -> None:
    """Rows drawn one after the other from the tracker's own forecast, 400 tracks side by side."""
    rng, n, steps = np.random.default_rng(d), 400, 40
    bank = TrackerBank(n, d, time_unit=1.0)
    bank.update(rng.standard_normal((n, d)))
    found = []
    for _ in range(steps):
        ahead = bank.forecast(1)
        x = ahead.density.sample(1, rng)[0]
        x = np.where(rng.random(x.shape) < hidden, np.nan, x)
        bank.update(x)
        p = bank.estimate().p_value
        assert (np.isnan(p) == np.isnan(x).all(axis=1)).all()
        found.append(p)
    first, later = np.concatenate(found[:8]), np.concatenate(found[8:])
    for part in (first, later):
        assert uniform(part[~np.isnan(part)]) > 1e-3


def test_one_definition_for_trackers_banks_files_and_densities() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_t(4, (60, 3)) * [1.0, 5.0, 0.2]
    x[20, 1] = np.nan
    tracker = KGMRF()
    told = []
    for row in x:
        ahead = tracker.forecast(1).density if told else None
        estimate = tracker.update(row)
        told.append(estimate.p_value)
        if ahead is not None and len(told) > 2:
            assert estimate.p_value == pytest.approx(ahead.p_value(row), rel=1e-8)
    result = KGMRF().filter(x)
    np.testing.assert_array_equal(result.p_value, told)
    np.testing.assert_allclose(result.surprise, -np.log10(told))
    assert np.isnan(result.p_value[0])
    small = KGMRF().filter(x, fields="p_value")
    np.testing.assert_array_equal(small.p_value, told)
    lines = TrackerBank(1, 3).feed(np.zeros(60, int), x, dt=np.ones(60), fields=["p_value"])
    np.testing.assert_array_equal(lines["p_value"], told)


def test_p_values_of_matrices_count_all_values() -> None:
    """C of m samples has m d values at the distance m z: Wishart-like, not that of one sample."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3000, 12, 2)) @ np.array([[2.0, 0.0], [0.5, 1.0]])
    matrices = np.einsum("tmi,tmj->tij", x, x) / 12
    p = KGMRF(n_samples=12).filter(matrices).p_value[300:]
    np.testing.assert_allclose(p, KGMRF().filter(x, samples=True).p_value[300:], rtol=1e-6)
    assert 0.03 < (p < 0.05).mean() < 0.07
    assert 0.3 < (p < 0.5).mean() < 0.7


def test_rotations_vectors_and_single_laws_tell_one_too() -> None:
    rng = np.random.default_rng(2)
    scene = simulate.steady_camera(1, 0.1)
    p = RotationTracker().filter(scene.observations).p_value
    p = p[~np.isnan(p)]
    assert ((p[20:] > 0.0) & (p[20:] <= 1.0)).all()
    assert 0.01 < (p[20:] < 0.1).mean() < 0.25
    seen = rng.standard_normal((200, 2))
    seen[::5, 0] = np.nan
    vectors = VectorTracker(noise_std=1.0).filter(seen)
    values = (~np.isnan(seen)).sum(axis=1)[10:]
    np.testing.assert_allclose(vectors.p_value[10:], stats.chi2.sf(vectors.nis[10:], values))
    ellipse = simulate.ellipse(0.0, n_samples=40, rng=1)
    law = KGMRF(gains="information", n_samples=40).filter(ellipse.observations)
    assert 0.0 < law.p_value[-1] <= 1.0
    assert np.isnan(RotationTracker().smooth(scene.observations).p_value).all()
    assert np.isnan(KGMRF(n_samples=40).smooth(ellipse.observations).p_value).all()
