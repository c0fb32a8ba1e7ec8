"""Laws of the rotation group and its exponential maps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg
from scipy.spatial.transform import Rotation

from kgmrf.geometry import so

DIMENSIONS = [1, 2, 3, 4, 5, 8]
SEEDS = st.integers(0, 2**32 - 1)
# log10 of the rotation size: from 1e-7 off the identity to 2.5 radians
SIZES = st.floats(-7.0, 0.4)


def largest_angle(W):
    return np.abs(np.linalg.eigvals(W)).max(axis=-1)


def skew(d, rng, size=None, batch=()):
    """Random skew matrices; `size` fixes the largest plane angle."""
    W = so.hat(rng.standard_normal((*batch, d * (d - 1) // 2)))
    if size is None or d == 1:
        return W
    return W * (size / largest_angle(W))[..., None, None]


def with_angles(angles, d, rng):
    """W = Q diag(blocks of these plane angles) Q^T."""
    W = np.zeros((d, d))
    for k, angle in enumerate(angles):
        W[2 * k + 1, 2 * k], W[2 * k, 2 * k + 1] = angle, -angle
    Q = so.project(rng.standard_normal((d, d)))
    return Q @ W @ Q.T


def off_orthogonal(R):
    R = np.asarray(R)
    return np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(R.shape[-1])).max()


# -- hat and vee ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hat_is_a_linear_bijection_to_skew_matrices(xp, d, dtype):
    n = d * (d - 1) // 2
    v = xp.asarray(np.random.default_rng(d).standard_normal((2, 3, n)), dtype=getattr(xp, dtype))
    W = so.hat(v)
    assert W.shape == (2, 3, d, d)
    assert W.dtype == v.dtype
    assert bool(xp.all(xp.matrix_transpose(W) == -W))
    assert bool(xp.all(so.vee(W) == v))


def test_hat_conventions():
    assert so.hat(np.array([7.0]))[1, 0] == 7.0
    v, x = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 2.0])
    np.testing.assert_allclose(so.hat(v) @ x, np.cross(v, x))
    W = so.hat(np.arange(1.0, 7.0))  # (0,1) (0,2) (0,3) (1,2) (1,3) (2,3)
    assert [W[1, 0], W[2, 0], W[3, 0], W[2, 1], W[3, 1], W[3, 2]] == [1, 2, 3, 4, 5, 6]


def test_hat_refuses_a_number_of_coordinates_that_fits_no_dimension():
    with pytest.raises(ValueError, match="4 coordinates"):
        so.hat(np.zeros(4))


# -- group axioms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
@given(batch=st.sampled_from([(), (3,), (2, 2)]), seed=SEEDS, size=SIZES)
def test_group_axioms(xp, d, batch, seed, size):
    rng = np.random.default_rng(seed)
    A, B, C = (xp.asarray(skew(d, rng, 10.0**size, batch)) for _ in range(3))
    R, S, T = so.exp(A), so.exp(B), so.exp(C)
    eye = np.eye(d)
    tolerance = 1e-14 * d
    # closure, identity, inverse, associativity
    for X in (R, R @ S):
        assert X.shape == (*batch, d, d)
        assert off_orthogonal(X) < tolerance
        np.testing.assert_allclose(np.linalg.det(np.asarray(X)), 1.0, atol=tolerance)
    np.testing.assert_array_equal(np.asarray(so.exp(0 * A)), np.broadcast_to(eye, (*batch, d, d)))
    np.testing.assert_allclose(np.asarray(R @ so.exp(-A) - xp.asarray(eye)), 0, atol=tolerance)
    np.testing.assert_allclose(
        np.asarray(so.exp(-A)), np.asarray(xp.matrix_transpose(R)), atol=tolerance
    )
    np.testing.assert_allclose(np.asarray((R @ S) @ T), np.asarray(R @ (S @ T)), atol=tolerance)
    # a one-parameter group: e^{(s+t)A} = e^{sA} e^{tA}
    np.testing.assert_allclose(
        np.asarray(so.exp(0.3 * A) @ so.exp(0.7 * A)), np.asarray(R), atol=tolerance
    )


@pytest.mark.parametrize("d", DIMENSIONS)
@given(seed=SEEDS, size=SIZES)
def test_log_is_the_inverse_of_exp(xp, d, seed, size):
    W = skew(d, np.random.default_rng(seed), 10.0**size)
    L = np.asarray(so.log(so.exp(xp.asarray(W))))
    # relative to the size of W, also 1e-7 from the identity, where rounding of R is 1e-16
    np.testing.assert_allclose(L, W, atol=1e-13 * 10.0**size + 1e-22)
    np.testing.assert_array_equal(L, -L.T)


@pytest.mark.parametrize("d", DIMENSIONS[1:])
@given(seed=SEEDS, size=SIZES)
def test_log_of_inverse_and_of_a_conjugate(xp, d, seed, size):
    rng = np.random.default_rng(seed)
    R = so.exp(skew(d, rng, 10.0**size))
    Q = so.project(rng.standard_normal((d, d)))
    L = np.asarray(so.log(xp.asarray(R)))
    np.testing.assert_allclose(np.asarray(so.log(xp.asarray(R.T))), -L, atol=1e-13)
    turned = np.asarray(so.log(xp.asarray(Q @ R @ Q.T)))
    np.testing.assert_allclose(turned, Q @ L @ Q.T, atol=1e-13)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_a_batch_equals_its_items(xp, d):
    rng = np.random.default_rng(d)
    # sizes of every regime side by side, so that a choice made for the batch would show
    sizes = np.array([0.0, 1e-7, 1e-3, 0.3, 2.0, 3.1])
    W = xp.asarray(skew(d, rng, 1.0, (6,)) * sizes[:, None, None])
    R = so.exp(W)
    for function, X in [
        (so.exp, W),
        (so.cayley, W),
        (so.log, R),
        (so.project, R + 0.1),
        (so.polish, R),
    ]:
        whole = np.asarray(function(X))
        for k in range(6):
            np.testing.assert_allclose(whole[k], np.asarray(function(X[k])), atol=1e-14)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_float32_keeps_its_type_and_its_precision(xp, d):
    rng = np.random.default_rng(d)
    W = skew(d, rng, 1.0, (5,)) * np.array([0.0, 1e-4, 0.1, 1.0, 2.5])[:, None, None]
    W32 = xp.asarray(W, dtype=xp.float32)
    R32 = so.exp(W32)
    assert R32.dtype == xp.float32
    assert so.log(R32).dtype == xp.float32
    assert off_orthogonal(R32) < 3e-6
    np.testing.assert_allclose(np.asarray(R32), so.exp(W), atol=2e-6)
    np.testing.assert_allclose(np.asarray(so.log(R32)), W, atol=1e-5)


# -- exp ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("size", [0.0, 1e-7, 1e-2, 0.3, 1.0, 2.0, 5.0, 40.0])
def test_exp_agrees_with_scipy(xp, d, size):
    W = skew(d, np.random.default_rng(d), size)
    R = so.exp(xp.asarray(W))
    np.testing.assert_allclose(np.asarray(R), linalg.expm(W), atol=4e-15 * max(1.0, size) * d**0.5)
    assert off_orthogonal(R) < 4e-15


def test_exp_of_a_huge_argument_stays_orthogonal():
    R = so.exp(skew(6, np.random.default_rng(0), 1e6))
    assert off_orthogonal(R) < 1e-14


def test_exp_agrees_with_rotation_vectors():
    v = np.random.default_rng(0).standard_normal((50, 3)) * 2
    np.testing.assert_allclose(so.exp(so.hat(v)), Rotation.from_rotvec(v).as_matrix(), atol=4e-15)


def test_a_broken_item_leaves_the_others_alone(xp):
    W = np.stack([skew(5, np.random.default_rng(k), 0.5) for k in range(3)])
    W[1] = np.nan
    R = np.asarray(so.exp(xp.asarray(W)))
    assert np.isnan(R[1]).all()
    np.testing.assert_allclose(R[[0, 2]], so.exp(W[[0, 2]]), atol=1e-15)


def test_norm_bound_spares_the_look_at_the_data_and_changes_nothing():
    W = skew(5, np.random.default_rng(0), 0.5)
    np.testing.assert_allclose(so.exp(W, norm_bound=3.0), so.exp(W), atol=2e-15)


def test_exp_of_an_empty_batch():
    assert so.exp(np.zeros((0, 5, 5))).shape == (0, 5, 5)


# -- cayley ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
def test_cayley_turns_each_plane_by_two_atan_half_and_is_orthogonal(xp, d):
    rng = np.random.default_rng(d)
    angles = rng.uniform(0.1, 2.0, d // 2)
    W = with_angles(angles, d, rng)
    R = np.asarray(so.cayley(xp.asarray(W)))
    assert off_orthogonal(R) < 1e-14
    rates = np.sort(np.abs(np.angle(np.linalg.eigvals(R))))[d % 2 :: 2]
    np.testing.assert_allclose(rates, np.sort(2 * np.arctan(angles / 2)), atol=1e-13)


@pytest.mark.parametrize("terms", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_cayley_neumann_is_off_the_cayley_map_by_one_factor(xp, terms, d):
    W = skew(d, np.random.default_rng(d), 0.7)
    factor = np.eye(d) - np.linalg.matrix_power(W / 2, terms)
    R = np.asarray(so.cayley_neumann(xp.asarray(W), terms=terms))
    np.testing.assert_allclose(R, factor @ so.cayley(W), atol=1e-15)


@pytest.mark.parametrize(("terms", "rate"), [(2, 1.0), (3, 0.5), (4, -1.0), (5, 0.5)])
def test_cayley_neumann_drifts_at_the_predicted_rate(terms, rate):
    """|det|^{1/2} in d = 2: 1 + x^2, 1 + x^6/2, 1 - x^4, 1 + x^10/2 per step, x = |W|/2."""
    x, steps = 0.1, 100
    R = so.cayley_neumann(so.hat(np.array([2 * x])), terms=terms)
    growth = np.log(np.linalg.det(np.linalg.matrix_power(R, steps))) / 2
    order = terms if terms % 2 == 0 else 2 * terms
    np.testing.assert_allclose(growth, steps * rate * x**order, rtol=0.02)


def test_cayley_neumann_needs_a_term():
    with pytest.raises(ValueError, match="at least 1"):
        so.cayley_neumann(np.zeros((2, 2)), terms=0)


@pytest.mark.parametrize("step", [so.exp, so.cayley])
@pytest.mark.parametrize("d", [2, 3, 7])
def test_products_stay_orthogonal_where_the_truncated_series_does_not(step, d):
    W = skew(d, np.random.default_rng(d), 0.05)
    exact, R = step(W), np.eye(d)
    truncated, N = so.cayley_neumann(W, terms=2), np.eye(d)
    for _ in range(5000):
        R, N = R @ exact, N @ truncated
    assert off_orthogonal(R) < 1e-12
    assert off_orthogonal(N) > 1.0
    assert off_orthogonal(so.polish(R)) < 5e-15


# -- log ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8])
@given(seed=SEEDS, exponent=st.floats(-12.0, 0.0))
def test_log_near_pi(xp, d, exponent, seed):
    """One plane short of pi by up to 1e-12: its orientation is known still, nothing is lost."""
    rng = np.random.default_rng(seed)
    short = 10.0**exponent
    angles = rng.uniform(0.0, 1.6, d // 2)
    angles[0] = np.pi - short
    W = with_angles(angles, d, rng)
    R = so.exp(W)
    L = np.asarray(so.log(xp.asarray(R)))
    np.testing.assert_allclose(so.exp(L), R, atol=2e-14)
    np.testing.assert_allclose(L, W, atol=2e-14)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8])
@given(seed=SEEDS, planes=st.integers(1, 4))
def test_log_at_exactly_pi_is_one_of_the_logarithms(xp, d, planes, seed):
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0.0, 3.0, d // 2)
    angles[:planes] = np.pi
    Q = so.project(rng.standard_normal((d, d)))
    D = np.eye(d)
    for k, angle in enumerate(angles):
        block = -np.eye(2) if angle == np.pi else so.exp(so.hat(np.array([angle])))
        D[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = block
    for R in (D, Q @ D @ Q.T):
        L = np.asarray(so.log(xp.asarray(R)))
        np.testing.assert_array_equal(L, -L.T)
        np.testing.assert_allclose(so.exp(L), R, atol=5e-14)
        norm = np.linalg.norm(L) / np.sqrt(2)
        np.testing.assert_allclose(norm, np.linalg.norm(angles), atol=1e-7)


@pytest.mark.parametrize("d", [2, 4, 6])
def test_log_of_minus_the_identity(xp, d):
    L = np.asarray(so.log(xp.asarray(-np.eye(d))))
    np.testing.assert_allclose(so.exp(L), -np.eye(d), atol=2e-15)
    np.testing.assert_allclose(L @ L, -(np.pi**2) * np.eye(d), atol=1e-13)


def test_log_with_two_planes_near_pi_keeps_what_the_cut_locus_leaves(xp):
    """Condition 1 / (distance to the cut locus) in W, none in exp(W)."""
    for short in (1e-1, 1e-3, 1e-5, 1e-7):
        W = with_angles([np.pi - short, np.pi - 2 * short], 5, np.random.default_rng(3))
        R = so.exp(W)
        L = np.asarray(so.log(xp.asarray(R)))
        np.testing.assert_allclose(so.exp(L), R, atol=1e-13)
        np.testing.assert_allclose(L, W, atol=1e-12 / short)


@pytest.mark.parametrize("d", [4, 6, 9])
def test_log_with_equal_angles_in_several_planes(xp, d):
    for angle in (1e-7, 0.4, np.pi / 2, 2.2, 2.9):
        W = with_angles([angle] * (d // 2), d, np.random.default_rng(d))
        L = np.asarray(so.log(so.exp(xp.asarray(W))))
        np.testing.assert_allclose(L, W, atol=2e-14)


@pytest.mark.parametrize("d", [2, 3, 4, 6, 9])
def test_log_agrees_with_scipy(xp, d):
    R = so.exp(skew(d, np.random.default_rng(d), 2.0))
    np.testing.assert_allclose(np.asarray(so.log(xp.asarray(R))), linalg.logm(R).real, atol=2e-13)


def test_log_agrees_with_rotation_vectors():
    rotations = Rotation.random(200, rng=np.random.default_rng(0))
    v = so.vee(so.log(rotations.as_matrix()))
    np.testing.assert_allclose(v, rotations.as_rotvec(), atol=2e-14)


# -- derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("size", [0.0, 1e-7, 1e-3, 0.1, 1.0, 4.0])
def test_derivatives_of_exp(torch, d, size):
    v = size * np.random.default_rng(d).standard_normal(d * (d - 1) // 2)
    v = torch.tensor(v, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: so.exp(so.hat(v)), v)
    assert torch.autograd.gradgradcheck(lambda v: so.exp(so.hat(v)), v)
    assert torch.autograd.gradcheck(lambda v: so.cayley(so.hat(v)), v)
    assert torch.autograd.gradcheck(lambda v: so.cayley_neumann(so.hat(v)), v)


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("angle", [0.0, 1e-7, 1e-3, 1.0, 2.5, np.pi - 1e-2, np.pi - 1e-4])
def test_derivatives_of_log(torch, d, angle):
    rng = np.random.default_rng(d)
    angles = np.full(d // 2, 0.7 * min(angle, 1.0))
    angles[0] = angle
    R = torch.tensor(so.exp(with_angles(angles, d, rng)))
    n = d * (d - 1) // 2
    v = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: so.log(R @ so.exp(so.hat(v))), v)
    assert torch.autograd.gradgradcheck(lambda v: so.log(R @ so.exp(so.hat(v))), v)
    # entries of R moved one by one, off the group: log of the nearest rotation
    E = torch.zeros(d, d, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda E: so.log(R + E), E)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("short", [np.pi, 1e-8, 1e-12, 0.0])
def test_gradients_of_log_and_distance_are_finite_everywhere(torch, d, short):
    angles = np.full(d // 2, np.pi - short)
    R = torch.tensor(so.exp(with_angles(angles, d, np.random.default_rng(d))), requires_grad=True)
    weights = torch.arange(d * d, dtype=torch.float64).reshape(d, d)
    for value in (
        (weights * so.log(R)).sum(),
        so.distance(torch.eye(d, dtype=torch.float64), R),
        (weights * so.project(R)).sum(),
    ):
        (gradient,) = torch.autograd.grad(value, R)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("d", [2, 3, 5])
def test_derivatives_of_project(torch, d):
    M = torch.tensor(np.random.default_rng(d).standard_normal((d, d)), requires_grad=True)
    eye = torch.eye(d, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(so.project, M)
    assert torch.autograd.gradgradcheck(so.project, M)
    assert torch.autograd.gradcheck(so.project, eye)


# -- distance, project, polish --------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
@given(seed=SEEDS)
def test_distance_is_a_bi_invariant_metric(xp, d, seed):
    rng = np.random.default_rng(seed)
    A, B, C, Q = (xp.asarray(so.project(rng.standard_normal((d, d)))) for _ in range(4))
    ab = float(so.distance(A, B))
    assert abs(float(so.distance(A, A))) < 1e-14 * d
    assert abs(ab - float(so.distance(B, A))) < 1e-13
    assert abs(ab - float(so.distance(Q @ A, Q @ B))) < 1e-12
    assert abs(ab - float(so.distance(A @ Q, B @ Q))) < 1e-12
    assert ab <= float(so.distance(A, C)) + float(so.distance(C, B)) + 1e-12
    assert 0 <= ab <= np.pi * np.sqrt(d // 2) + 1e-12


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("angle", [0.0, 1e-7, 1e-3, 1.0, 3.0, np.pi])
def test_distance_is_the_angle(xp, d, angle):
    v = np.zeros(d * (d - 1) // 2)
    v[-1] = angle
    R = so.exp(so.hat(xp.asarray(v)))
    assert abs(float(so.distance(xp.eye(d, dtype=xp.float64), R)) - angle) <= 1e-15 + 4e-16 * angle


@pytest.mark.parametrize("d", DIMENSIONS)
@given(seed=SEEDS)
def test_project_gives_the_nearest_rotation(xp, d, seed):
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((d, d))
    R = np.asarray(so.project(xp.asarray(M)))
    assert off_orthogonal(R) < 1e-13
    assert np.linalg.det(R) > 0
    best = np.linalg.norm(R - M)
    for size in (1e-3, 0.3, 2.0):
        other = R @ so.exp(skew(d, rng, size))
        assert np.linalg.norm(other - M) >= best - 1e-12
    np.testing.assert_allclose(np.asarray(so.project(xp.asarray(R))), R, atol=1e-14 * d)


@pytest.mark.parametrize("d", [2, 3, 7])
def test_polish_squares_the_error(xp, d):
    rng = np.random.default_rng(d)
    R = so.project(rng.standard_normal((d, d)))
    noise = rng.standard_normal((d, d))
    for size in (1e-2, 1e-4, 1e-6):
        broken = R + size * noise
        before = off_orthogonal(broken)
        after = off_orthogonal(so.polish(xp.asarray(broken)))
        assert after < d * before**2 + 4e-15
