"""Laws of the observation model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kgmrf import wishart
from kgmrf.geometry import orbit, so

SEEDS = st.integers(0, 2**32 - 1)


def spd_matrix(d, rng):
    X = rng.standard_normal((d, d))
    return X @ X.T + 0.2 * np.eye(d)


# -- sampler --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_samples", [1, 2, 3, 7])
def test_moments_of_the_sampler(n_samples):
    """E C = S and cov(C_ij, C_kl) = (S_ik S_jl + S_il S_jk) / m, also for m < d = 3."""
    rng = np.random.default_rng(n_samples)
    M, floor, count = spd_matrix(3, rng), 0.3, 40_000
    S = M + floor * np.eye(3)
    C = wishart.sample(np.broadcast_to(M, (count, 3, 3)), n_samples, rng, noise_floor=floor)
    entries = list(itertools.combinations_with_replacement(range(3), 2))
    X = np.stack([C[:, i, j] for i, j in entries], axis=-1)
    mean = np.array([S[i, j] for i, j in entries])
    covariance = np.array(
        [
            [(S[i, k] * S[j, n] + S[i, n] * S[j, k]) / n_samples for k, n in entries]
            for i, j in entries
        ]
    )
    z = (X.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / count)
    assert np.abs(z).max() < 4.5
    products = (X - mean)[:, :, None] * (X - mean)[:, None, :]
    z = (products.mean(axis=0) - covariance) / (products.std(axis=0) / np.sqrt(count))
    assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("n_samples", [2, 5, 12])
def test_quadratic_forms_are_chi_square(n_samples):
    """m a^T C a / a^T S a ~ chi^2_m, the whole distribution."""
    rng = np.random.default_rng(n_samples)
    S, a = spd_matrix(4, rng), rng.standard_normal(4)
    C = wishart.sample(np.broadcast_to(S, (5000, 4, 4)), n_samples, rng)
    form = n_samples * np.einsum("i,nij,j->n", a, C, a) / (a @ S @ a)
    assert stats.kstest(form, stats.chi2(n_samples).cdf).pvalue > 1e-3


def test_rank_is_the_number_of_samples_up_to_the_dimension():
    for m in (1, 2, 4, 5, 9):
        C = wishart.sample(np.eye(5), m, np.random.default_rng(m))
        assert np.linalg.matrix_rank(C) == min(m, 5)
        assert np.linalg.eigvalsh(C).min() > -1e-14


def test_counts_may_differ_in_a_batch_and_broadcast():
    rng = np.random.default_rng(0)
    C = wishart.sample(np.eye(4), np.array([1, 3, 10**6]), rng)
    assert C.shape == (3, 4, 4)
    assert [np.linalg.matrix_rank(c) for c in C] == [1, 3, 4]
    np.testing.assert_allclose(C[2], np.eye(4), atol=0.01)
    assert wishart.sample(
        np.broadcast_to(np.eye(2), (2, 1, 2, 2)), np.array([1, 2, 3]), rng
    ).shape == (
        2,
        3,
        2,
        2,
    )


def test_cost_does_not_grow_with_the_number_of_samples():
    C = wishart.sample(np.eye(3), 10**12, np.random.default_rng(0))
    np.testing.assert_allclose(C, np.eye(3), atol=1e-5)


def test_a_singular_covariance_has_samples():
    x = np.array([1.0, -2.0, 0.5])
    C = wishart.sample(np.outer(x, x), 5, np.random.default_rng(0))
    np.testing.assert_allclose(C / C[0, 0], np.outer(x, x) / x[0] ** 2, atol=1e-7)


def test_the_seed_decides_and_the_array_type_is_kept(xp):
    M = xp.asarray(np.diag([2.0, 1.0]), dtype=xp.float32)
    A, B = wishart.sample(M, 5, 3), wishart.sample(M, 5, np.random.default_rng(3))
    assert A.dtype == xp.float32
    assert bool(xp.all(A == B))
    assert not bool(xp.all(wishart.sample(M, 5, 4) == A))


@pytest.mark.parametrize("bad", [0, -1, 2.5, np.array([3, 0])])
def test_bad_counts_are_refused(bad):
    with pytest.raises(ValueError, match="whole numbers of at least 1"):
        wishart.sample(np.eye(2), bad, 0)


# -- samples and likelihood -----------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 7])
def test_predictive_likelihood_is_that_of_the_samples(xp, m):
    rng = np.random.default_rng(m)
    S, X = spd_matrix(3, rng), rng.standard_normal((m, 3))
    C = X.T @ X / m
    expected = stats.multivariate_normal(np.zeros(3), S).logpdf(X).sum()
    measured = wishart.predictive_log_likelihood(xp.asarray(S), xp.asarray(C), m)
    np.testing.assert_allclose(float(measured), expected, rtol=1e-12)


@given(seed=SEEDS)
def test_likelihoods_differ_by_a_constant_of_the_wishart_density(xp, seed):
    """V = -log p(C | M) + terms without M."""
    rng = np.random.default_rng(seed)
    A, B, m, floor = spd_matrix(3, rng), spd_matrix(3, rng), 6, 0.2
    C = wishart.sample(A, m, rng, floor)

    def V(M):
        args = (xp.asarray(M), xp.asarray(C))
        return float(wishart.negative_log_likelihood(*args, m, floor))

    def log_density(M):
        return stats.wishart(m, (M + floor * np.eye(3)) / m).logpdf(C)

    np.testing.assert_allclose(V(A) - V(B), log_density(B) - log_density(A), rtol=1e-8, atol=1e-8)


def test_likelihoods_take_batches_of_everything(xp):
    rng = np.random.default_rng(0)
    M = np.stack([spd_matrix(3, rng) for _ in range(4)])
    C = wishart.sample(M, 5, rng)
    m, floor = np.array([1.0, 2.0, 5.0, 9.0]), np.array([0.0, 0.1, 0.2, 1.0])
    M_, C_, m_, floor_ = (xp.asarray(X) for X in (M, C, m, floor))
    V = np.asarray(wishart.negative_log_likelihood(M_, C_, m_, floor_))
    P = np.asarray(wishart.predictive_log_likelihood(M_, C_, m_))
    one = np.asarray(wishart.predictive_log_likelihood(M_, C_[0], 2))
    F = np.asarray(wishart.fisher_information(M_[:, 0, :] ** 2, m_, floor_ + 0.1))
    for k in range(4):
        item = wishart.negative_log_likelihood(M[k], C[k], m[k], floor[k])
        np.testing.assert_allclose(V[k], item, rtol=1e-12)
        np.testing.assert_allclose(P[k], wishart.predictive_log_likelihood(M[k], C[k], m[k]))
        np.testing.assert_allclose(one[k], wishart.predictive_log_likelihood(M[k], C[0], 2))
        item = wishart.fisher_information(M[k, 0] ** 2, m[k], floor[k] + 0.1)
        np.testing.assert_allclose(F[k], item, rtol=1e-12)


def test_derivatives_of_the_likelihoods(torch):
    rng = np.random.default_rng(0)
    M = torch.tensor(spd_matrix(3, rng), requires_grad=True)
    C = torch.tensor(wishart.sample(np.eye(3), 2, rng), requires_grad=True)

    def symmetric(X):
        return (X + X.T) / 2

    def V(M, C):
        return wishart.negative_log_likelihood(symmetric(M), C, 2, 0.1)

    def P(M, C):
        return wishart.predictive_log_likelihood(symmetric(M), C, 2)

    assert torch.autograd.gradcheck(V, (M, C))
    assert torch.autograd.gradcheck(P, (M, C))


# -- information ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_floor", [0.0, 0.5])
def test_fisher_information_is_the_curvature_of_the_expected_likelihood(noise_floor):
    """E V is V at C = S: its second derivative in the angle of each plane is F_ij."""
    rng = np.random.default_rng(0)
    lam, m, h, d = np.array([5.0, 3.0, 1.5, 0.6]), 8, 5e-3, 4
    frame = so.project(rng.standard_normal((d, d)))
    S = orbit.compose(frame, lam + noise_floor)
    F = wishart.fisher_information(lam, m, noise_floor)
    for i, j in itertools.combinations(range(d), 2):
        E = np.zeros((d, d))
        E[j, i], E[i, j] = 1.0, -1.0

        def V(t, E=E):
            M = orbit.compose(frame @ so.exp(t * E), lam)
            return wishart.negative_log_likelihood(M, S, m, noise_floor)

        second = (-V(2 * h) + 16 * V(h) - 30 * V(0) + 16 * V(-h) - V(-2 * h)) / (12 * h * h)
        np.testing.assert_allclose(second, F[i, j], rtol=1e-5)
        assert F[i, j] == F[j, i]


def test_fisher_information_is_the_variance_of_the_score():
    """var(m w_ij G_ij^2 / (d_i d_j)) = F_ij over draws at the truth."""
    rng = np.random.default_rng(1)
    lam, m, floor, count = np.array([4.0, 2.0, 0.5]), 8, 0.1, 40_000
    C = wishart.sample(np.broadcast_to(np.diag(lam), (count, 3, 3)), m, rng, floor)
    F = wishart.fisher_information(lam, m, floor)
    w = orbit.innovation(np.eye(3), lam, C, ridge=0.0)
    for i, j in itertools.combinations(range(3), 2):
        square = (w[:, i, j] * F[i, j]) ** 2
        z = (square.mean() - F[i, j]) / (square.std() / np.sqrt(count))
        assert abs(z) < 4.5


def test_cramer_rao_is_the_spread_of_the_innovation_and_infinite_without_a_gap(xp):
    spectrum = xp.asarray(np.array([3.0, 1.0, 1.0]))
    bound = np.asarray(wishart.cramer_rao(spectrum, 8, 0.2))
    information = np.asarray(wishart.fisher_information(spectrum, 8, 0.2))
    assert np.isinf(bound[1, 2])
    assert np.isinf(np.diag(bound)).all()
    np.testing.assert_allclose(bound[0, 1:] ** -2, information[0, 1:], rtol=1e-14)


# -- partly missing samples -----------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 4, 6])
@given(seed=SEEDS)
def test_expected_outer_is_the_conditional_second_moment(xp, d, seed):
    """Against the conditional Gaussian in terms of the precision matrix, J = S^{-1}."""
    rng = np.random.default_rng(seed)
    S, x = spd_matrix(d, rng), rng.standard_normal(d)
    u = rng.random(d) < 0.5
    o = ~u
    mean, covariance = x.copy(), np.zeros((d, d))
    if u.any():
        J = np.linalg.inv(S)
        J_uu = np.linalg.inv(J[np.ix_(u, u)])
        mean[u] = -J_uu @ J[np.ix_(u, o)] @ x[o]
        covariance[np.ix_(u, u)] = J_uu
    measured = wishart.expected_outer(xp.asarray(np.where(u, np.nan, x)), xp.asarray(S))
    scale = np.linalg.cond(S) * (1 + np.abs(mean).max() ** 2)
    np.testing.assert_allclose(
        np.asarray(measured), np.outer(mean, mean) + covariance, atol=1e-13 * scale
    )


def test_expected_outer_at_the_two_ends_and_in_batches(xp):
    rng = np.random.default_rng(0)
    S, x = spd_matrix(3, rng), rng.standard_normal((4, 3))
    x[1, 0] = x[2, 1:] = np.nan
    x[3] = np.nan
    whole = np.asarray(wishart.expected_outer(xp.asarray(x), xp.asarray(S)))
    np.testing.assert_allclose(whole[0], np.outer(x[0], x[0]), atol=1e-15)
    np.testing.assert_allclose(whole[3], S, atol=1e-15)
    for k in range(4):
        np.testing.assert_allclose(whole[k], wishart.expected_outer(x[k], S), atol=1e-14)


def test_expected_outer_averages_to_the_covariance():
    """E over the observed part of E[x x^T | observed] = S, exactly: put S_oo for x_o x_o^T."""
    S = spd_matrix(4, np.random.default_rng(0))
    nan = np.nan
    # x_o = +-sqrt(2) times a column of the Cholesky factor of S_oo, each with weight 1/4
    L = np.linalg.cholesky(S[:2, :2])
    total = np.zeros((4, 4))
    for column, sign in itertools.product(range(2), (1.0, -1.0)):
        a, b = sign * np.sqrt(2) * L[:, column]
        total += wishart.expected_outer(np.array([a, b, nan, nan]), S) / 4
    np.testing.assert_allclose(total, S, atol=1e-13)
