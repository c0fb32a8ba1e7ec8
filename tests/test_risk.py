"""The density of a portfolio: against integration, against draws, and against known quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from kgmrf import KGMRF, ObservationError
from kgmrf.model.density import GAUSSIAN, TAILS, Density
from kgmrf.model.factors import FactorDensity, compose

NODES = (-np.sqrt(3.0), 0.0, np.sqrt(3.0))
SHARES = (1 / 6, 2 / 3, 1 / 6)
LEVELS = [0.6, 0.95, 0.99, 0.999]


def _spread(d: int = 4, sigma: float = 0.7, seed: int = 0) -> Density:
    """A mixture over tails and over sizes, as a forecast far ahead is."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    tails = np.outer(SHARES, rng.dirichlet(np.ones(len(TAILS)))).ravel()
    factors = np.repeat(np.exp(np.array(NODES) * sigma), len(TAILS))
    return Density(root @ root.T + 0.1 * np.eye(d), tails, np.tile(TAILS, 3), factors)


WEIGHTS = np.array([[0.25, 0.25, 0.25, 0.25], [1.0, -0.5, 0.0, 0.5], [0.0, 0.0, 2.0, 0.0]])


@pytest.mark.parametrize("level", LEVELS)
def test_integrals_of_the_density(level: float) -> None:
    for weights in WEIGHTS:
        one = _spread().project(weights)
        risk, shortfall = one.value_at_risk(level), one.expected_shortfall(level)
        # in units of the deviation, so that quad finds the mass
        size = float(one.volatility)

        def p(z: float, one: object = one, size: float = size) -> float:
            return float(np.exp(one.log_density(z * size)) * size)

        def tail(f: object, start: float) -> float:
            near = integrate.quad(f, start, start + 20.0, limit=400, epsabs=1e-13)[0]
            return near + integrate.quad(f, start + 20.0, np.inf, limit=400, epsabs=1e-13)[0]

        assert tail(p, risk / size) == pytest.approx(1.0 - level, rel=1e-6)
        mean = size * tail(lambda z: z * p(z), risk / size) / (1.0 - level)
        assert shortfall == pytest.approx(mean, rel=1e-6)
        assert one.cdf(risk) == pytest.approx(level, abs=1e-12)
        second = 2.0 * size**2 * tail(lambda z: z * z * p(z), 0.0)
        assert second == pytest.approx(size**2, rel=1e-5)


@pytest.mark.parametrize("level", [0.95, 0.99])
def test_draws_of_the_joint_density(level: float) -> None:
    density, n = _spread(seed=3), 400_000
    drawn = density.sample(n, rng=1) @ WEIGHTS.T
    one = density.project(WEIGHTS)
    risk, shortfall = one.value_at_risk(level), one.expected_shortfall(level)
    beyond = drawn < -risk
    error = np.sqrt(level * (1.0 - level) / n)
    np.testing.assert_array_less(np.abs(beyond.mean(axis=0) - (1.0 - level)), 4.0 * error)
    for k, of in enumerate(beyond.T):
        losses = -drawn[of, k]
        within = 4.0 * losses.std() / np.sqrt(len(losses))
        assert abs(losses.mean() - shortfall[k]) < within


def test_one_component_is_the_t_of_the_tables() -> None:
    plain = Density(np.diag([4.0, 1.0]), np.ones(1), np.array([5.0])).project([1.0, 0.0])
    for level in LEVELS:
        assert plain.value_at_risk(level) == pytest.approx(2.0 * stats.t.ppf(level, 5), rel=1e-12)
    assert plain.quantile(0.01) == pytest.approx(-plain.quantile(0.99), rel=1e-12)
    assert plain.volatility == pytest.approx(2.0 * np.sqrt(5 / 3))
    normal = Density(np.eye(1), np.ones(1), np.array([GAUSSIAN])).project([3.0])
    z = stats.norm.ppf(0.975)
    assert normal.value_at_risk(0.975) == pytest.approx(3.0 * z, rel=1e-7)
    expected = 3.0 * stats.norm.pdf(z) / 0.025
    assert normal.expected_shortfall(0.975) == pytest.approx(expected, rel=1e-6)


def test_factors_are_as_many_densities() -> None:
    """A component of size f is a density of the scale f S."""
    mixed, rng = _spread(sigma=1.1), np.random.default_rng(2)
    x = 3.0 * rng.normal(size=(50, 4))
    parts = [
        np.log(w) + Density(f * mixed.scale, np.ones(1), np.array([nu])).log_density(x)
        for w, nu, f in zip(mixed.tails, mixed.dofs, mixed.factors, strict=True)
    ]
    expected = np.logaddexp.reduce(parts)
    np.testing.assert_allclose(mixed.log_density(x), expected, rtol=1e-10)
    for level in (0.5, 0.95):
        bound = mixed.region(level)
        assert mixed.cdf(bound) == pytest.approx(level, abs=1e-9)
    inside = mixed.mahalanobis(mixed.sample(200_000, rng=4)) <= mixed.region(0.95)
    assert inside.mean() == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 200_000))


def test_few_factors_give_what_the_whole_matrix_gives() -> None:
    rng = np.random.default_rng(5)
    loadings, noise = rng.normal(size=(6, 2)), rng.uniform(0.5, 2.0, 6)
    tails = rng.dirichlet(np.ones(len(TAILS)))
    thin = FactorDensity(loadings, noise, tails, np.array(TAILS))
    whole = Density(compose(loadings, noise), tails, np.array(TAILS))
    weights = rng.normal(size=(10, 6))
    expected = whole.project(weights).value_at_risk(0.99)
    np.testing.assert_allclose(thin.project(weights).value_at_risk(0.99), expected, rtol=1e-12)
    drawn = thin.sample(100_000, rng=6)
    robust = np.median(np.abs(drawn), axis=0) / np.median(np.abs(whole.sample(100_000, 7)), axis=0)
    np.testing.assert_allclose(robust, 1.0, atol=0.03)


def test_a_result_has_a_portfolio_at_every_time() -> None:
    X = np.random.default_rng(8).standard_t(5, size=(300, 3))
    density = KGMRF().filter(X).density
    one = density.project([0.2, 0.3, 0.5])
    assert one.value_at_risk(0.99).shape == (300,)
    each = np.random.default_rng(9).normal(size=(300, 3))
    moving = density.project(each).expected_shortfall(0.95)
    assert moving.shape == (300,)
    last = KGMRF()
    last.filter(X[:200])
    np.testing.assert_allclose(
        last.estimate().density.project(each[199]).expected_shortfall(0.95), moving[199], rtol=1e-9
    )
    assert density.project(each[:7, None, :]).value_at_risk(0.9).shape == (7, 300)


def test_weights_go_by_name() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(
        np.random.default_rng(1).normal(size=(200, 3)) * [1, 2, 3], columns=list("abc")
    )
    tracker = KGMRF()
    tracker.filter(X)
    density = tracker.forecast(1).density
    expected = density.project([0.5, 0.0, 0.5]).value_at_risk(0.99)
    for weights in ({"c": 0.5, "a": 0.5}, pd.Series({"c": 0.5, "a": 0.5})):
        assert density.project(weights).value_at_risk(0.99) == expected
    table = pd.DataFrame({"c": [0.5, 1.0], "a": [0.5, 0.0]}, index=["half", "all of c"])
    told = density.project(table).table(levels=(0.99,))
    assert list(told.index) == ["half", "all of c"]
    assert told.loc["half", "VaR 99%"] == expected
    with pytest.raises(ObservationError, match="weights name x; the channels are a, b, c"):
        density.project({"x": 1.0})
    with pytest.raises(ObservationError, match="has no names"):
        Density(np.eye(2), np.ones(1), np.array([5.0])).project({"a": 1.0})
    with pytest.raises(ObservationError, match=r"shape \(\.\.\., 3\), got \(2,\)"):
        density.project([0.5, 0.5])
    with pytest.raises(ObservationError, match="not finite"):
        density.project([0.5, np.nan, 0.5])
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        density.project([0.5, 0.0, 0.5]).value_at_risk(99)


def test_an_unknown_channel_has_to_be_left_out() -> None:
    X = np.random.default_rng(1).normal(size=(100, 3))
    X[:, 2] = np.nan
    tracker = KGMRF()
    tracker.filter(X)
    density = tracker.forecast(1).density
    assert np.isfinite(density.project([0.5, 0.5, 0.0]).value_at_risk(0.99))
    assert np.isnan(density.project([0.5, 0.4, 0.1]).value_at_risk(0.99))
