"""Laws of the cone of positive definite matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from kgmrf.geometry import spd

SEEDS = st.integers(0, 2**32 - 1)
DIMENSIONS = [1, 2, 3, 6]


def spd_matrix(d, rng, batch=()):
    X = rng.standard_normal((*batch, d, d))
    return X @ np.swapaxes(X, -1, -2) + 0.2 * np.eye(d)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_functions_agree_with_scipy(xp, d):
    M = spd_matrix(d, np.random.default_rng(d))
    X = xp.asarray(M)
    scale = np.linalg.cond(M)
    np.testing.assert_allclose(np.asarray(spd.log(X)), linalg.logm(M), atol=1e-13 * scale)
    np.testing.assert_allclose(np.asarray(spd.sqrt(X)), linalg.sqrtm(M), atol=1e-13 * scale)
    np.testing.assert_allclose(
        np.asarray(spd.power(X, -0.3)), linalg.fractional_matrix_power(M, -0.3), atol=1e-12 * scale
    )
    S = (M - np.eye(d)) / 2
    np.testing.assert_allclose(np.asarray(spd.exp(xp.asarray(S))), linalg.expm(S), rtol=1e-12)


@pytest.mark.parametrize("d", DIMENSIONS)
@given(seed=SEEDS, p=st.floats(-2, 2), q=st.floats(-2, 2))
def test_powers_multiply_and_log_inverts_exp(xp, d, seed, p, q):
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    M = xp.asarray((Q * rng.uniform(0.5, 3.0, d)) @ Q.T)
    np.testing.assert_allclose(
        np.asarray(spd.power(M, p) @ spd.power(M, q)),
        np.asarray(spd.power(M, p + q)),
        rtol=0,
        atol=1e-12 * 3 ** abs(p + q) * 20,
    )
    np.testing.assert_allclose(np.asarray(spd.exp(spd.log(M))), np.asarray(M), atol=1e-13)
    np.testing.assert_allclose(
        np.asarray(spd.power(M, p)), np.asarray(spd.exp(p * spd.log(M))), atol=1e-12
    )
    root = spd.sqrt(M)
    np.testing.assert_allclose(np.asarray(root @ root), np.asarray(M), atol=1e-13)


def test_sqrt_takes_singular_matrices_and_eigenvalues_below_zero_by_rounding(xp):
    x = np.array([1.0, 2.0, 3.0])
    root = np.asarray(spd.sqrt(xp.asarray(np.outer(x, x))))
    np.testing.assert_allclose(root @ root, np.outer(x, x), atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_type_and_batch_are_kept(xp, dtype):
    rng = np.random.default_rng(0)
    A64, B64 = spd_matrix(3, rng, (4,)), spd_matrix(3, rng, (4,))
    A, B = (xp.asarray(X, dtype=getattr(xp, dtype)) for X in (A64, B64))
    t = xp.asarray(np.array([0.0, 0.3, 0.5, 1.0]), dtype=A.dtype)
    curve, length = spd.geodesic(A, B, t), spd.distance(A, B)
    assert curve.dtype == length.dtype == A.dtype
    tolerance = 1e-3 if dtype == "float32" else 1e-12
    for k in range(4):
        item = spd.geodesic(A64[k], B64[k], float(t[k]))
        np.testing.assert_allclose(np.asarray(curve[k]), item, atol=tolerance)
        item = spd.distance(A64[k], B64[k])
        np.testing.assert_allclose(np.asarray(length[k]), item, atol=tolerance)


@pytest.mark.parametrize("d", DIMENSIONS)
@given(seed=SEEDS)
def test_distances_are_metrics(xp, d, seed):
    rng = np.random.default_rng(seed)
    A, B, C = (xp.asarray(spd_matrix(d, rng)) for _ in range(3))

    def length(X, Y):
        return float(spd.distance(X, Y))

    ab = length(A, B)
    assert ab > 0
    assert abs(ab - length(B, A)) < 1e-10 * max(1.0, ab)
    assert length(A, A) < 1e-10
    assert ab <= length(A, C) + length(C, B) + 1e-10


def test_small_distances_do_not_cancel(xp):
    """Twice the step, twice the distance, down to steps of 1e-9."""
    rng = np.random.default_rng(0)
    A = spd_matrix(3, rng)
    H = rng.standard_normal((3, 3))
    H = H + H.T
    unit = float(spd.distance(xp.asarray(A), xp.asarray(A + 1e-4 * H))) / 1e-4
    step = float(spd.distance(xp.asarray(A), xp.asarray(A + 1e-9 * H))) / 1e-9
    np.testing.assert_allclose(step, unit, rtol=2e-3)


@given(seed=SEEDS)
def test_invariance_under_congruence_and_inversion(xp, seed):
    rng = np.random.default_rng(seed)
    A, B = spd_matrix(3, rng), spd_matrix(3, rng)
    G = np.linalg.qr(rng.standard_normal((3, 3)))[0] @ np.diag(rng.uniform(0.5, 2.0, 3))
    pairs = [(A, B), (G @ A @ G.T, G @ B @ G.T), (np.linalg.inv(A), np.linalg.inv(B))]
    lengths = [float(spd.distance(xp.asarray(X), xp.asarray(Y))) for X, Y in pairs]
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-8)


@given(seed=SEEDS)
def test_invariance_under_rotation(xp, seed):
    rng = np.random.default_rng(seed)
    A, B = spd_matrix(4, rng), spd_matrix(4, rng)
    Q, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    here = spd.distance(xp.asarray(A), xp.asarray(B))
    there = spd.distance(xp.asarray(Q @ A @ Q.T), xp.asarray(Q @ B @ Q.T))
    np.testing.assert_allclose(float(there), float(here), rtol=1e-9)


@pytest.mark.parametrize("d", DIMENSIONS)
@given(seed=SEEDS)
def test_geodesics_join_their_ends_at_constant_speed(xp, d, seed):
    rng = np.random.default_rng(seed)
    A, B = xp.asarray(spd_matrix(d, rng)), xp.asarray(spd_matrix(d, rng))

    def at(t):
        return spd.geodesic(A, B, t)

    np.testing.assert_allclose(np.asarray(at(0.0)), np.asarray(A), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.asarray(at(1.0)), np.asarray(B), rtol=1e-9, atol=1e-9)
    whole = float(spd.distance(A, B))
    for s, t in [(0.0, 0.25), (0.25, 0.7), (0.7, 1.0)]:
        part = float(spd.distance(at(s), at(t)))
        np.testing.assert_allclose(part, (t - s) * whole, rtol=1e-7)


def test_the_distance_agrees_with_its_definition(xp):
    rng = np.random.default_rng(1)
    A, B = spd_matrix(3, rng), spd_matrix(3, rng)
    measured = float(spd.distance(xp.asarray(A), xp.asarray(B)))
    np.testing.assert_allclose(measured, np.linalg.norm(np.log(linalg.eigvalsh(B, A))), rtol=1e-10)


# -- derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spectrum", [(3.0, 1.0, 0.5), (2.0, 2.0, 0.5), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize(
    "function",
    [spd.log, spd.exp, spd.sqrt, lambda M: spd.power(M, -0.7)],
    ids=["log", "exp", "sqrt", "power"],
)
def test_derivatives_at_any_multiplicity(torch, function, spectrum):
    Q, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    M = torch.tensor((Q * spectrum) @ Q.T, requires_grad=True)
    assert torch.autograd.gradcheck(function, M)


def test_derivatives_of_distances_and_geodesics(torch):
    rng = np.random.default_rng(0)
    A, B = (torch.tensor(spd_matrix(3, rng), requires_grad=True) for _ in range(2))
    eye = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda A, B: spd.distance(A, B), (A, B))
    assert torch.autograd.gradcheck(lambda A, B: spd.geodesic(A, B, 0.3), (A, B))
    assert torch.autograd.gradcheck(lambda A: spd.distance(A, B), eye)
    (gradient,) = torch.autograd.grad(spd.distance(eye, eye + 0.0), eye)
    assert torch.isfinite(gradient).all()
