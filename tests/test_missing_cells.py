"""Laws of samples with holes: no hole breaks a tracker, and none makes it see what is not there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kgmrf import KGMRF, EuclideanEMA, KineticGaussian, wishart

TRACKERS = {
    "auto": KGMRF,
    "information": lambda: KGMRF(gains="information"),
    "average": lambda: EuclideanEMA(gain=0.1),
}


@pytest.mark.parametrize("make", TRACKERS.values(), ids=TRACKERS)
@settings(max_examples=12, deadline=None)
@given(st.integers(2, 10), st.integers(0, 10_000), st.sampled_from([0.02, 0.1, 0.4]))
def test_holes_never_blow_up_an_estimate(make, d: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    whole = rng.standard_normal((60, d))
    whole[0] = np.sign(whole[0])  # a first value far below the usual is another story: see limits
    holes = whole.copy()
    holes[1:][rng.random((59, d)) < share] = np.nan
    holes[1, 0] = np.nan  # when there is one row to learn from
    with_holes, without = (make().filter(x).covariance[d:] for x in (holes, whole))
    assert np.isfinite(with_holes).all()
    assert np.abs(with_holes).max() < 6 * np.abs(without).max()


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 8), st.integers(0, 10_000))
@example(3, 6404)
def test_nor_where_the_mean_is_followed_too(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = rng.standard_normal((80, d))
    holes = whole.copy()
    holes[3 * d :][rng.random((80 - 3 * d, d)) < 0.2] = np.nan  # it begins with complete samples
    with_holes, without = (KineticGaussian().filter(x).covariance[3 * d :] for x in (holes, whole))
    assert np.isfinite(with_holes).all()
    assert np.abs(with_holes).max() < 6 * np.abs(without).max()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1.0, 0.1, 0.01]))
def test_a_channel_that_comes_late_leaves_the_others_alone(seed: int, first: float) -> None:
    x = 0.01 * np.random.default_rng(seed).standard_normal((160, 2))
    x[0] *= first
    x[:100, 1] = np.nan
    variance = KGMRF().filter(x).covariance[:, 0, 0]
    alone = KGMRF().filter(x[:, :1]).covariance[:, 0, 0]
    # Sizes are shared by the channels for a moment; up to 4 in 1,500 cases.
    assert (variance[100:120] < 5 * alone[100:120]).all()
    # Before it comes, the unseen channel is absent.
    assert np.isnan(KGMRF().filter(x[:100]).covariance[-1, 1, 1])


@pytest.mark.parametrize("d", [2, 3, 8])
@pytest.mark.parametrize("first", [0.1, 1e-3, 1e-5])
def test_a_first_value_far_too_small_leaves_the_others_alone(d: int, first: float) -> None:
    """All first values are what they happen to be: the others came out millions of times too large.

    The largest variance of each of 300 runs; it is 1 in truth.
    """
    x = np.random.default_rng(d).standard_normal((40, 300, 1, d))
    for value in (1.0, first):
        x[0, :, 0, 0] = value
        found = np.diagonal(KGMRF().filter(x, samples=True).covariance, axis1=-2, axis2=-1)
        largest = np.quantile(found[1:, :, 1:].max(axis=(0, 2)), [0.5, 0.99])
        np.testing.assert_array_less(largest, [15.0, 50.0])
        assert np.quantile(found[20:].max(axis=(0, 2)), 0.99) < 20.0
    # And the small one is made up for at once.
    assert 0.3 < np.median(found[1, :, 0]) < 3.0


def test_copies_of_a_channel_are_no_trouble() -> None:
    x = np.random.default_rng(0).standard_normal((80, 3))
    x[:, 2] = x[:, 0]
    x[40:, 1] = np.nan
    found = KGMRF().filter(x).covariance[-1]
    assert np.isfinite(found).all()
    assert found[2, 2] == pytest.approx(found[0, 0], rel=0.05)


def test_with_many_samples_the_expectation_is_exact() -> None:
    rng = np.random.default_rng(1)
    root = rng.standard_normal((4, 4))
    S = root @ root.T
    x = rng.standard_normal(4)
    x[[1, 3]] = np.nan
    o, u = [0, 2], [1, 3]
    regression = np.linalg.solve(S[np.ix_(o, o)], S[np.ix_(o, u)])
    mean = x.copy()
    mean[u] = x[o] @ regression
    expected = np.outer(mean, mean)
    expected[np.ix_(u, u)] += S[np.ix_(u, u)] - S[np.ix_(u, o)] @ regression
    np.testing.assert_allclose(wishart.expected_outer(x, S), expected, rtol=1e-6)
    np.testing.assert_allclose(wishart.expected_outer(x, S, 1e12), expected, rtol=1e-6)
    # With hardly any it is that of channels without relation.
    little = wishart.expected_outer(x, S, 1e-6)
    np.testing.assert_allclose(little[np.ix_(u, u)], S[np.ix_(u, u)], rtol=1e-3)
    np.testing.assert_allclose(little[np.ix_(o, u)], 0.0, atol=1e-3)
