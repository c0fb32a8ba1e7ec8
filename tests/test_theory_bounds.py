"""Contraction, turning targets, minimax bounds and lemmas: formulas against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import theory, wishart
from kgmrf.geometry import so

LAM = np.array([2.0, 0.5])


# --- energy ------------------------------------------------------------------------------------


def step_map(a, b, rho, first):
    if first == "drift":
        return theory.error_map(a, b, rho)
    return np.array([[1 - a - b, rho], [-b, rho]])


orders = st.sampled_from(["drift", "kick"])


@given(st.floats(0.0, 1.9), st.floats(0.01, 3.5), st.floats(-0.95, 1.0), orders)
def test_energy_contraction_is_the_worst_ratio_of_energies(a, b, rho, first):
    f = step_map(a, b, rho, first)
    turn = np.linspace(0, math.pi, 4001)
    for inertia in (0.3, 1.0, 12.0):
        z = np.stack([np.cos(turn), np.sin(turn) / math.sqrt(inertia)])
        after = f @ z
        worst = (after[0] ** 2 + inertia * after[1] ** 2).max()
        found = theory.energy_contraction(a, b, rho, inertia=inertia, first=first)
        assert found == pytest.approx(worst, rel=1e-4)
        assert found >= theory.energy_contraction(a, b, rho, first=first) - 1e-12


@given(st.floats(0.0, 1.95), st.floats(0.01, 3.9), st.floats(-0.95, 1.0), orders)
def test_an_inertia_contracts_iff_it_is_in_the_range(a, b, rho, first):
    low, best, high = theory.energy_inertia(a, b, rho, first=first)
    fastest = theory.energy_contraction(a, b, rho, first=first)
    if abs(fastest - 1) < 1e-9:
        return
    assert math.isfinite(best) == (fastest < 1)
    for inertia in np.geomspace(1e-3, 1e3, 25):
        inside = low < inertia < high
        contracts = theory.energy_contraction(a, b, rho, inertia=inertia, first=first)
        if abs(contracts - 1) > 1e-9:
            assert inside == (contracts < 1)


@given(st.floats(0.01, 1.99), st.floats(0.01, 3.99))
def test_where_the_theorem_holds(gamma, eta):
    """Kick first: iff eta < 2 min(gamma, 2 - gamma). With gamma >= 1 that is the whole domain."""
    limit = 2 * min(gamma, 2 - gamma)
    if abs(eta - limit) < 1e-6:
        return
    found = theory.energy_inertia(0.0, eta, 1 - gamma, first="kick")
    assert math.isfinite(found.best) == (eta < limit)
    if gamma > 1:
        assert math.isfinite(found.best) == theory.printed_domain(eta, gamma)


@given(st.floats(0.01, 1.99), st.floats(0.01, 3.99))
def test_where_the_zero_lag_law_contracts(a, b):
    limit = 2 * min(a, 2 - a)
    if abs(b - limit) < 1e-6 or abs(a - 1) < 1e-6:
        return
    found = theory.energy_inertia(a, b)
    assert math.isfinite(found.best) == (b < limit)
    if b < limit:
        assert found.best == pytest.approx(abs(1 - a) / b)


def test_rises_of_the_energy_come_from_the_inertia():
    """gamma .1, eta .05: with unit inertia 44 of 119 steps rise, with inertia 18 none."""
    f = step_map(0.0, 0.05, 0.9, "kick")

    def rises(inertia):
        z, energies = np.array([0.2, 0.0]), []
        for _ in range(120):
            energies.append(z[0] ** 2 + inertia * z[1] ** 2)
            z = f @ z
        return int((np.diff(energies) > 0).sum())

    assert rises(1.0) > 30
    assert rises(18.0) == 0
    assert theory.energy_contraction(0.0, 0.05, 0.05, inertia=1.0, first="kick") < 1


def test_expected_energy_of_a_noisy_step():
    """E[E'] = E(mean map) + (1 + a) eta^2 R (1 + w sin^2(2 xi) / 2) / 2, exactly, for d = 2."""
    rng = np.random.default_rng(0)
    m, eta, r, inertia, xi, u = 40, 0.3, 0.6, 3.0, 0.4, 0.1
    gap, product = LAM[0] - LAM[1], LAM.prod()
    w, noise = gap**2 / product, product / (m * gap**2)
    q = so.exp(so.hat(np.array([-xi])))
    seen = wishart.sample(np.broadcast_to((q * LAM) @ q.T, (200_000, 2, 2)), m, rng)
    moved = r * u + eta * seen[:, 1, 0] / gap  # the estimate is xi ahead of the truth
    after = xi + moved
    energies = 0.5 * after**2 + 0.5 * inertia * moved**2
    mean = r * u - eta * 0.5 * math.sin(2 * xi)
    expected = 0.5 * (xi + mean) ** 2 + 0.5 * inertia * mean**2
    expected += 0.5 * (1 + inertia) * eta**2 * noise * (1 + 0.5 * w * math.sin(2 * xi) ** 2)
    assert energies.mean() == pytest.approx(expected, rel=5e-3)


def test_a_change_of_the_target_in_the_moving_frame():
    """|sqrt E+ - sqrt E| <= sqrt(a/2) |change|; as printed, for a fixed estimate, it is false."""
    rng = np.random.default_rng(1)
    xi, u, change = rng.standard_normal((3, 1000))
    inertia = 2.5
    before = np.sqrt(0.5 * xi**2 + 0.5 * inertia * u**2)
    after = np.sqrt(0.5 * xi**2 + 0.5 * inertia * (u - change) ** 2)
    assert (np.abs(after - before) <= math.sqrt(inertia / 2) * np.abs(change) + 1e-12).all()
    # Printed: the target goes on by Omega while the estimate stays. With a constant Omega the
    # right-hand side is zero; the energy changes all the same.
    omega, error = 0.1, 0.05
    assert abs(0.5 * (error + omega) ** 2 - 0.5 * error**2) > 0.009


# --- turning targets ---------------------------------------------------------------------------


def numerical_radius(a, b, rho, velocity):
    """Spectral radius of the step on rotations, linearised about a steady turn by differences."""
    d = velocity.shape[0]
    n = d * (d - 1) // 2

    def after(z):
        frame = so.exp(so.hat(-z[:n]))  # the truth stands at the identity
        w = velocity - so.hat(z[n:])
        frame = frame @ so.exp(w)
        truth = so.exp(velocity)
        seen = so.log(frame.T @ truth)
        frame = frame @ so.exp(a * seen)
        w = rho * w + (1 - rho) * velocity + b * seen
        return np.concatenate([so.vee(so.log(frame.T @ truth)), so.vee(velocity - w)])

    h = 1e-6
    columns = [(after(h * e) - after(-h * e)) / (2 * h) for e in np.eye(2 * n)]
    return np.abs(np.linalg.eigvals(np.array(columns).T)).max()


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("a", "b", "rho"), [(0.1, 0.005, 1.0), (0.5, 2.5, 1.0), (0.3, 0.1, 1.0), (0.4, 0.2, 0.8)]
)
def test_radius_about_a_turning_target(d, a, b, rho):
    velocity = so.hat(0.3 * np.random.default_rng(d).standard_normal(d * (d - 1) // 2))
    found = theory.stability_radius(a, b, rho, velocity=velocity)
    assert found == pytest.approx(numerical_radius(a, b, rho, velocity), abs=2e-6)


@given(
    st.floats(-0.2, 2.2), st.floats(-0.3, 4.2), st.floats(-1.1, 1.1), st.lists(
        st.floats(-2, 2), min_size=6, max_size=6
    )
)  # fmt: skip
def test_schur_conditions_agree_with_the_radius_while_turning(a, b, rho, coordinates):
    velocity = so.hat(np.array(coordinates))
    radius = theory.stability_radius(a, b, rho, velocity=velocity)
    if abs(radius - 1) > 1e-6:
        assert theory.stable(a, b, rho, velocity=velocity) == (radius < 1)


def test_schur_conditions_agree_with_the_radius_near_the_boundary():
    rng = np.random.default_rng(0)
    a, b, rho = rng.uniform((-0.2, -0.3, -1.1), (2.2, 4.2, 1.1), (20_000, 3)).T
    turns = so.hat(rng.uniform(-2, 2, (a.size, 3)))
    radius = theory.stability_radius(a, b, rho, velocity=turns)
    near = (np.abs(radius - 1) > 1e-6) & (np.abs(radius - 1) < 0.1)
    assert near.sum() > 1000
    assert (theory.stable(a, b, rho, velocity=turns) == (radius < 1))[near].all()


def test_turning_costs_stability_in_proportion_to_the_speed():
    """The paper's C |Omega|^2 is too small when underdamped: the growth is linear."""
    speeds = np.array([0.005, 0.01, 0.02, 0.04])
    turns = so.hat(np.stack([0 * speeds, 0 * speeds, speeds], -1))
    radius = theory.stability_radius(0.1, 0.02, velocity=turns)
    growth = radius - theory.stability_radius(0.1, 0.02)
    slope = np.polyfit(np.log(speeds), np.log(growth), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.1)
    assert theory.stable(0.5, 2.5)
    assert not theory.stable(0.5, 2.5, velocity=so.hat(np.array([0.0, 0.0, 1.5])))


def test_a_target_at_rest_or_in_the_plane_is_the_error_map():
    for velocity in (np.zeros((4, 4)), so.hat(np.array([0.7]))):
        for ask in (theory.stability_radius, theory.stable, theory.convergence_rate):
            assert ask(0.2, 0.05, velocity=velocity) == pytest.approx(ask(0.2, 0.05))
    assert theory.convergence_rate(0.5, 2.5, velocity=so.hat(np.array([0, 0, 1.5]))) < 0
    with pytest.raises(ValueError, match="skew"):
        theory.stable(0.1, 0.1, velocity=np.eye(3))


# --- minimax -----------------------------------------------------------------------------------


def worst_risk(a, b, r, v, n):
    """P_11 R + h V^2 / T: noise, and one jump of the rate."""
    terms = theory.risk_bound(
        spectrum=(1.0 + math.sqrt(1.0), 1.0), n_samples=1.0, n_frames=n, position_gain=a,
        velocity_gain=b, rate_variation=v,
    )  # fmt: skip
    return theory.steady_noise_variance(a, b) * r + terms.nonstationarity


@settings(max_examples=20)
@given(st.floats(1e-4, 1.0), st.floats(1e-3, 2.0), st.integers(50, 5000))
def test_no_pair_of_gains_beats_the_fixed_gain_minimax(r, v, n):
    found = theory.fixed_gain_minimax(r, v, n)
    assert worst_risk(found.position_gain, found.velocity_gain, r, v, n) == pytest.approx(
        found.risk, rel=1e-6
    )
    for a in found.position_gain * np.array([0.5, 0.8, 0.97, 1.03, 1.3, 2.0]):
        for b in found.velocity_gain * np.array([0.3, 0.7, 0.97, 1.03, 1.5, 3.0]):
            if theory.stable(a, b):
                assert worst_risk(a, b, r, v, n) > found.risk * (1 - 1e-9)


def test_one_jump_is_the_worst_path():
    """Any other path of the same variation costs less, without noise."""
    rng = np.random.default_rng(0)
    a, b, n = 0.2, 0.02, 400
    f = theory.error_map(a, b)

    def cost(jumps):
        z, total = np.zeros(2), 0.0
        for jump in jumps:
            total += z[0] ** 2
            z = f @ z + np.array([0.0, jump])
        return total

    single = np.zeros(n)
    single[0] = 1.0
    for _ in range(20):
        jumps = np.zeros(n)
        where = rng.integers(0, n // 2, 5)
        jumps[where] = rng.standard_normal(5)
        assert cost(jumps / np.abs(jumps).sum()) <= cost(single) + 1e-12


def test_small_variations_follow_the_closed_form():
    r, v, n = 0.1, 1e-4, 10_000
    close = math.sqrt(2) * r**0.75 * (v**2 / n) ** 0.25
    assert theory.fixed_gain_minimax(r, v, n).risk == pytest.approx(close, rel=0.03)
    assert theory.fixed_gain_minimax(r, 0.0, n).risk == 0.0
    r, v, n = 0.05, 0.5, 40_000
    close = 0.0618 * r**0.8 * (v / n) ** 0.4
    assert theory.minimax_lower_bound(r, v, n) == pytest.approx(close, rel=0.03)


@pytest.mark.parametrize(("r", "v"), [(0.02, 0.3), (0.1, 1.0), (0.005, 0.05)])
def test_no_filter_goes_below_the_lower_bound_on_its_paths(r, v):
    """The paths of the proof, drawn with random signs, and the best of many fixed gains on them."""
    n = 1000
    bound = theory.minimax_lower_bound(r, v, n)
    lengths = np.arange(2, n + 1, 2)
    blocks = n // lengths
    rates = v / (4 * blocks - 2)
    square = rates**2 * (lengths**3 / 12 + lengths / 6)
    value = np.where(square <= 4 * r / 9, blocks / n * square * (1 - np.sqrt(square / r)), 0)
    k = int(np.argmax(value))
    length, rate = int(lengths[k]), rates[k]
    rng = np.random.default_rng(3)
    signs = rng.choice([-1.0, 1.0], (200, blocks[k]))
    half = np.concatenate([np.ones(length // 2), -np.ones(length // 2)])
    turns = rate * (signs[:, :, None] * half).reshape(200, -1)
    assert np.abs(np.diff(turns, axis=1)).sum(axis=1).max() <= v * (1 + 1e-9)
    angle = np.cumsum(turns, axis=1)
    noise = math.sqrt(r) * rng.standard_normal(angle.shape)
    risks = []
    for a in (0.02, 0.05, 0.1, 0.2, 0.4, 1.0):
        for b in (0.0, 0.1 * a**2, 0.5 * a**2, a**2):
            x, w, total = np.zeros(200), np.zeros(200), 0.0
            for t in range(angle.shape[1]):
                miss = angle[:, t] + noise[:, t] - (x + w)
                x, w = x + w + a * miss, w + b * miss
                total += ((x - angle[:, t]) ** 2).mean()
            risks.append(total / angle.shape[1])
    assert bound > 0
    assert min(risks) > bound


def test_two_angles_at_rest():
    """The two-point bound lies below the mean of n observations, by no more than 27/4."""
    r, n = 0.01, 25
    assert theory.two_point_bound(r, n) < r / n < 7 * theory.two_point_bound(r, n)
    theta = np.linspace(0.0, np.sqrt(r / n), 10_001)  # the best pair of angles +-theta
    best = (theta**2 * (1 - theta * np.sqrt(n / r))).max()
    assert theory.two_point_bound(r, n) == pytest.approx(best, rel=1e-6)


def test_the_printed_minimax_theorem_is_false():
    """Both of its terms are undercut, so that no universal constants exist."""
    r = 0.1
    average = [theory.steady_noise_variance(g, 0.0) * r for g in (1e-2, 1e-4, 1e-6)]
    assert average[-1] < 1e-6 * r  # static term: a slow average goes below any multiple of R
    v, n = 1.0, 1000
    reporting = 1e-9  # R for many samples: the risk of reporting the observation
    assert reporting < 1e-5 * v / n  # its nonstationarity term: below any multiple of V/T
    with pytest.raises(ValueError, match="need"):
        theory.fixed_gain_minimax(0.0, 1.0, 10)
    with pytest.raises(ValueError, match="need"):
        theory.minimax_lower_bound(0.1, 1.0, 1)


# --- risk --------------------------------------------------------------------------------------


def run(a, b, jumps, start=(0.0, 0.0)):
    """Mean squared angle of a noiseless run with these changes of the rate."""
    f, z, total = theory.error_map(a, b), np.array(start), 0.0
    for jump in jumps:
        z = f @ z
        total += z[0] ** 2
        z = z + np.array([0.0, jump])
    return total / len(jumps)


@settings(max_examples=40)
@given(
    st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=60),
    st.floats(-0.3, 0.3),
    st.floats(-0.1, 0.1),
    st.floats(0.05, 0.9),
)
def test_all_forms_of_the_risk_bound_hold(jumps, angle, rate, a):
    b = 0.3 * a**2
    variation, jump = float(np.abs(jumps).sum()), float(np.abs(jumps).max())
    common = dict(
        spectrum=LAM, n_samples=1e15, n_frames=len(jumps), position_gain=a, velocity_gain=b,
        rate_variation=variation, initial_angle=angle, initial_velocity=rate,
    )  # fmt: skip
    measured = run(a, b, jumps, (angle, rate)) * (1 - 1e-9) - 1e-12
    forms = ({}, {"max_variation": 1.5 * variation}, {"max_jump": jump})
    tight, *linear = (theory.risk_bound(**common, **form).total for form in forms)
    both = theory.risk_bound(**common, max_variation=1.5 * variation, max_jump=jump).total
    assert measured <= tight
    assert measured <= min(linear)
    assert both == pytest.approx(min(linear))


def test_the_bound_for_jumps_is_tight_up_to_its_factor_of_two():
    """Equal jumps in every frame and overdamped gains: the error is |g|_1 times the jump."""
    a, b, jump, n = 0.5, 0.02, 1e-3, 20_000
    terms = theory.risk_bound(
        spectrum=LAM, n_samples=1e15, n_frames=n, position_gain=a, velocity_gain=b,
        rate_variation=n * jump, max_jump=jump,
    )  # fmt: skip
    assert run(a, b, n * [jump]) == pytest.approx(0.5 * terms.nonstationarity, rel=0.01)


def test_no_multiple_of_the_variation_bounds_one_jump():
    sizes = np.array([0.1, 1.0, 10.0])
    ratio = [run(0.2, 0.02, [s] + 200 * [0.0]) / s for s in sizes]
    assert np.allclose(np.diff(np.log(ratio)), math.log(10))
    with pytest.raises(ValueError, match="max_variation"):
        theory.risk_bound(
            spectrum=LAM, n_samples=8, n_frames=10, position_gain=0.1, velocity_gain=0.1,
            rate_variation=2.0, max_variation=1.0,
        )  # fmt: skip


# --- first-order lag ---------------------------------------------------------------------------


@given(st.floats(0.001, 0.2), st.floats(0.15, 1.99))
def test_predictions_of_a_moving_average_lag(rate, gain):
    for average in ("euclidean", "geodesic"):
        lag = theory.first_order_lag(rate, gain, average=average, predicted=True)
        if not math.isnan(lag):
            assert lag > rate / 2
            assert gain > 1 or lag >= rate * (1 - 1e-12)
            filtered = theory.first_order_lag(rate, gain, average=average)
            assert lag == pytest.approx(filtered + rate)


def test_a_filtered_average_may_lag_by_nothing():
    assert theory.first_order_lag(0.1, 1.0) == 0.0
    assert theory.first_order_lag(0.1, 1.0, average="geodesic") == 0.0
    assert theory.first_order_lag(0.1, 1.5) < 0
    assert math.isnan(theory.first_order_lag(0.2, 0.1, average="geodesic"))
