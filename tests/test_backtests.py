"""Tests of value at risk: published values, the whole likelihood, and how often they reject."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from kgmrf import metrics


def _first(n: int, x: int) -> np.ndarray:
    return np.arange(n) < x


@pytest.mark.parametrize(
    ("days", "level", "low", "high"),
    # Numbers of exceedances that pass at 95 % confidence: Kupiec (1995), table 3.
    [(255, 0.99, None, 6), (510, 0.99, 2, 10), (1000, 0.99, 5, 16), (255, 0.95, 7, 20),
     (510, 0.95, 17, 35), (1000, 0.95, 38, 64), (1000, 0.975, 16, 35)],
)  # fmt: skip
def test_kupiec_table(days, level, low, high):
    def passes(x):
        return metrics.kupiec_test(_first(days, x), level).statistic < 3.841

    assert passes(high)
    assert not passes(high + 1)
    if low is not None:
        assert passes(low)
        assert not passes(low - 1)


def _with_transitions(n00, n01, n10, n11):
    """A sequence with these numbers of pairs of neighbouring days, from a quiet one on."""
    assert n01 == n10
    runs = [1] * (n01 - 1) + [1 + n11]
    out = [False]
    for k, length in enumerate(runs):
        out += [True] * length + [False]
        if k == 0:
            out += [False] * n00
    return np.array(out)


@pytest.mark.parametrize(
    ("table", "x", "days", "level", "unconditional", "independence"),
    # Jorion, Value at Risk (3rd edition), section 6.2 and question 6.10, over 252 pairs of days
    [((218, 14, 14, 6), 20, 252, 0.95, 3.91, 9.53), ((244, 2, 2, 4), 6, 252, 0.99, 3.498, 25.837)],
)
def test_examples_of_a_textbook(table, x, days, level, unconditional, independence):
    hits = _with_transitions(*table)
    assert hits.sum() == x
    found = metrics.kupiec_test(_first(days, x), level)
    assert found.statistic == pytest.approx(unconditional, abs=5e-3)
    assert (found.exceeded, found.days) == (x, days)
    clustered = metrics.independence_test(hits, level).statistic
    assert clustered == pytest.approx(independence, abs=5e-3)
    both = metrics.christoffersen_test(hits, level)
    parts = clustered + metrics.kupiec_test(hits, level).statistic
    assert both.statistic == pytest.approx(parts)
    assert both.p_value == pytest.approx(np.exp(-0.5 * parts))  # chi-squared(2)


def test_the_likelihood_of_a_chain():
    """The ratio is that of the largest likelihoods, found by a search."""
    hits = np.random.default_rng(0).random(400) < 0.08
    before, now = hits[:-1], hits[1:]

    def minus(logits):
        rate = 1.0 / (1.0 + np.exp(-np.where(before, *logits[[1, 0]])))
        return -np.log(np.where(now, rate, 1.0 - rate)).sum()

    chain = optimize.minimize(minus, [-2.0, -2.0], tol=1e-12).fun
    plain = optimize.minimize(lambda one: minus(np.repeat(one, 2)), [-2.0], tol=1e-12).fun
    found = metrics.independence_test(hits, 0.95).statistic
    assert found == pytest.approx(2.0 * (plain - chain), abs=1e-6)


def test_size_and_power():
    """Right forecasts are rejected in about 5 % of the cases; wrong and clustered ones are not
    believed."""
    rng = np.random.default_rng(1)
    right = rng.random((400, 1000)) < 0.05
    tests = (metrics.kupiec_test, metrics.independence_test, metrics.christoffersen_test)
    for test in tests:
        rejected = np.mean([test(one, 0.95).p_value < 0.05 for one in right])
        assert 0.02 < rejected < 0.10, test.__name__
    often = rng.random((100, 1000)) < 0.08
    assert np.mean([metrics.kupiec_test(one, 0.95).p_value < 0.05 for one in often]) > 0.9
    calm = np.repeat(rng.random((100, 100)) < 0.05, 10, axis=1)
    assert np.mean([metrics.independence_test(one, 0.95).p_value < 0.01 for one in calm]) > 0.95


def test_no_exceedance_at_all():
    found = metrics.kupiec_test(np.zeros(250, dtype=bool), 0.99)
    assert found.statistic == pytest.approx(-500 * np.log(0.99))
    assert metrics.independence_test(np.zeros(250, dtype=bool), 0.99).statistic == 0.0
    assert metrics.independence_test(np.ones(1, dtype=bool), 0.99).p_value == 1.0


@pytest.mark.parametrize("bad", [np.ones(5), np.array(["True"]), np.zeros((5, 2), bool), [], [0.5]])
def test_what_is_no_sequence_of_truth_values_is_refused(bad):
    with pytest.raises(ValueError, match="exceeded must be truth values"):
        metrics.kupiec_test(bad, 0.99)


def test_level_is_a_share():
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, such as 0\.99, got 99"):
        metrics.christoffersen_test([True, False], 99)
