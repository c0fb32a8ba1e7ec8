"""Laws of the isospectral orbit, and the paper's algebra with its corrections."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf import wishart
from kgmrf.geometry import orbit, so

SEEDS = st.integers(0, 2**32 - 1)


def point(d, rng, batch=()):
    """A frame and a descending spectrum with gaps of at least .05."""
    frame = so.project(rng.standard_normal((*batch, d, d)))
    spectrum = np.cumsum(rng.uniform(0.05, 1.0, (*batch, d)), axis=-1)[..., ::-1].copy()
    return frame, spectrum


def commutator(A, B):
    return A @ B - B @ A


def inner(A, B):
    return float(np.sum(A * B))


def skew(d, rng):
    return so.hat(rng.standard_normal(d * (d - 1) // 2))


# -- frame and spectrum ---------------------------------------------------------------------------


def test_a_missing_matrix_has_no_frame_and_disturbs_no_other():
    partly = np.array([[2.0, np.nan], [0.0, 1.0]])
    M = np.stack([np.diag([1.0, 3.0]), np.full((2, 2), np.nan), partly])
    frame, spectrum = orbit.decompose(M)
    assert np.isnan(frame[1:]).all()
    assert np.isnan(spectrum[1:]).all()
    np.testing.assert_array_equal(frame[0], orbit.decompose(M[0])[0])
    assert spectrum[0].tolist() == [3.0, 1.0]


@pytest.mark.parametrize("d", [1, 2, 3, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(seed=SEEDS, batch=st.sampled_from([(), (3,), (2, 2)]))
def test_decompose_inverts_compose(xp, d, dtype, seed, batch):
    frame, spectrum = point(d, np.random.default_rng(seed), batch)
    kind = getattr(xp, dtype)
    M = orbit.compose(xp.asarray(frame, dtype=kind), xp.asarray(spectrum, dtype=kind))
    Q, lam = orbit.decompose(M)
    tolerance = 3e-5 if dtype == "float32" else 3e-14
    assert Q.dtype == lam.dtype == kind
    assert bool(xp.all(xp.matrix_transpose(M) == M))
    assert np.all(np.diff(np.asarray(lam), axis=-1) <= 0)
    np.testing.assert_allclose(np.linalg.det(np.asarray(Q)), 1.0, atol=tolerance)
    np.testing.assert_allclose(np.asarray(lam), spectrum, atol=tolerance * d)
    np.testing.assert_allclose(np.asarray(orbit.compose(Q, lam)), np.asarray(M), atol=tolerance * d)


def test_gaps_are_differences():
    G = orbit.gaps(np.array([3.0, 2.0, 0.5]))
    np.testing.assert_array_equal(G, [[0, 1, 2.5], [-1, 0, 1.5], [-2.5, -1.5, 0]])


# -- innovation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", range(2, 17))
@given(seed=SEEDS, noise_floor=st.sampled_from([0.0, 0.01, 0.1, 10.0]))
def test_innovation_is_the_inertia_inverse_of_the_torque_and_the_noise_floor_cancels(
    d, seed, noise_floor
):
    """w = Q^T I_M^{-1}(tau) Q without eigh, inverse or noise floor."""
    rng = np.random.default_rng(seed)
    frame, spectrum = point(d, rng)
    M = orbit.compose(frame, spectrum)
    C = wishart.sample(M, 8, rng, noise_floor=0.1)
    tau = orbit.torque(M, C, noise_floor)
    literal = frame.T @ orbit.inertia_inverse(tau, frame, spectrum, noise_floor) @ frame
    w = orbit.innovation(frame, spectrum, C)
    smallest = np.min(-np.diff(spectrum))
    np.testing.assert_allclose(w, literal, atol=1e-12 * max(1.0, spectrum[0] / smallest))
    np.testing.assert_array_equal(w, -w.T)


@given(delta=st.floats(-np.pi, np.pi), theta=st.floats(-np.pi, np.pi), ratio=st.floats(1.01, 100.0))
def test_in_the_plane_the_innovation_is_half_the_sine_of_twice_the_angle(xp, delta, theta, ratio):
    def turn(angle):
        return so.exp(so.hat(xp.asarray(np.array([angle]))))

    spectrum = xp.asarray(np.array([ratio, 1.0]))
    C = orbit.compose(turn(theta + delta), spectrum)
    w = orbit.innovation(turn(theta), spectrum, C, ridge=0.0)
    np.testing.assert_allclose(
        float(w[1, 0]), np.sin(2 * delta) / 2, atol=1e-14 * ratio / (ratio - 1) * 10
    )


@given(seed=SEEDS)
def test_innovation_is_linear_equivariant_and_zero_at_the_truth(xp, seed):
    rng = np.random.default_rng(seed)
    frame, spectrum = point(4, rng)
    A, B = (wishart.sample(np.eye(4), 1, rng) for _ in range(2))
    turn = so.project(rng.standard_normal((4, 4)))

    def w(frame, C):
        return np.asarray(orbit.innovation(*(xp.asarray(X) for X in (frame, spectrum, C))))

    np.testing.assert_allclose(w(frame, 2 * A - B), 2 * w(frame, A) - w(frame, B), atol=1e-11)
    np.testing.assert_allclose(w(turn @ frame, turn @ A @ turn.T), w(frame, A), atol=1e-11)
    np.testing.assert_allclose(w(frame, orbit.compose(frame, spectrum)), 0, atol=1e-12)


@pytest.mark.parametrize("spectrum", [[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [1.0]])
@pytest.mark.parametrize("ridge", [None, 0.0])
def test_planes_without_a_gap_do_not_turn(xp, spectrum, ridge):
    d = len(spectrum)
    lam, eye = xp.asarray(np.array(spectrum)), xp.eye(d, dtype=xp.float64)
    C = xp.ones((d, d), dtype=xp.float64)
    w = np.asarray(orbit.innovation(eye, lam, C, ridge=ridge))
    back = np.asarray(orbit.inertia_inverse(so.log(eye) + 1.0, eye, lam, ridge=ridge))
    without_gap = np.asarray(orbit.gaps(lam)) == 0
    assert np.isfinite(w).all()
    assert np.all(w[without_gap] == 0)
    assert np.isfinite(back).all()
    assert np.all(w[~without_gap] != 0)


def test_a_ridge_and_a_noise_floor_may_differ_in_a_batch(xp):
    rng = np.random.default_rng(0)
    frame, spectrum = point(3, rng, (4,))
    C = wishart.sample(orbit.compose(frame, spectrum), 5, rng)
    ridge, floor = np.array([0.0, 0.1, 1.0, 10.0]), np.array([0.0, 0.1, 1.0, 10.0])
    args = [xp.asarray(X) for X in (frame, spectrum, C)]
    whole = np.asarray(orbit.innovation(*args, ridge=xp.asarray(ridge)))
    tau = np.asarray(orbit.torque(orbit.compose(*args[:2]), args[2], xp.asarray(floor)))
    weakest = np.asarray(orbit.identifiability(args[1], xp.asarray(floor)))
    whitened = np.asarray(orbit.whitened_gap(args[1], xp.asarray(floor)))
    for k in range(4):
        item = (frame[k], spectrum[k], C[k])
        np.testing.assert_allclose(whole[k], orbit.innovation(*item, ridge=ridge[k]), atol=1e-14)
        M = orbit.compose(*item[:2])
        np.testing.assert_allclose(tau[k], orbit.torque(M, C[k], floor[k]), atol=1e-11)
        np.testing.assert_allclose(weakest[k], orbit.identifiability(spectrum[k], floor[k]))
        np.testing.assert_allclose(whitened[k], orbit.whitened_gap(spectrum[k], floor[k]))


def test_derivatives_of_the_innovation_at_equal_eigenvalues(torch):
    eye = torch.eye(3, dtype=torch.float64)
    for spectrum in ([3.0, 2.0, 0.5], [2.0, 2.0, 0.5], [1.0, 1.0, 1.0]):
        lam = torch.tensor(spectrum, dtype=torch.float64, requires_grad=True)
        C = torch.tensor(wishart.sample(np.eye(3), 5, 0), requires_grad=True)
        gradients = torch.autograd.grad(orbit.innovation(eye, lam, C).abs().sum(), (lam, C))
        assert all(torch.isfinite(g).all() for g in gradients)
        assert torch.autograd.gradcheck(lambda C, lam=lam: orbit.innovation(eye, lam, C), C)


# -- torque and inertia: the paper's algebra, corrected -------------------------------------------


@given(seed=SEEDS)
def test_commutator_trace_identity_has_a_plus_sign(seed):
    """Erratum 1: <A, [Omega, M]> = +<[A, M], Omega> for symmetric A, M and skew Omega."""
    rng = np.random.default_rng(seed)
    A, M = (wishart.sample(np.eye(4), 6, rng) for _ in range(2))
    Omega = skew(4, rng)
    left, right = inner(A, commutator(Omega, M)), inner(commutator(A, M), Omega)
    assert abs(left - right) < 1e-12
    assert abs(left + right) > 1e-9 * abs(left)  # so that the printed sign fails


@pytest.mark.parametrize("noise_floor", [0.0, 0.3])
@given(seed=SEEDS)
def test_torque_is_the_descent_direction(noise_floor, seed):
    """Erratum 1: dV([Omega, M]) = -(m/2) <tau, Omega>, by finite differences."""
    rng = np.random.default_rng(seed)
    frame, spectrum = point(3, rng)
    M, m, h = orbit.compose(frame, spectrum + 0.5), 8, 1e-4
    C = wishart.sample(M, m, rng, noise_floor)
    Omega = skew(3, rng)
    Omega /= np.linalg.norm(Omega)

    def V(t):
        R = so.exp(t * Omega)
        return wishart.negative_log_likelihood(R @ M @ R.T, C, m, noise_floor)

    tau = orbit.torque(M, C, noise_floor)
    np.testing.assert_array_equal(tau, -tau.T)
    slope = (8 * (V(h) - V(-h)) - (V(2 * h) - V(-2 * h))) / (12 * h)
    scale = m * np.linalg.norm(tau) + 1
    np.testing.assert_allclose(slope, -m / 2 * inner(tau, Omega), atol=1e-8 * scale)


def test_torque_in_the_eigenbasis():
    """tau~_ij = -C~_ij G_ij / (d_i d_j)."""
    rng = np.random.default_rng(0)
    frame, spectrum = point(5, rng)
    C = wishart.sample(orbit.compose(frame, spectrum), 9, rng)
    tau = orbit.torque(orbit.compose(frame, spectrum), C, 0.2)
    d = spectrum + 0.2
    expected = -(frame.T @ C @ frame) * orbit.gaps(spectrum) / np.outer(d, d)
    np.testing.assert_allclose(frame.T @ tau @ frame, expected, atol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 6])
@given(seed=SEEDS)
def test_inertia_inverse_is_rotated_back(xp, d, seed):
    """Erratum 2: in spatial coordinates I^{-1} I = id; left in the eigenbasis it is not."""
    rng = np.random.default_rng(seed)
    frame, spectrum = point(d, rng)
    Omega = skew(d, rng)
    Q, lam = xp.asarray(frame), xp.asarray(spectrum)
    tau = orbit.inertia(xp.asarray(Omega), Q, lam, 0.1)
    back = np.asarray(orbit.inertia_inverse(tau, Q, lam, 0.1, ridge=0.0))
    np.testing.assert_allclose(back, Omega, atol=1e-11)
    eigenbasis = frame.T @ back @ frame
    if d > 2:  # in the plane rotations commute and the omission does not show
        assert np.abs(eigenbasis - Omega).max() > 1e-6


@given(seed=SEEDS)
def test_inertia_is_the_metric_of_the_motion(seed):
    """<I_M(A), B> = tr(S^{-1} [A, M] S^{-1} [B, M])."""
    rng = np.random.default_rng(seed)
    frame, spectrum = point(4, rng)
    M, A, B = orbit.compose(frame, spectrum), skew(4, rng), skew(4, rng)
    inverse = np.linalg.inv(M + 0.1 * np.eye(4))
    metric = np.trace(inverse @ commutator(A, M) @ inverse @ commutator(B, M))
    form = inner(orbit.inertia(A, frame, spectrum, 0.1), B)
    np.testing.assert_allclose(form, metric, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise_floor", [0.0, 0.4])
@given(seed=SEEDS)
def test_hessian_constant_is_half_the_samples(noise_floor, seed):
    """Erratum 5: d^2 V / dt^2 = (m/2) sum_{i != j} Omega_ij^2 G_ij^2 / (d_i d_j) at C = S."""
    rng = np.random.default_rng(seed)
    frame, spectrum = point(3, rng)
    spectrum = spectrum + 0.5
    M, m, h = orbit.compose(frame, spectrum), 8, 5e-3
    S = M + noise_floor * np.eye(3)
    Omega = skew(3, rng)
    Omega /= np.linalg.norm(Omega)

    def V(t):
        R = so.exp(t * Omega)
        return wishart.negative_log_likelihood(R @ M @ R.T, S, m, noise_floor)

    second = (-V(2 * h) + 16 * V(h) - 30 * V(0) + 16 * V(-h) - V(-2 * h)) / (12 * h * h)
    body = frame.T @ Omega @ frame
    d = spectrum + noise_floor
    total = np.sum(body**2 * orbit.gaps(spectrum) ** 2 / np.outer(d, d))
    np.testing.assert_allclose(second, m / 2 * total, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(
        m / 2 * inner(orbit.inertia(Omega, frame, spectrum, noise_floor), Omega), m / 2 * total
    )


# -- diagnosis ------------------------------------------------------------------------------------


def test_whitened_gap_and_identifiability_are_minima_over_pairs(xp):
    lam, floor = np.array([4.0, 2.0, 0.5]), 0.3
    d = lam + floor
    pairs = list(itertools.combinations(range(3), 2))
    whitened = min(floor * abs(lam[i] - lam[j]) / (d[i] * d[j]) for i, j in pairs)
    weakest = min((lam[i] - lam[j]) ** 2 / (d[i] * d[j]) for i, j in pairs)
    spectrum = xp.asarray(lam)
    np.testing.assert_allclose(float(orbit.whitened_gap(spectrum, floor)), whitened)
    np.testing.assert_allclose(float(orbit.identifiability(spectrum, floor)), weakest)
    assert float(orbit.whitened_gap(spectrum)) == 0
    assert float(orbit.identifiability(xp.asarray(np.ones(3)))) == 0
    assert float(orbit.identifiability(xp.asarray(np.ones(1)))) == np.inf


# -- distance -------------------------------------------------------------------------------------


def literal_distance(A, B):
    """Every sign choice, one by one."""
    d = A.shape[-1]
    angles = []
    for signs in itertools.product((1.0, -1.0), repeat=d):
        R = A.T @ B * np.array(signs)
        if np.linalg.det(R) > 0:
            angles.append(so.distance(np.eye(d), R))
    return min(angles)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 6])
@given(seed=SEEDS)
def test_distance_is_the_least_angle_over_the_signs(xp, d, seed):
    rng = np.random.default_rng(seed)
    A, B = (so.project(rng.standard_normal((d, d))) for _ in range(2))
    signs = rng.choice([-1.0, 1.0], d)
    measured = float(orbit.distance(xp.asarray(A), xp.asarray(B)))
    np.testing.assert_allclose(measured, literal_distance(A, B), atol=1e-12)
    # signs of columns, even of a left-handed frame, and a common turn change nothing
    Q = so.project(rng.standard_normal((d, d)))
    np.testing.assert_allclose(
        float(orbit.distance(xp.asarray(Q @ A), xp.asarray(Q @ (B * signs)))), measured, atol=1e-12
    )
    np.testing.assert_allclose(
        float(orbit.distance(xp.asarray(B), xp.asarray(A))), measured, atol=1e-12
    )


@pytest.mark.parametrize("angle", [0.0, 1e-7, 0.3, 1.0, np.pi / 2, 2.0, np.pi])
def test_distance_in_the_plane_is_modulo_half_a_turn(xp, angle):
    R = so.exp(so.hat(xp.asarray(np.array([angle]))))
    measured = float(orbit.distance(xp.eye(2, dtype=xp.float64), R))
    np.testing.assert_allclose(measured, min(angle, np.pi - angle), atol=1e-15)


@pytest.mark.parametrize("d", [9, 12])
def test_distance_above_the_enumeration(xp, d):
    """Near frames exactly; any frames within the bound that the starting signs give."""
    rng = np.random.default_rng(d)
    A = so.project(rng.standard_normal((3, d, d)))
    W = so.hat(rng.standard_normal((3, d * (d - 1) // 2)))
    W *= 0.8 / np.linalg.norm(W, axis=(-2, -1), keepdims=True) * np.sqrt(2)
    signs = rng.choice([-1.0, 1.0], (3, 1, d))
    near = orbit.distance(xp.asarray(A), xp.asarray(A @ so.exp(W) * signs))
    np.testing.assert_allclose(np.asarray(near), 0.8, atol=1e-12)
    B = so.project(rng.standard_normal((3, d, d)))
    far = np.asarray(orbit.distance(xp.asarray(A), xp.asarray(B)))
    assert np.all(far <= so.distance(A, B) + 1e-12)


def test_the_flip_search_agrees_with_enumeration_where_both_can_be_run(monkeypatch):
    rng = np.random.default_rng(0)
    A = so.project(rng.standard_normal((20, 6, 6)))
    W = so.hat(rng.standard_normal((20, 15)) * 0.3)
    B = A @ so.exp(W) * rng.choice([-1.0, 1.0], (20, 1, 6))
    exact = orbit.distance(A, B)
    monkeypatch.setattr(orbit, "_ENUMERATED", 0)
    searched = orbit.distance(A, B)
    assert np.all(searched >= exact - 1e-12)
    np.testing.assert_allclose(searched, exact, atol=1e-12)


def test_distance_has_finite_gradients_at_equal_frames(torch):
    frame = torch.eye(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(orbit.distance(frame, frame.detach()), frame)
    assert torch.isfinite(gradient).all()
